#!/usr/bin/env bash
# Shared by slurm_train.sh and slurm_test.sh: slurm_launch.sh TOOL PARTITION JOB ARGUMENTS...
set -eu
tool=$1 partition=$2 job=$3
shift 3
gpus=${GPUS:-8}
per_node=${GPUS_PER_NODE:-$((gpus < 8 ? gpus : 8))}
# shellcheck disable=SC2086  # SRUN_ARGS is a list of words
exec srun --partition="$partition" --job-name="$job" --gres=gpu:"$per_node" --ntasks="$gpus" \
  --ntasks-per-node="$per_node" --cpus-per-task="${CPUS_PER_TASK:-5}" --kill-on-bad-exit=1 \
  ${SRUN_ARGS:-} "${PYTHON:-python}" -u "$(dirname "$0")/$tool" "$@" --launcher slurm
