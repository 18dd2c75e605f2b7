#!/usr/bin/env bash
# Test on several GPUs of one or more machines.
#   tools/dist_test.sh CONFIG CHECKPOINT GPUS [options of tools/test.py]
# On several machines, run on each: NNODES=2 NODE_RANK=0 MASTER_ADDR=host0 tools/dist_test.sh ...
set -eu
[ $# -ge 3 ] || { sed -n '2,4p' "$0" >&2; exit 2; }
exec "$(dirname "$0")/launch.sh" test.py "$3" "$1" "$2" "${@:4}"
