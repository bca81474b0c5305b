"""The checkpoints that a run kept (`checkpoint.keep_every`), as encoders of sentences and tokens."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from ml_collections import config_dict

from simcse_jax.encoding.embedder import Embedder
from simcse_jax.errors import UserError
from simcse_jax.host.storage import Folder, sha256
from simcse_jax.huggingface.load import choose_pooler
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.models import parameters, partial
from simcse_jax.models.head import has_head
from simcse_jax.models.parameters import Params
from simcse_jax.models.sentence_encoder import build
from simcse_jax.objectives.registry import comes_from_outside
from simcse_jax.runs.loading import checkpoints_of, load_model, load_workdir
from simcse_jax.runs.partial import own_adapter, read_frozen
from simcse_jax.runs.state import initial_params, split_shapes, with_parts
from simcse_jax.runs.workdir import Workdir


class Kept(NamedTuple):
    """A run's model at a step."""

    step: int
    embed: Embedder  # with the run's pooler and, if it belongs to the model, its head


def steps_of(folder: Folder) -> list[int]:
    """The steps whose checkpoints a run has kept.

    Raises:
      UserError: when it is not a run's folder, or there are fewer than two.
    """
    Workdir(folder).check_exists(f"--runs {folder}")
    saved = folder / "checkpoints"
    steps = sorted(int(path.name) for path in saved.iterdir() if path.name.isdigit()) if saved.is_dir() else []
    if len(steps) < 2:
        what = "one checkpoint was" if steps else "no checkpoints were"
        raise UserError(
            f"--runs {folder}: {what} kept; train it with --config.checkpoint.keep_every=10, say, "
            "or leave out --data to draw what it recorded"
        )
    return steps


def checkpoint_encoders(folder: Folder, batch_size: int = 64) -> Iterator[Kept]:
    """The run's model at its start (step 0), if that can still be loaded, and at every kept checkpoint.

    All use the same compiled encoders.

    Raises:
      UserError: when a checkpoint cannot be read.
    """
    model, run = load_workdir(folder), Workdir(folder).read_run()
    pooler, use_head = choose_pooler(model, None)
    graph, _ = build(model.config, with_head=has_head(model.params))
    tokenizer = Tokenizer(model.folder, model.config)
    embed = Embedder(graph, model.params, pooler, use_head, tokenizer, model.max_length, batch_size)

    def kept(step: int, params: Params) -> Kept:
        return Kept(step, embed.with_params({name: params[name] for name in model.params}))

    start = starting_params(folder, run)
    if start is not None:
        yield kept(0, start)
    shapes, of_frozen = split_shapes(model.config, run["config"])
    encoder, frozen = with_parts(model.config, run["config"]["model"]), read_frozen(model.folder, run, of_frozen)
    others = comes_from_outside(run["config"]["objective"])
    with checkpoints_of(folder) as checkpoints:
        for step in steps_of(folder):
            params = partial.merged(
                partial.whole(checkpoints.restore_params(step, shapes, others=others), frozen), encoder
            )
            yield kept(step, parameters.sentence_encoder(params, checkpoints.tower(step)))


def starting_params(folder: Folder, run: dict[str, Any]) -> Params | None:
    """The run's initial parameters, with the same fresh head; None with a message if those weights are not found."""
    # Only the first encoder and its head make embeddings.
    model_fields = {**run["config"]["model"], "dual_encoder": False}
    config = config_dict.ConfigDict({"seed": run["config"]["seed"], "model": model_fields, "objective": {}})
    name = config.model.init_from
    try:
        model = load_model(name, config.model.num_layers)
        adapter = own_adapter(config.model, model)
    except UserError as error:
        print(f"{folder}: step 0 is left out: {error}", flush=True)
        return None
    if sha256(*(np.asarray(model.params[part]) for part in sorted(model.params))) != run["sha256"]["model.init_from"]:
        print(f"{folder}: step 0 is left out: {name} has other weights than the run started from", flush=True)
        return None
    if adapter and sha256(*adapter.values()) != run["sha256"].get("model.lora.init_from"):
        print(f"{folder}: step 0 is left out: {config.model.lora.init_from} is another adapter by now", flush=True)
        return None
    return partial.merged(initial_params(config, model, adapter), with_parts(model.config, config.model))
