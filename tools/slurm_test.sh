#!/usr/bin/env bash
# Test under Slurm.
#   GPUS=8 GPUS_PER_NODE=8 tools/slurm_test.sh PARTITION JOB CONFIG CHECKPOINT [options of tools/test.py]
# CPUS_PER_TASK (default 5) and SRUN_ARGS are passed on; the number of processes is GPUS (default 8).
# GRES= (empty) asks for no GPUs. docs/clusters.md says what happens at the time limit.
set -eu
[ $# -ge 4 ] || { sed -n '2,5p' "$0" >&2; exit 2; }
exec "$(dirname "$0")/slurm_launch.sh" test.py "$@"
