#!/usr/bin/env bash
# Shared by slurm_train.sh and slurm_test.sh: slurm_launch.sh TOOL PARTITION JOB ARGUMENTS...
# Outside a job: submits one, shows its log and waits for its end. Inside one (also within your own
# sbatch script or salloc): starts its processes, and puts the job back into the queue when Slurm
# announced its end and the run was saved (exit code 138 = 128 + SIGUSR1).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tool=$1 partition=$2 job=$3
shift 3

if [ -n "${SLURM_JOB_ID:-}" ]; then
  # In a batch script this is the machine of the first process: any port that is free here will do.
  # Not one that the system would choose: before the processes meet there, it may have given it to
  # an outgoing connection of another program.
  if [ -n "${SLURMD_NODENAME:-}" ] && [ -z "${MASTER_PORT:-}" ]; then
    MASTER_PORT=$("${PYTHON:-python}" - <<'PROGRAM'
import random
import socket

while True:
    port = random.randrange(10_000, 30_000)
    with socket.socket() as probe:
        try:
            probe.bind(('', port))
        except OSError:
            continue
    print(port)
    break
PROGRAM
)
    export MASTER_PORT
  fi
  resume=()
  if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] && [ "$tool" = train.py ]; then
    case " $* " in *' --resume '* | *' --resume='*) ;; *) resume=(--resume) ;; esac
  fi
  code=0
  # shellcheck disable=SC2086  # SRUN_ARGS is a list of words
  srun --kill-on-bad-exit=1 ${SRUN_ARGS:-} "${PYTHON:-python}" -u "$here/$tool" "$@" \
    ${resume[@]+"${resume[@]}"} --launcher slurm || code=$?
  if [ "$code" -eq 138 ] && [ -n "${SLURMD_NODENAME:-}" ]; then
    echo "job $SLURM_JOB_ID: saved before its time limit; back into the queue (scontrol requeue)"
    for _ in 1 2 3 4 5 6; do # a busy controller may not answer at once
      if scontrol requeue "$SLURM_JOB_ID"; then
        sleep 60 # until Slurm ends this script
        exit "$code"
      fi
      sleep 10
    done
    echo "job $SLURM_JOB_ID: scontrol requeue failed; submit it again, with --resume" >&2
  fi
  exit "$code"
fi

gpus=${GPUS:-8}
per_node=${GPUS_PER_NODE:-$((gpus < 8 ? gpus : 8))}
gres=${GRES-gpu:$per_node}
# A job's script is copied elsewhere, and would not find its neighbours: the copy is one line.
# shellcheck disable=SC2086
id=$(
  sbatch --parsable --partition="$partition" --job-name="$job" ${gres:+--gres="$gres"} \
    --ntasks="$gpus" --ntasks-per-node="$per_node" --cpus-per-task="${CPUS_PER_TASK:-5}" \
    --requeue --open-mode=append --signal="USR1@${SIGNAL_AHEAD:-120}" --output=slurm-%j.out \
    ${SRUN_ARGS:-} <<SCRIPT
#!/usr/bin/env bash
SRUN_ARGS="--cpus-per-task=${CPUS_PER_TASK:-5}" exec$(printf ' %q' "$here/slurm_launch.sh" "$tool" "$partition" "$job" "$@")
SCRIPT
)
id=${id%%;*}
echo "job $id, log slurm-$id.out. It continues without this terminal; to save and end it: scancel --signal=TERM $id" >&2

# Ends with the exit code of the job. `sbatch --wait` would do, but a job that goes back into the
# queue looks cancelled for seconds: an end counts when it is seen twice, and, after the job said
# that it goes back, only when it has not run again for a minute. A controller that does not answer
# says nothing about the job; after ten minutes of that we give up.
wait_for_job() {
  local seen=0 silent=0 runs=0 needed job state announced restarts code signal
  while :; do
    sleep 1.5
    if ! job=$(scontrol --oneliner show job "$id" 2>&1); then
      case "$job" in
        *'Invalid job id'*) ;;
        *) silent=$((silent + 1)); if [ "$silent" -lt 400 ]; then continue; else break; fi ;;
      esac
      job=
    fi
    silent=0
    state=$(sed -n 's/.* JobState=\([A-Z_]*\).*/\1/p' <<<"$job")
    announced=$(grep -c 'back into the queue (scontrol requeue)' "slurm-$id.out" 2>/dev/null) || true
    restarts=$(sed -n 's/.* Restarts=\([0-9]*\).*/\1/p' <<<"$job")
    if [ "$state" = RUNNING ]; then runs=${restarts:-0}; fi
    if [ "${announced:-0}" -gt "$runs" ]; then needed=40; else needed=2; fi
    case "$state" in
      # Slurm forgets a job minutes after its end: then there is no state.
      '' | COMPLETED | CANCELLED | *FAIL* | TIMEOUT | PREEMPTED | OUT_OF_MEMORY | DEADLINE)
        seen=$((seen + 1)) ;;
      *) seen=0 ;;
    esac
    if [ "$seen" -ge "$needed" ]; then break; fi
  done
  code=$(sed -n 's/.* ExitCode=\([0-9]*\):.*/\1/p' <<<"$job")
  signal=$(sed -n 's/.* ExitCode=[0-9]*:\([0-9]*\).*/\1/p' <<<"$job")
  if [ "${signal:-0}" -gt 0 ]; then code=$((128 + signal)); fi
  if [ "$state" != COMPLETED ] && [ "${code:-0}" -eq 0 ]; then code=1; fi
  return "$code"
}
wait_for_job &
waiter=$!
tail -n +1 -s 0.5 -F --pid="$waiter" "slurm-$id.out" 2>/dev/null || true
wait "$waiter"
