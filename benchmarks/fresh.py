"""The process that `benchmarks.startup` starts: it does one thing. `python -m benchmarks.fresh WHAT MODEL DATA`.

`first embedding` of ours and of sentence-transformers, `first step` of the PyTorch loop (eager, batch 64 of at most 32
tokens): each prints DONE when it has that. Imports are inside the functions, since their time is measured too.
"""

import sys

DONE = "the first one is there"
SENTENCE = "A man is playing a guitar on the street."


def our_embedding(model: str, _: str) -> None:
    """As README.md has it."""
    from simcse_jax import SimCSE

    SimCSE(model).encode(SENTENCE)


def their_embedding(model: str, _: str) -> None:
    """As sentence-transformers' documentation has it."""
    from sentence_transformers import SentenceTransformer

    SentenceTransformer(model).encode(SENTENCE)


def pytorch_step(model: str, data: str) -> None:
    """Of the reference-like loop, eager, in float32."""
    from benchmarks.training import pytorch

    pytorch(model=model, data=data, warmup=1)


WHAT = {"our_embedding": our_embedding, "their_embedding": their_embedding, "pytorch_step": pytorch_step}

if __name__ == "__main__":
    WHAT[sys.argv[1]](*sys.argv[2:])
    print(DONE, flush=True)
