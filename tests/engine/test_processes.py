"""Several processes: what launchers call them, unshared disks, kills, broken files."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest
from forked import NoteOpens, a_minute, run_ranks
from mmengine.config import Config
from run_files import assert_same
from single_process_group import as_launched
from tool import SMALL_UPERNET, main_of, write_config
from torch.distributed import is_initialized

from cb_mm.checkpoints.read import read_checkpoint
from cb_mm.engine.processes import joined_processes, launched, refuse_strategies
from cb_mm.errors import UserError

SLURM = {'SLURM_PROCID': '3', 'SLURM_LOCALID': '1', 'SLURM_STEP_NUM_TASKS': '4',
         'SLURM_NTASKS': '9', 'SLURM_JOB_ID': '17', 'SLURM_STEP_ID': '0'}  # fmt: skip
OMPI = {'OMPI_COMM_WORLD_RANK': '3', 'OMPI_COMM_WORLD_LOCAL_RANK': '1',
        'OMPI_COMM_WORLD_SIZE': '4', 'OMPI_COMM_WORLD_LOCAL_SIZE': '4'}  # fmt: skip
INTEL = {'PMI_RANK': '3', 'MPI_LOCALRANKID': '1', 'PMI_SIZE': '4', 'MPI_LOCALNRANKS': '4'}
HERE = {'RANK': '3', 'LOCAL_RANK': '1', 'WORLD_SIZE': '4', 'MASTER_ADDR': '127.0.0.1'}


def test_a_wrapper_that_shards_the_model_is_refused():
    """On GPUs mmengine would use it, and every process save its own part as the checkpoint."""
    wrapped = Config(dict(model_wrapper_cfg=dict(type='mmengine.MMFullyShardedDataParallel')))
    with pytest.raises(UserError, match='model_wrapper_cfg = MMFullyShardedDataParallel is not'):
        refuse_strategies(wrapped)
    refuse_strategies(Config(dict(model_wrapper_cfg=dict(type='MMDistributedDataParallel'))))


@pytest.mark.parametrize(
    ('launcher', 'variables'),
    [('slurm', {**SLURM, 'SLURM_STEP_NUM_NODES': '1'}), ('mpi', OMPI), ('mpi', INTEL)],
)
def test_every_launcher_becomes_torchruns(launcher, variables):
    """Whatever LOCAL_RANK says already: our own tools set a default."""
    found = launched(launcher, {**variables, 'LOCAL_RANK': '0'})
    port = int(found.pop('MASTER_PORT'))
    assert found == HERE
    assert 10_000 <= port < 30_000
    named = launched(launcher, {**variables, 'MASTER_ADDR': 'first', 'MASTER_PORT': '29500'})
    assert (named['MASTER_ADDR'], named['MASTER_PORT']) == ('first', '29500')


def test_every_job_has_its_own_port():
    alone = {**SLURM, 'SLURM_STEP_NUM_NODES': '1'}
    ports = {
        launched('slurm', {**alone, 'SLURM_JOB_ID': str(job), 'SLURM_PROCID': str(rank)})[
            'MASTER_PORT'
        ]
        for job in range(20)
        for rank in range(2)
    }
    assert len(ports) == 20


@pytest.mark.parametrize(
    ('launcher', 'variables', 'message'),
    [
        ('pytorch', {}, 'RANK is not set.*torchrun'),
        ('slurm', {}, 'SLURM_PROCID is not set.*srun'),
        ('mpi', {'PMI_RANK': '0'}, 'OMPI_COMM_WORLD_RANK is not set.*mpirun'),
        ('mpi', {**OMPI, 'OMPI_COMM_WORLD_LOCAL_SIZE': '2'}, 'MASTER_ADDR'),
    ],
)
def test_what_no_launcher_started_is_refused(launcher, variables, message):
    with pytest.raises(UserError, match=message):
        launched(launcher, variables)


def test_a_tool_that_no_launcher_started_says_how(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv('OMPI_COMM_WORLD_RANK', raising=False)
    config = write_config(tmp_path, SMALL_UPERNET)
    words = [str(config), '--work-dir', str(tmp_path / 'w'), '--launcher', 'mpi']
    assert main_of('train.py')(words) == 2
    assert 'mpirun -n 2 python tools/train.py' in capsys.readouterr().err


@pytest.mark.parametrize('fails', [False, True])
def test_processes_part_at_the_end(fails, monkeypatch):
    """Also at an error; what was joined before stays so."""
    for name in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE', 'MASTER_ADDR',
                 'MASTER_PORT'):  # fmt: skip
        monkeypatch.setenv(name, '')  # so that they are restored
    as_launched()
    config = Config(dict(launcher='pytorch'))
    with contextlib.suppress(KeyError), joined_processes(config):
        assert is_initialized()
        with joined_processes(config):
            pass
        assert is_initialized()
        if fails:
            raise KeyError
    assert not is_initialized()


# ----- two processes, each with a disk of its own

WORDS = ('run.py', '--data-root', 'data', '--work-dir', 'w')
RUN = """
_base_ = ['{configs}/base.py']
custom_imports = dict(imports=['cb_mm', 'signal_hooks'])
custom_hooks = [dict(type='SignalAt'), dict(type='ReplayHook'), dict(type='MeanLossHook')]
train_dataloader = dict(batch_size=2, num_workers=0, persistent_workers=False)
train_cfg = dict(max_iters=4, val_interval=9)
default_hooks = dict(checkpoint=dict(interval=2))
"""


@pytest.fixture(scope='module')
def disks(tmp_path_factory, scenes) -> list[Path]:
    """Two folders, each with the config and the data; the first also with a run's checkpoints."""
    folders = []
    for name in ('first', 'second'):
        folder = tmp_path_factory.mktemp(name)
        write_config(folder, SMALL_UPERNET, 'base.py')
        (folder / 'run.py').write_text(RUN.replace('{configs}', str(folder)))
        shutil.copytree(scenes.ade20k, folder / 'data')
        folders.append(folder)
    ends = run_ranks('train.py', *WORDS, cwd=folders)
    assert [done.code for done in ends] == [0, 0], ends
    return folders


