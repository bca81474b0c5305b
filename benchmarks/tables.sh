#!/usr/bin/env bash
# The papers' tables at a size that fits a laptop: 150 steps from a small language model; see docs/results/.
# Needs the MiniLM package, SentEval's folder (with STS and SNLI) and sentences, one a line. Run again after a stop, it resumes.
set -euo pipefail
if [ $# -lt 3 ]; then
  echo "usage: benchmarks/tables.sh SENTEVAL_FOLDER WIKI_SENTENCES.txt OUTPUT_FOLDER [TABLE …]" >&2
  exit 2
fi
senteval=$1 wiki=$2 output=$3
shift 3
tables=${*:-language_model simcse_table3 simcse_tableD1}
mkdir -p "$output"

scored=(--config.train.dtype=bfloat16 --config.eval.data="$senteval" --config.eval.tasks=STSBenchmark)
short=(--config.model.init_from="$output/language_model" --config.train.max_steps=150 --config.train.batch_size=64
  --config.train.log_every=50 --config.eval.every=50)
unsupervised=(--config.data.train="$wiki")
supervised=(--config.data.train="$output/snli_neutral.csv")

sweep() { # file (with argument), fields
  local file=$1
  shift
  python -m simcse_jax.sweep --config "configs/ablations/$file" --workdir "$output/${file//:/_}" \
    "${short[@]}" "${scored[@]}" "$@"
}

for table in $tables; do
  case $table in
    language_model)
      python -m simcse_jax.main --config configs/language_model.py --workdir "$output/language_model" \
        "${unsupervised[@]}" "${scored[@]}" --config.analysis.every=280
      python -m simcse_jax.build_data nli_neutral --source "$senteval/SNLI" --split dev test \
        --output "$output/snli_neutral.csv" ;;
    learning_rates) for setting in unsup sup; do
      [ $setting = unsup ] && data=("${unsupervised[@]}") || data=("${supervised[@]}")
      sweep simcse_grid:$setting "${data[@]}" --config.sweep.seeds=42 --config.sweep.baseline="batch 64 at 3e-05" \
        --config.sweep.only="batch 64 at 1e-05,batch 64 at 3e-05,batch 64 at 5e-05"
    done ;;
    simcse_table3) sweep simcse_table3 "${unsupervised[@]}" ;;
    simcse_tableD1) sweep simcse_tableD1 "${supervised[@]}" ;;
    *) echo "no table $table" >&2; exit 2 ;;
  esac
done
