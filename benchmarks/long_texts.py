"""Long texts: seconds and peak memory of one text, encoded and in a training step, beside PyTorch with its SDPA.

    python -m benchmarks.long_texts [--model bert modernbert] [--tokens 128 512 2048 8192] [--dtype float32 bfloat16]
        [--what encode train] [--attention-dropout 0.1] [--kernels] [--peers pytorch] [--rounds 3] [--output FILE]

Models of the base size with random weights, BERT with a table of as many positions. A training step is unsupervised
SimCSE with a batch of one text: two passes with dropout 0.1, of attention's probabilities as well unless another rate
is given, its loss, and AdamW. Without attention's dropout, PyTorch's SDPA is a kernel that keeps no scores.
`--kernels` measures ours a second time, with `model.attention_kernels`: attention by kernels of a GPU, where
nothing of it is dropped. Each measurement is a process of its own; peak memory is all that the process ever held, its
libraries among it, or on a GPU or TPU what the device held.
"""

import argparse
import dataclasses
from typing import Any

import numpy as np

from benchmarks import side_by_side
from benchmarks.contender import Done, Round
from benchmarks.options import Parser
from benchmarks.side_by_side import Child, Contender, FailedError
from simcse_jax.commands.command_line import run_command
from simcse_jax.host.outputs import output_file

MODELS = {"bert": "bert-base-uncased", "modernbert": "answerdotai/ModernBERT-base"}
WHAT = ("encode", "train")


def ours(model: str, tokens: int, dtype: str, training: bool, attention_dropout: float, kernels: bool = False) -> Round:
    """The compiled step, or the compiled encoding of a text."""
    import jax

    from simcse_jax.config.fields import default_config
    from simcse_jax.huggingface.published import encoder_config
    from simcse_jax.runs.state import model_spec
    from simcse_jax.training.costs.compile import trace_encoding, trace_step
    from simcse_jax.training.setup import abstract_step

    encoder = encoder_config(MODELS[model])
    encoder = dataclasses.replace(encoder, max_positions=max(encoder.max_positions, tokens))
    config = default_config()
    config.model.update({"pooler": "avg", "mlp": "none", "dropout": 0.1, "attention_dropout": attention_dropout})
    config.model.attention_kernels = kernels
    config.train.update({"batch_size": 1, "dtype": dtype})
    config.data.max_length = tokens
    devices = jax.devices()[:1]
    if training:
        traced = trace_step(abstract_step(config, encoder, 1), devices)
    else:
        traced = trace_encoding(model_spec(config), encoder, (1, tokens), dtype, devices)
    compiled = traced.lower().compile()
    generator = np.random.default_rng(0)

    def array(each: Any) -> jax.Array:
        """Small numbers as weights, ones as tokens, their masks and all numbers of the step."""
        if each.shape and np.issubdtype(each.dtype, np.floating):
            return jax.numpy.asarray(0.02 * generator.standard_normal(each.shape, np.float32), each.dtype)
        return jax.numpy.ones(each.shape, each.dtype)

    arguments, _ = jax.tree.map(array, traced.args_info)
    state = list(arguments)

    def do_round() -> Done:
        results = compiled(*state)
        jax.block_until_ready(results)
        if training:
            state[0] = results[0]  # the old one was given away
        return Done(1)

    do_round()
    return do_round


def pytorch(model: str, tokens: int, dtype: str, training: bool, attention_dropout: float) -> Round:
    """transformers' model with PyTorch's scaled_dot_product_attention."""
    import torch
    import torch.nn.functional as F
    from transformers import BertConfig, BertModel, ModernBertConfig, ModernBertModel

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if model == "bert":
        network = BertModel(
            BertConfig(
                max_position_embeddings=max(512, tokens),
                attention_probs_dropout_prob=attention_dropout,
                attn_implementation="sdpa",
            ),
            add_pooling_layer=False,
        )
    else:
        rates = {"embedding_dropout": 0.1, "mlp_dropout": 0.1, "attention_dropout": attention_dropout}
        network = ModernBertModel(ModernBertConfig(attn_implementation="sdpa", **rates))
    network.to(device).train(training)
    ids = torch.ones((1, tokens), dtype=torch.long, device=device)
    mask = torch.ones_like(ids)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-5)

    def encode() -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16, enabled=dtype == "bfloat16"):
            hidden = network(input_ids=ids, attention_mask=mask).last_hidden_state
        return F.normalize(hidden.float().mean(1), dim=-1)

    def do_round() -> Done:
        if training:
            optimizer.zero_grad()
            logits = encode() @ encode().T / 0.05
            F.cross_entropy(logits, torch.zeros(1, dtype=torch.long, device=device)).backward()
            optimizer.step()
        else:
            with torch.inference_mode():
                encode()
        if device == "cuda":
            torch.cuda.synchronize()
        return Done(1)

    do_round()
    return do_round


def parse() -> argparse.Namespace:
    """The command line."""
    parser = Parser(prog="benchmarks.long_texts", description=__doc__.splitlines()[0])
    parser.add_argument("--model", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--tokens", nargs="+", type=int, least=1, default=[128, 512, 2048, 8192])
    parser.add_argument("--dtype", nargs="+", choices=("float32", "bfloat16"), default=["float32"])
    parser.add_argument("--what", nargs="+", choices=WHAT, default=list(WHAT))
    parser.add_argument("--attention-dropout", type=float, default=0.1)
    parser.add_argument("--kernels", action="store_true", help="ours also with model.attention_kernels")
    parser.add_argument("--peers", nargs="*", choices=("pytorch",), default=["pytorch"])
    parser.add_argument("--rounds", type=int, least=1, default=3)
    parser.add_argument("--output", type=output_file, help="the figures as JSON")
    return parser.parse_args()


def measure(contender: Contender, rounds: int) -> dict[str, Any]:
    """The least seconds of the rounds and the peak memory, or why there are none."""
    try:
        with Child(contender) as child:
            child.wait()
            results = [child.round() for _ in range(rounds)]
    except FailedError as error:
        return {"failed": str(error)}
    mib = results[-1]["device_memory_mib"] or results[-1]["memory_mib"]
    return {"seconds": min(each["seconds"] for each in results), "gib": mib / 1024}


def main() -> None:
    """Prints each row as it is measured."""
    args = parse()
    factories = {"ours": ("ours", {})}
    if args.kernels:
        factories["ours, kernels"] = ("ours", {"kernels": True})
    factories |= {name: (name, {}) for name in args.peers}
    print(side_by_side.heading(), flush=True)
    print("| model | tokens | type | | " + " | ".join(f"{name}, s | GiB" for name in factories) + " |")
    print("|" + " --- |" * (4 + 2 * len(factories)), flush=True)
    rows = []
    for model in args.model:
        for dtype in args.dtype:
            for what in args.what:
                for tokens in args.tokens:
                    options = {"model": model, "tokens": tokens, "dtype": dtype, "training": what == "train"}
                    options["attention_dropout"] = args.attention_dropout
                    found = {
                        name: measure(Contender(name, f"benchmarks.long_texts:{factory}", options | more), args.rounds)
                        for name, (factory, more) in factories.items()
                    }
                    rows.append(options | found)
                    cells = [
                        each.get("failed") or f"{each['seconds']:.3g} | {each['gib']:.2f}" for each in found.values()
                    ]
                    print(f"| {model} | {tokens:,} | {dtype} | {what} | " + " | ".join(cells) + " |", flush=True)
    side_by_side.report("long_texts", rows, args.output)


if __name__ == "__main__":
    run_command(main)
