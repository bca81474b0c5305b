#!/usr/bin/env bash
# Trains on Kubernetes, on one host or many, as a JobSet (jobset.sigs.k8s.io, 0.6 or newer): launch/jobset.yaml.
#
#   IMAGE=… launch/kubernetes.sh [--dry-run] --config configs/unsup_bert.py --workdir gs://… [--config.FIELD=VALUE …]
#
#   kubectl logs --follow --selector=jobset.sigs.k8s.io/jobset-name=simcse,batch.kubernetes.io/job-completion-index=0
#   kubectl delete jobset simcse     ends the run; needed before the same command again, which resumes
#
# IMAGE comes from launch/Dockerfile. The workdir must outlive a pod: gs://BUCKET/PATH, or below /data on a VOLUME.
set -euo pipefail

IMAGE="${IMAGE:-}"                       # with the clone as its working directory, and its requirements
NAME="${NAME:-simcse}"                   # of the JobSet
NAMESPACE="${NAMESPACE:-default}"
HOSTS="${HOSTS:-1}"                      # pods, one for each host
RESOURCE="${RESOURCE:-nvidia.com/gpu}"   # or google.com/tpu
CHIPS="${CHIPS:-8}"                      # of RESOURCE on each host: all of them
NODE_SELECTOR="${NODE_SELECTOR:-}"       # as {cloud.google.com/gke-tpu-accelerator: tpu-v5-lite-podslice, …}
VOLUME="${VOLUME:-}"                     # mounted at /data, as persistentVolumeClaim: {claimName: shared}
RESTARTS="${RESTARTS:-20}"               # after pre-emptions and crashes, together
GRACE="${GRACE:-300}"                    # seconds to save a checkpoint after SIGTERM
PORT="${PORT:-8476}"                     # of process 0
DRY_RUN="${DRY_RUN:-0}"                  # 1: print the command and run nothing; as --dry-run

die() { echo "error: $*" >&2 && exit 2; }

if [ "${1:-}" = --dry-run ]; then DRY_RUN=1 && shift; fi
[ -n "$IMAGE" ] || die "IMAGE is not set (see launch/Dockerfile)"
for number in HOSTS CHIPS RESTARTS GRACE PORT; do
  [[ "${!number}" =~ ^[0-9]+$ ]] || die "$number is '${!number}', not a number"
done
[ $# -gt 0 ] || die "no arguments for simcse_jax.main (see the top of launch/kubernetes.sh)"
[[ " $*" == *" --workdir"[\ =]gs://* ]] || [[ -n "$VOLUME" && " $*" == *" --workdir"[\ =]/data/* ]] ||
  die "the workdir must outlive a pod: --workdir gs://BUCKET/PATH, or VOLUME and --workdir /data/PATH"
[ -n "$VOLUME" ] || VOLUME="emptyDir: {}"
[ -n "$NODE_SELECTOR" ] || NODE_SELECTOR="{}"

# A list of JSON strings. Kubernetes expands $(NAME) in them, and takes $$ for $.
ARGUMENTS=""
for word; do
  word=${word//\\/\\\\} word=${word//\"/\\\"} word=${word//$'\n'/\\n} word=${word//$'\t'/\\t}
  [[ "$word" != *[[:cntrl:]]* ]] || die "an argument has a control character: $word"
  ARGUMENTS+="\"${word//\$/\$\$}\", "
done
ARGUMENTS="[$ARGUMENTS\"--config.parallel.processes=$HOSTS\""
ARGUMENTS+=", \"--config.parallel.process_id=\$(JOB_COMPLETION_INDEX)\""
ARGUMENTS+=", \"--config.parallel.coordinator=$NAME-train-0-0.$NAME:$PORT\"]"

shopt -u patsub_replacement 2>/dev/null || true # newer versions of bash would replace & in a setting
manifest="$(<"$(dirname "$0")/jobset.yaml")"
for name in NAME IMAGE HOSTS RESOURCE CHIPS NODE_SELECTOR VOLUME RESTARTS GRACE PORT ARGUMENTS; do
  field="\${$name}"
  manifest="${manifest//"$field"/${!name}}"
done

# create, not apply: the command of a JobSet cannot be changed, and apply is silent if it exists already.
command=(kubectl create --namespace="$NAMESPACE" --filename=-)
if [ "$DRY_RUN" = 1 ]; then
  printf '%q ' "${command[@]}" && printf "<<'END'\n%s\nEND\n" "$manifest"
else
  "${command[@]}" <<<"$manifest"
fi
