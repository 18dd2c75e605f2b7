#!/usr/bin/env bash
# Train under Slurm.
#   GPUS=8 GPUS_PER_NODE=8 tools/slurm_train.sh PARTITION JOB CONFIG [options of tools/train.py]
# CPUS_PER_TASK (default 5) and SRUN_ARGS are passed on; the number of processes is GPUS (default 8).
# GRES= (empty) asks for no GPUs. docs/clusters.md says what happens at the time limit.
set -eu
[ $# -ge 3 ] || { sed -n '2,5p' "$0" >&2; exit 2; }
exec "$(dirname "$0")/slurm_launch.sh" train.py "$@"
