"""Encodes sentences with a backend of sentence-transformers, in its own environment, where our package is not.

    python encode.py FOLDER BACKEND SENTENCES.json OUTPUT.npy

The model is exported as it is opened, saved, and opened again: as on a machine that has no PyTorch weights.
"""

import json
import sys
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer

folder, backend, sentences, output = sys.argv[1:]
given = json.loads(Path(sentences).read_text(encoding="utf-8"))
# OpenVINO computes in bfloat16 where the processor can, unless it is told not to.
options = {"ov_config": {"INFERENCE_PRECISION_HINT": "f32"}} if backend == "openvino" else {}
exported = SentenceTransformer(folder, backend=backend, model_kwargs=dict(options))
saved = f"{output}.model"
exported.save_pretrained(saved)
for weights in Path(saved).glob("*.safetensors"):
    weights.unlink()
again = SentenceTransformer(saved, backend=backend, model_kwargs=dict(options))
found = [model.encode(given) for model in (exported, again)]
np.testing.assert_array_equal(*found)
np.save(output, found[0])
print(type(again[0].auto_model).__name__)
