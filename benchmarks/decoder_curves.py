"""Decoders from random weights, trained by us and by a PyTorch loop: the losses of the same batches, step by step.

    python -m benchmarks.decoder_curves PAIRS.csv [--steps 100] [--kind qwen3 gemma3_text] [--output FILE]

PAIRS.csv has two columns. A model has 4 layers of 256 and a tokenizer that was trained on the pairs: a Qwen3 with the
last token's embedding, and an EmbeddingGemma (both ways, windows, averaged tokens). InfoNCE at τ = 0.05, batches of 64,
AdamW at 5e-4, clipping at 1, a linear decay, float32. Nothing is drawn, so the losses differ by rounding alone, which
grows from step to step.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import side_by_side
from benchmarks.options import Parser
from simcse_jax.commands.command_line import run_command
from simcse_jax.host.outputs import output_file

SIZE: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "intermediate_size": 768,
    "max_position_embeddings": 512,
}
KINDS: dict[str, dict[str, Any]] = {
    "qwen3": {},
    "gemma3_text": {
        "query_pre_attn_scalar": 64,
        "sliding_window": 8,
        "use_bidirectional_attention": True,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
}
POOLERS = {"qwen3": "last", "gemma3_text": "avg"}
WORDS, PAD, BEGIN, END = 4000, "<pad>", "<begin>", "<end>"
BATCH, RATE, TEMPERATURE = 64, 5e-4, 0.05


def parse() -> argparse.Namespace:
    """The command line."""
    parser = Parser(prog="benchmarks.decoder_curves", description=__doc__.splitlines()[0])
    parser.add_argument("pairs")
    parser.add_argument("--steps", type=int, least=1, default=100)
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--output", type=output_file, help="the losses as JSON")
    return parser.parse_args()


def main() -> None:
    """Prints a table for each kind."""
    args, found = parse(), []
    for kind in args.kind:
        with tempfile.TemporaryDirectory() as folder:
            write(kind, Path(folder), args.pairs)
            losses, batches = ours(kind, folder, args.pairs, args.steps)
            found.append({"title": kind, "simcse_jax": losses, "pytorch": theirs(kind, folder, batches)})
        curves = np.array([found[-1]["simcse_jax"], found[-1]["pytorch"]])
        print(f"\n{kind}: the losses differ by at most {np.abs(curves[0] - curves[1]).max():.5f}\n")
        print("| step | ours | PyTorch |\n| --- | --- | --- |")
        for step in sorted({1, *range(10, args.steps + 1, 10), args.steps}):
            print(f"| {step} | {curves[0, step - 1]:.4f} | {curves[1, step - 1]:.4f} |", flush=True)
    side_by_side.report("decoder_curves", found, args.output)


def write(kind: str, folder: Path, pairs: str) -> None:
    """Writes a model of a kind as transformers does, and its tokenizer."""
    import torch
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import AutoConfig, AutoModel

    from simcse_jax.data.examples import read_examples

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    texts = [text for column in read_examples(pairs).columns for text in column]
    added = [AddedToken(token, normalized=False) for token in (PAD, BEGIN, END)]  # PyTorch trains no row of padding
    trainer = trainers.BpeTrainer(vocab_size=WORDS, initial_alphabet=alphabet, special_tokens=added)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A {END}", special_tokens=[(BEGIN, 1), (END, 2)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": PAD, "bos_token": BEGIN, "eos_token": END}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"padding_side": "right"}))
    torch.manual_seed(0)
    own = {"vocab_size": tokenizer.get_vocab_size(), "pad_token_id": 0, **SIZE, **KINDS[kind]}
    AutoModel.from_config(AutoConfig.for_model(kind, **own)).save_pretrained(folder)


def ours(kind: str, folder: str, pairs: str, steps: int) -> tuple[list[float], list[tuple[np.ndarray, np.ndarray]]]:
    """The loss of each step, and its token ids and mask, (64, 2, T)."""
    from simcse_jax.config import default_config
    from simcse_jax.training.programs import Updates
    from simcse_jax.training.run import read_inputs
    from simcse_jax.training.setup import make_setup

    config = default_config()
    config.model.update({"init_from": folder, "pooler": POOLERS[kind], "mlp": "none", "dropout": 0.0})
    config.data.update({"train": pairs, "max_length": 32, "equal_texts": "negatives"})
    config.objective.info_nce.temperature = TEMPERATURE
    config.train.update({"batch_size": BATCH, "learning_rate": RATE, "max_steps": steps})
    config.parallel.devices, config.eval.data = 1, ""
    setup = make_setup(config, read_inputs(config))
    batches, settings, state = setup.batches(), setup.settings(), setup.state()
    updates, losses, read = Updates(setup, batches), [], []
    for step in range(steps):
        batch = setup.read(batches, step)
        updates.compile(step, state, batch, settings)
        state, values = updates(step, state, batch, settings)
        losses.append(float(values["loss"]))
        read.append((np.asarray(batch["input_ids"]), np.asarray(batch["attention_mask"])))
    return losses, read


def theirs(kind: str, folder: str, batches: list[tuple[np.ndarray, np.ndarray]]) -> list[float]:
    """The loss of each step of a PyTorch loop on the same batches."""
    import torch
    from transformers import AutoModel

    from benchmarks.pytorch_simcse import simcse_loss

    model = AutoModel.from_pretrained(folder).float().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / len(batches))
    losses = []
    for ids, mask in batches:
        ids, shown = (torch.tensor(x).long().transpose(0, 1).flatten(0, 1) for x in (ids, mask))
        hidden = model(input_ids=ids, attention_mask=shown).last_hidden_state
        if POOLERS[kind] == "last":
            pooled = hidden[torch.arange(len(ids)), shown.sum(1) - 1]
        else:
            pooled = (hidden * shown[..., None]).sum(1) / shown.sum(1, keepdim=True)
        loss = simcse_loss(pooled.unflatten(0, (2, -1)), TEMPERATURE)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    run_command(main)
