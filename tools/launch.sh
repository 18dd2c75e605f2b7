#!/usr/bin/env bash
# Shared by dist_train.sh and dist_test.sh: run launch.sh TOOL GPUS ARGUMENTS... under torchrun.
set -eu
tool=$1 gpus=$2
shift 2
case $gpus in '' | *[!0-9]* | 0) echo "error: GPUS is \"$gpus\"; it must be a number from 1" >&2; exit 2 ;; esac
if [ "${NNODES:-1}" -gt 1 ]; then
  where=(--nnodes="$NNODES" --node_rank="${NODE_RANK:?on several machines set NODE_RANK, from 0}"
    --master_addr="${MASTER_ADDR:?on several machines set MASTER_ADDR}" --master_port="${PORT:-29500}")
else
  where=(--standalone)
fi
here=$(dirname "$0")
# Signals that ask the tools to save and stop are passed on, and there is time to do so.
export PET_SIGNALS_TO_HANDLE=${PET_SIGNALS_TO_HANDLE:-SIGTERM,SIGINT,SIGHUP,SIGUSR1}
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=${TORCH_ELASTIC_SHUTDOWN_TIMEOUT:-600}
exec "${PYTHON:-python}" "$here/_torchrun.py" "${where[@]}" --nproc_per_node="$gpus" \
  "$here/$tool" "$@" --launcher pytorch
