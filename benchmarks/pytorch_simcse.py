"""A plain PyTorch SimCSE loop: the yardstick that the JAX runs are compared with.

    python -m benchmarks.pytorch_simcse --model FOLDER --train snli.csv --mode sup --num-layers 3 --pooler avg \
        --mlp none --learning-rate 5e-5 --max-steps 91 --dev sts-dev.csv --output result.json
"""

import argparse
import csv
import json
import platform
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import scipy
import torch
import torch.nn.functional as F
import transformers
from scipy.stats import spearmanr
from torch import Tensor, nn
from transformers import AutoTokenizer, BertModel, PreTrainedTokenizerBase

EVAL_BATCH_SIZE = 64
EVAL_MAX_LENGTH = 256


class Encoder(nn.Module):
    """BERT, a pooler and, in training only, an optional head."""

    def __init__(self, folder: str, num_layers: int | None, pooler: str, mlp: str, dropout: float) -> None:
        super().__init__()
        layers = {} if num_layers is None else {"num_hidden_layers": num_layers}
        self.bert = BertModel.from_pretrained(
            folder,
            add_pooling_layer=False,
            attn_implementation="sdpa",
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            **layers,
        ).float()
        self.pooler = pooler
        self.head: nn.Sequential | None = None
        if mlp == "train":
            width = self.bert.config.hidden_size
            linear = nn.Linear(width, width)
            nn.init.normal_(linear.weight, std=0.02)
            nn.init.zeros_(linear.bias)
            self.head = nn.Sequential(linear, nn.Tanh())

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Encode a padded batch: one vector a sentence."""
        hidden = self.bert(**batch).last_hidden_state
        if self.pooler == "cls":
            pooled = hidden[:, 0]
        else:
            mask = batch["attention_mask"].unsqueeze(-1).to(hidden.dtype)
            pooled = (hidden * mask).sum(1) / mask.sum(1)
        return self.head(pooled) if self.training and self.head is not None else pooled


def simcse_loss(views: Tensor, temperature: float) -> Tensor:
    """Cross entropy over cosine / temperature (SimCSE, equations 4 and 5).

    ``views`` is (2 or 3, batch, width): anchors, positives and, where given, hard negatives. Each anchor should pick
    its own positive among all the positives and hard negatives of the batch.
    """
    views = F.normalize(views, dim=-1)
    anchors, candidates = views[0], views[1:].flatten(0, 1)
    logits = anchors @ candidates.T / temperature
    return F.cross_entropy(logits, torch.arange(len(anchors), device=logits.device))


def read_training_set(path: Path, mode: str) -> list[tuple[str, ...]]:
    """Read the sentences of each example: triplets (sup), or a sentence as its own positive (unsup)."""
    with path.open(encoding="utf-8", newline="" if path.suffix == ".csv" else None) as file:
        if mode == "sup":
            return [(row["sent0"], row["sent1"], row["hard_neg"]) for row in csv.DictReader(file)]
        return [(line.strip(),) * 2 for line in file if line.strip()]


def read_sts(path: Path) -> tuple[list[str], list[str], list[float]]:
    """Read an STS Benchmark file: first sentences, second sentences, scores."""
    with path.open(encoding="utf-8", newline="\n") as file:
        rows = [line.rstrip("\r\n").split("\t") for line in file]
    return [row[5] for row in rows], [row[6] for row in rows], [float(row[4]) for row in rows]


def tokenize(tokenizer: PreTrainedTokenizerBase, sentences: list[str], max_length: int) -> list[list[int]]:
    """Turn sentences into token ids, unpadded."""
    return tokenizer(sentences, padding=False, truncation=True, max_length=max_length)["input_ids"]


def pad(ids: list[list[int]], longest: int = 0) -> dict[str, Tensor]:
    """Pad token ids to the longest of the batch, or to ``longest``; BERT's padding id is 0."""
    rows = [torch.tensor(row) for row in ids]
    masks = [torch.ones_like(row) for row in rows]
    padded = {
        "input_ids": nn.utils.rnn.pad_sequence(rows, batch_first=True),
        "attention_mask": nn.utils.rnn.pad_sequence(masks, batch_first=True),
    }
    if not longest:
        return padded
    return {name: F.pad(values, (0, longest - values.shape[1])) for name, values in padded.items()}