def copies(disks: list[Path], folder: Path) -> list[Path]:
    """Both disks once more, with the first checkpoint of the run on the first alone."""
    found = []
    for number, disk in enumerate(disks):
        found.append(folder / str(number))
        shutil.copytree(disk, found[-1], ignore=shutil.ignore_patterns('iter_4.pth', '2*'))
        assert (found[-1] / 'w' / 'iter_2.pth').is_file() == (number == 0)
    return found


@pytest.mark.slow
def test_unshared_disks_resume_from_the_first_one_read_once(disks, tmp_path):
    here = copies(disks, tmp_path)
    ends = run_ranks('train.py', *WORDS, '--resume', cwd=here, before=NoteOpens('iter_2.pth'))
    assert [done.code for done in ends] == [0, 0], ends
    assert 'w/iter_2.pth at iteration 2' in ends[0].out
    a, b = (read_checkpoint(folder / 'w' / 'iter_4.pth') for folder in (disks[0], here[0]))
    for part in ('state_dict', 'optimizer', 'param_schedulers'):
        assert_same(a[part], b[part], part)
    assert a['meta']['cb_mm_scale'] == {'processes': 2, 'batch': 4}
    # Once by the first process; the other one received it.
    assert len((here[0] / 'opened.txt').read_text().split()) == 1
    assert not (here[1] / 'opened.txt').exists()


@pytest.mark.slow
def test_kill_9_of_one_process_ends_the_other_within_a_minute(disks, tmp_path):
    here = copies(disks, tmp_path)
    first, second = run_ranks(
        'train.py', *WORDS, '--resume', '--cfg-options', 'custom_hooks.0.iteration=4',
        'custom_hooks.0.rank=1', 'custom_hooks.0.name=SIGKILL', cwd=here, after=a_minute(),
    )  # fmt: skip
    assert (first.code, second.code) == (2, -9), first
    assert 'another process of this run has ended' in first.err
    assert 'iter_2.pth' in first.err
    assert 'Traceback' not in first.err
    assert read_checkpoint(here[0] / 'w' / 'iter_2.pth')['meta']['iter'] == 2


@pytest.mark.slow
def test_a_broken_image_on_one_machine_ends_both_within_a_minute(disks, tmp_path):
    here = copies(disks, tmp_path)
    for image in (here[1] / 'data' / 'images' / 'training').iterdir():
        image.write_bytes(image.read_bytes()[:-400])
    first, second = run_ranks('train.py', *WORDS, '--resume', cwd=here, after=a_minute())
    assert (first.code, second.code) == (2, 2), first
    assert 'ends too early' in second.err or 'ends too early' in first.err
    assert 'Traceback' not in first.err + second.err
    assert (here[0] / 'w' / 'iter_2.pth').is_file()


def test_what_one_machine_lacks_is_told_by_all(disks, tmp_path):
    here = copies(disks, tmp_path)
    shutil.rmtree(here[1] / 'data' / 'images')
    first, second = run_ranks('train.py', *WORDS, '--resume', cwd=here, after=a_minute())
    assert (first.code, second.code) == (2, 2)
    assert 'process 1 on ' in first.err
    assert 'process 1 on ' not in second.err
    assert first.err.split(': ', 2)[2] in second.err


@pytest.mark.slow
def test_a_test_on_machines_that_lack_or_have_something_else(disks, tmp_path):
    """They would wait for each other for half an hour, or each test a model of its own."""
    here = copies(disks, tmp_path)
    checkpoint = here[0] / 'w' / 'iter_2.pth'
    words = ('run.py', 'iter.pth', '--data-root', 'data', '--out', 'out')
    shutil.copy(checkpoint, here[0] / 'iter.pth')
    first, second = run_ranks('test.py', *words, cwd=here, after=a_minute())
    assert (first.code, second.code) == (2, 2), first
    assert 'process 1 on ' in first.err
    assert 'iter.pth' in first.err
    shutil.copy(disks[0] / 'w' / 'iter_4.pth', here[1] / 'iter.pth')
    first, second = run_ranks('test.py', *words, cwd=here, after=a_minute())
    assert (first.code, second.code) == (2, 2), first
    for end in (first, second):
        assert 'process 1 would test something else than process 0: ' in end.err
        assert 'Traceback' not in end.err
    assert not (here[0] / 'out' / 'results.json').exists()
