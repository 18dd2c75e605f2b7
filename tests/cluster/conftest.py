"""The Slurm that the tests of this folder share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import slurm_cluster
from tool import REPO, environment


@pytest.fixture(scope='session')
def job_environment() -> dict[str, str]:
    """The variables of a job: this package, the helpers of the tests, no launcher's."""
    names = ('SLURM_', 'OMPI_', 'PMI', 'MASTER_')
    found = {key: value for key, value in environment().items() if not key.startswith(names)}
    found['PYTHONPATH'] = os.pathsep.join([str(REPO), str(REPO / 'tests')])
    return {**found, 'PYTHON': sys.executable, 'PYTHONUNBUFFERED': '1'}


@pytest.fixture(scope='session')
def slurm(job_environment) -> dict[str, str]:
    """The variables of a shell on a machine with Slurm; skips where none can be started."""
    lacking = slurm_cluster.lacking()
    if lacking:
        pytest.skip(lacking)
    with slurm_cluster.running_cluster() as folder:
        yield {
            **job_environment,
            'SLURM_CONF': str(Path(folder) / 'slurm.conf'),
            'GPUS': '2',
            'GRES': '',
            'CPUS_PER_TASK': '1',
        }
