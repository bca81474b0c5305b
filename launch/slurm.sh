#!/usr/bin/env bash
# Trains under Slurm on all GPUs of one node or many. Submit it from the clone:
#
#   sbatch [--nodes=4 …] launch/slurm.sh --config configs/unsup_bert.py --workdir runs/unsup [--config.FIELD=VALUE …]
#   launch/slurm.sh --dry-run ARGUMENTS         prints the commands of the job
#
# The clone, the workdir and the data are on a disk that all nodes share. Before the time limit, and when Slurm pre-empts
# the job, the processes get SIGTERM, save a checkpoint and end with 75; then the job goes back to the queue. After a
# crash the job starts the run again, a limited number of times; 2 (a mistake in the command) ends the job.
#
# Options of sbatch override the lines below. There is one task per GPU, because JAX gives each task the GPU with its
# number on the node. So each task must see all GPUs of its node: --gpus-per-node, not --gpus-per-task.
#SBATCH --job-name=simcse
#SBATCH --nodes=1
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@180
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
set -euo pipefail

PYTHON="${PYTHON:-python}"   # the interpreter that has JAX for GPUs, on all nodes
CRASHES="${CRASHES:-3}"      # at most this many restarts after crashes, in the same job
WAIT="${WAIT:-120}"          # seconds from the end of the first task until Slurm ends the others
PAUSE="${PAUSE:-10}"         # seconds before another start
DRY_RUN="${DRY_RUN:-0}"      # 1: print the commands and run nothing; as --dry-run

die() { echo "error: $*" >&2 && exit 2; }

if [ "${1:-}" = --dry-run ]; then DRY_RUN=1 && shift; fi
[ $# -gt 0 ] || die "no arguments for simcse_jax.main (see the top of launch/slurm.sh)"
[ "$DRY_RUN" = 1 ] || [ -n "${SLURM_JOB_ID:-}" ] || die "this is not a Slurm job; use sbatch launch/slurm.sh ARGUMENTS"
gpus="${SLURM_GPUS_PER_NODE:-0}" tasks="${SLURM_NTASKS_PER_NODE:-}"
gpus="${gpus##*:}"   # it may be h100:8
[ "$gpus" = 0 ] || [ "$gpus" = "$tasks" ] || die "--ntasks-per-node=$tasks must be the $gpus of --gpus-per-node"

export PYTHONUNBUFFERED=1
# Slurm 22.05 and later do not pass the job's --cpus-per-task on. Without --kill-on-bad-exit, which would kill tasks that
# are still saving when the first one ends with 75.
step=(srun --kill-on-bad-exit=0 --wait="$WAIT" ${SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"}
  "$PYTHON" -m simcse_jax.main "$@" --config.parallel.processes=0)

requeue=(scontrol requeue "${SLURM_JOB_ID:-JOB}")
if [ "$DRY_RUN" = 1 ]; then
  printf '%q ' "${step[@]}" && echo
  printf '%q ' "${requeue[@]}" && echo "# after exit code 75" && exit
fi

crashes=0
while true; do
  code=0
  "${step[@]}" || code=$?
  case "$code" in
    0 | 2) exit "$code" ;;
    75) "${requeue[@]}"; exit 75 ;;
  esac
  crashes=$((crashes + 1))
  if [ "$crashes" -gt "$CRASHES" ]; then
    echo "error: exit code $code, crash number $crashes: giving up" >&2
    exit "$code"
  fi
  echo "exit code $code: again in $PAUSE s" >&2
  sleep "$PAUSE"
done
