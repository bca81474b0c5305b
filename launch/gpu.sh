#!/usr/bin/env bash
# Trains on all GPUs of this host, in one process. After a pre-emption (exit code 75) or a crash it runs the same command
# again, which resumes from the last checkpoint; 0 and 2 (a mistake in the command) end it.
#
#   launch/gpu.sh [--dry-run] --config configs/unsup_bert.py --workdir runs/unsup [--config.FIELD=VALUE …]
#
# Needs: pip install -r requirements.txt "jax[cuda13]". SIGTERM and Ctrl-C save a checkpoint and end the run, with 75.
set -euo pipefail

PYTHON="${PYTHON:-python}"   # the interpreter that has JAX for GPUs
CRASHES="${CRASHES:-3}"      # at most this many restarts after crashes
PAUSE="${PAUSE:-10}"         # seconds before another start
DRY_RUN="${DRY_RUN:-0}"      # 1: print the command and run nothing; as --dry-run

die() { echo "error: $*" >&2 && exit 2; }

if [ "${1:-}" = --dry-run ]; then DRY_RUN=1 && shift; fi
[ $# -gt 0 ] || die "no arguments for simcse_jax.main (see the top of launch/gpu.sh)"
command=("$PYTHON" -m simcse_jax.main "$@")
if [ "$DRY_RUN" = 1 ]; then printf '%q ' "${command[@]}" && echo && exit; fi

# Background processes of bash ignore SIGINT, so both signals are passed on as SIGTERM.
child=0 ending=0 crashes=0
trap 'ending=1; [ "$child" = 0 ] || kill -TERM "$child" 2>/dev/null || true' TERM INT

while true; do
  "${command[@]}" &
  child=$!
  [ "$ending" = 0 ] || kill -TERM "$child" 2>/dev/null || true # a signal that came before `child` was known
  # Not only `wait`: a signal would end it before the checkpoint is saved.
  while kill -0 "$child" 2>/dev/null; do sleep 0.1 || true; done
  code=0
  wait "$child" || code=$?
  child=0
  case "$code" in
    0 | 2) exit "$code" ;;
    75) ;;
    *) crashes=$((crashes + 1)) ;;
  esac
  [ "$ending" = 0 ] || exit "$code"
  if [ "$crashes" -gt "$CRASHES" ]; then
    echo "error: exit code $code, crash number $crashes: giving up" >&2
    exit "$code"
  fi
  echo "exit code $code: again in $PAUSE s" >&2
  sleep "$PAUSE" || true
  [ "$ending" = 0 ] || exit "$code"
done
