#!/usr/bin/env bash
# Starts N processes of simcse_jax.main on this machine, as N hosts would, and waits for them.
#
#   launch/local_processes.sh [--dry-run] N --config configs/unsup_bert.py --workdir runs/two [--config.FIELD=VALUE …]
#
# Process 0 writes to the terminal, the others to files. SIGTERM and Ctrl-C reach all of them as SIGTERM. If one fails,
# the others are ended. Exits with the first code that is not 0: 75 if all were pre-empted.
#
# If this is ten times slower than one process, the loopback delays ACKs:
#   ip route change table local local 127.0.0.1 dev lo src 127.0.0.1 quickack 1
set -euo pipefail

PYTHON="${PYTHON:-python}"
DEVICES="${DEVICES:-1}"                 # CPU devices of each process
JAX_PLATFORMS="${JAX_PLATFORMS:-cpu}"
LOGS="${LOGS:-}"                        # folder for the output of processes 1 to N - 1; empty: a new one
GRACE="${GRACE:-30}"                    # seconds from the first failure until the others are killed
DRY_RUN="${DRY_RUN:-0}"                 # 1: print the commands and run nothing; as --dry-run

die() { echo "error: $*" >&2 && exit 2; }

if [ "${1:-}" = --dry-run ]; then DRY_RUN=1 && shift; fi
[[ "${1:-}" =~ ^[1-9][0-9]*$ ]] || die "launch/local_processes.sh N ARGUMENTS: N is '${1:-}', not a number above 0"
[[ "$DEVICES" =~ ^[1-9][0-9]*$ ]] || die "DEVICES is '$DEVICES', not a number above 0"
processes=$1 && shift
[ $# -gt 0 ] || die "no arguments for simcse_jax.main (see the top of launch/local_processes.sh)"

# Below the range that the system uses for outgoing connections. On a free port nothing answers.
port=""
while [ -z "$port" ] || (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((10000 + RANDOM % 20000)); done
if [ "$DRY_RUN" != 1 ]; then
  LOGS="${LOGS:-$(mktemp -d)}" && mkdir -p "$LOGS"
  [ "$processes" = 1 ] || echo "output of the other processes: $LOGS/process-1.log …" >&2
fi

pids=()
ending=0
end_all() { [ ${#pids[@]} = 0 ] || kill -TERM "${pids[@]}" 2>/dev/null || true; }
trap 'ending=1; end_all' TERM INT
for ((i = 0; i < processes; i++)); do
  command=(env PYTHONUNBUFFERED=1 JAX_PLATFORMS="$JAX_PLATFORMS"
    XLA_FLAGS="${XLA_FLAGS:+$XLA_FLAGS }--xla_force_host_platform_device_count=$DEVICES"
    "$PYTHON" -m simcse_jax.main "$@" --config.parallel.processes="$processes" --config.parallel.process_id="$i"
    --config.parallel.coordinator="127.0.0.1:$port")
  if [ "$DRY_RUN" = 1 ]; then
    printf '%q ' "${command[@]}" && echo
  elif [ "$i" = 0 ]; then
    "${command[@]}" & pids[i]=$!
  else
    "${command[@]}" >"$LOGS/process-$i.log" 2>&1 & pids[i]=$!
  fi
done

# A signal that came while they were being started has reached some of them.
if [ "$ending" = 1 ]; then end_all; fi
code=0 deadline=0
while [ ${#pids[@]} -gt 0 ]; do
  sleep 0.1 || true
  for i in "${!pids[@]}"; do
    if kill -0 "${pids[i]}" 2>/dev/null; then continue; fi
    status=0
    wait "${pids[i]}" || status=$?
    unset "pids[i]"
    if [ "$status" != 0 ] && [ "$code" = 0 ]; then
      code=$status deadline=$((SECONDS + GRACE))
      echo "process $i ended with exit code $code; ending the others" >&2
      if [ "$i" != 0 ]; then tail -n 5 "$LOGS/process-$i.log" >&2; fi
      end_all
    fi
  done
  if [ "$code" != 0 ] && [ "$SECONDS" -ge "$deadline" ] && [ ${#pids[@]} -gt 0 ]; then
    kill -KILL "${pids[@]}" 2>/dev/null || true
  fi
done
exit "$code"
