#!/usr/bin/env bash
# Train on several GPUs of one or more machines.
#   tools/dist_train.sh CONFIG GPUS [options of tools/train.py]
# On several machines, run on each: NNODES=2 NODE_RANK=0 MASTER_ADDR=host0 tools/dist_train.sh ...
set -eu
[ $# -ge 2 ] || { sed -n '2,4p' "$0" >&2; exit 2; }
exec "$(dirname "$0")/launch.sh" train.py "$2" "$1" "${@:3}"