def batches(size: int, batch_size: int, seed: int) -> Iterator[list[int]]:
    """Yield the indices of batches forever, shuffled again each epoch, without the last partial batch."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(size, generator=generator).tolist()
        for start in range(0, size - batch_size + 1, batch_size):
            yield order[start : start + batch_size]


@torch.no_grad()
def evaluate(model: Encoder, ids: list[list[int]], pairs: Tensor, scores: list[float]) -> float:
    """Give Spearman x 100 between cosine and score; ``pairs`` (2, n) points into the distinct sentences ``ids``."""
    model.eval()
    order = sorted(range(len(ids)), key=lambda index: len(ids[index]))
    encoded = [
        model(pad([ids[index] for index in order[start : start + EVAL_BATCH_SIZE]]))
        for start in range(0, len(order), EVAL_BATCH_SIZE)
    ]
    model.train()
    vectors = torch.empty(len(ids), encoded[0].shape[-1])
    vectors[order] = torch.cat(encoded)
    cosine = F.cosine_similarity(vectors[pairs[0]], vectors[pairs[1]])
    return 100 * float(spearmanr(cosine.numpy(), scores).statistic)


def train(args: argparse.Namespace) -> dict[str, object]:
    """Train, evaluate during training, and return the contents of the result file."""
    torch.manual_seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = Encoder(args.model, args.num_layers, args.pooler, args.mlp, args.dropout)

    examples = read_training_set(args.train, args.mode)
    views = [tokenize(tokenizer, list(view), args.max_length) for view in zip(*examples, strict=True)]
    first, second, scores = read_sts(args.dev)
    index = {sentence: number for number, sentence in enumerate(dict.fromkeys(first + second))}
    dev_ids = tokenize(tokenizer, list(index), EVAL_MAX_LENGTH)
    dev_pairs = torch.tensor([[index[sentence] for sentence in side] for side in (first, second)])

    optimizer = torch.optim.AdamW(
        model.parameters(), lr=args.learning_rate, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / args.max_steps)

    losses: list[float] = []
    seconds: list[float] = []
    curve = [(0, evaluate(model, dev_ids, dev_pairs, scores))]
    print(f"step 0: STS-B dev {curve[-1][1]:.2f}", flush=True)
    stream = batches(len(examples), args.batch_size, args.seed)
    for step in range(1, args.max_steps + 1):
        start = time.perf_counter()
        batch = next(stream)
        # All the views in one forward; dropout makes the two copies of an unsupervised batch differ.
        vectors = model(pad([view[number] for view in views for number in batch]))
        loss = simcse_loss(vectors.unflatten(0, (len(views), len(batch))), args.temperature)
        optimizer.zero_grad()
        loss.backward()
        if args.clip > 0:
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
        if step % args.eval_every == 0 or step == args.max_steps:
            curve.append((step, evaluate(model, dev_ids, dev_pairs, scores)))
            print(f"step {step}: loss {losses[-1]:.4f}, STS-B dev {curve[-1][1]:.2f}", flush=True)
    return {
        "arguments": {name: str(value) if isinstance(value, Path) else value for name, value in vars(args).items()},
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "scipy": scipy.__version__,
        },
        "train_examples": len(examples),
        "losses": losses,
        "curve": curve,
        "seconds_per_step": statistics.median(seconds),
    }


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train SimCSE in plain PyTorch and record its STS-B dev curve.")
    parser.add_argument("--model", required=True, help="folder of a BERT in Hugging Face format")
    parser.add_argument("--train", type=Path, required=True, help="sup: triplets .csv; unsup: sentences .txt")
    parser.add_argument("--mode", choices=("sup", "unsup"), required=True)
    parser.add_argument("--num-layers", type=int, help="keep the first N layers (default: all)")
    parser.add_argument("--pooler", choices=("avg", "cls"), default="cls")
    parser.add_argument("--mlp", choices=("none", "train"), default="train", help="train: a head in training only")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--max-steps", type=int, required=True)
    parser.add_argument("--max-length", type=int, default=32, help="tokens a training sentence, specials included")
    parser.add_argument("--temperature", type=float, default=0.05)
    parser.add_argument("--clip", type=float, default=1.0, help="largest gradient norm (0: no clipping)")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--eval-every", type=int, default=10, help="steps between evaluations")
    parser.add_argument("--dev", type=Path, required=True, help="STS Benchmark's sts-dev.csv")
    parser.add_argument("--output", type=Path, required=True, help="JSON file to write")
    return parser.parse_args()


def main() -> None:
    """Train and write the result file."""
    args = parse_args()
    torch.set_num_threads(args.threads)
    args.output.write_text(json.dumps(train(args), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
