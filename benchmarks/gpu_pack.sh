#!/usr/bin/env bash
# Packs what benchmarks/gpu.sh needs on a machine that reaches no registry, at most 45 MB; run it from the commit to be measured.
# Sentences, a model in bfloat16 (START: a workdir of configs/language_model.py), STS data, a CPU's record for the stage
# "right", and wheels of what that machine's Python 3.12 lacks.
set -euo pipefail
if [ $# -ne 4 ]; then
  echo "usage: benchmarks/gpu_pack.sh SENTENCES.txt SENTEVAL START FOLDER" >&2
  exit 2
fi
sentences=$1 senteval=$2 start=$3 folder=$4
[ -r "$sentences" ] || { echo "error: $sentences: cannot be read" >&2; exit 2; }
[ -d "$senteval/STS" ] && [ -d "$senteval/SICK" ] || { echo "error: $senteval: must have the folders STS and SICK" >&2; exit 2; }
mkdir -p "$folder/wheels"
export JAX_PLATFORMS=cpu
read -r -a wheels <<< "${WHEELS-ml-collections tensorboardX}" # pure Python; the rest is assumed to be there
python -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.12 \
  -d "$folder/wheels" "${wheels[@]}"
cp "$sentences" "$folder/sentences.txt"
tar -C "$senteval" -cJf "$folder/senteval.tar.xz" STS SICK
git describe --always --abbrev=10 --exclude='*' --dirty=+ > "$folder/commit"

if [ ! -e "$folder/start.tar.xz" ]; then
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  python -m simcse_jax export --workdir "$start" --output "$scratch/start"
  python - "$scratch/start/model.safetensors" << 'END'
import sys
import torch
from safetensors.torch import load_file, save_file
weights = {name: each.to(torch.bfloat16) for name, each in load_file(sys.argv[1]).items()}
save_file(weights, sys.argv[1], metadata={"format": "pt"})
END
  tar -C "$scratch" -cJf "$folder/start.tar.xz" start
fi
rm -rf "$folder/record" "$folder/start"
tar -C "$folder" -xJf "$folder/start.tar.xz"
python -m benchmarks.right "$folder/record" --data "$folder/sentences.txt" --model "$folder/start"
find "$folder/record" -type f ! -name metrics.jsonl ! -name embeddings.npy -delete
rm -rf "$folder/start"
du -sm "$folder"
