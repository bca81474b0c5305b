"""Training steps as contenders (`benchmarks.contender`): ours, a PyTorch loop's, sentence-transformers', representax'.

All factories take the fields of `Setting`, the peers a folder as the model; PyTorch's import no JAX. A round does
`steps` steps and its work are the examples trained on. Reading batches is part of a step, compilation is not. All train
the same model on the same examples, each in an order of its own: [CLS] and a dense head with tanh (`pairs`: the average
of the tokens), dropout 0.1, cross entropy of cosines / 0.05, AdamW, clipping at 1.0, a learning rate that falls
linearly.
"""

import dataclasses
import importlib
import queue
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.contender import Done, Round
from simcse_jax.data.examples import read_examples

# The config of a recipe, and how many sentences of an example it encodes.
RECIPES = {
    "unsup": ("unsup_bert", 2),
    "sup": ("sup_bert", 3),
    "simcse_plus_plus": ("simcse_plus_plus", 3),
    "pairs": ("sup_bert", 2),
}
COLUMNS = {"sup": {}, "pairs": {"anchor": "sent0", "positive": "sent1"}}
TOTAL_STEPS = 20_000  # of the learning rate's decay: more than are ever done


@dataclasses.dataclass(frozen=True)
class Setting:
    """What is trained, and how.

    `recipe` is one of RECIPES or, for ours, any other of `configs/`; `fields`, for ours alone, others of its config by
    their dotted names. `chunk_size` examples are encoded at a time; `num_layers` are the first n; 0: all.
    """

    model: str
    data: str
    recipe: str = "unsup"
    dtype: str = "float32"
    batch_size: int = 64
    max_length: int = 32
    steps: int = 4
    warmup: int = 4
    num_layers: int = 0
    chunk_size: int = 0
    devices: int = 1
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)


def read_columns(data: str, recipe: str) -> tuple[list[str], ...]:
    """The sentences of each example, by column: one column, of `pairs` two, of `sup` two or three."""
    return read_examples(data, _columns(data, recipe)).columns


def _columns(data: str, recipe: str) -> dict[str, str]:
    return {} if Path(data).suffix == ".txt" else COLUMNS.get(recipe, {"anchor": "sent0"})


def ours(**options: Any) -> Round:
    """Our step, as `simcse_jax.training.run` builds it of a config."""
    import jax

    from simcse_jax.training.programs import Updates
    from simcse_jax.training.run import read_inputs
    from simcse_jax.training.setup import make_setup

    setting = Setting(**options)
    config = config_of(setting)
    setup, number = make_setup(config, read_inputs(config)), 0
    batches, settings, state = setup.batches(), setup.settings(), setup.state()
    updates = Updates(setup, batches)

    first = setup.read(batches, 0)
    for step in range(TOTAL_STEPS):  # all programs, before any step is timed
        updates.compile(step, state, first, settings)

    def run(steps: int) -> None:
        nonlocal state, number
        for _ in range(steps):
            state, _ = updates(number, state, setup.read(batches, number), settings)
            number += 1
        jax.block_until_ready(state)

    return _rounds(run, setting)


def config_of(setting: Setting) -> Any:
    """The config of our run."""
    name, _, variant = setting.recipe.partition(":")
    recipe = importlib.import_module(f"configs.{RECIPES[name][0] if name in RECIPES else name}")
    config = recipe.get_config(variant) if variant else recipe.get_config()
    config.model.init_from, config.model.num_layers = setting.model, setting.num_layers
    config.data.train, config.data.max_length = setting.data, setting.max_length
    config.data.columns.update(_columns(setting.data, setting.recipe))
    config.train.batch_size, config.train.dtype = setting.batch_size, setting.dtype
    config.train.max_steps = TOTAL_STEPS
    config.parallel.devices, config.parallel.chunk_size = setting.devices, setting.chunk_size
    config.eval.data = ""
    if setting.recipe == "pairs":
        config.model.pooler, config.model.mlp = "avg", "none"
    config.update_from_flattened_dict(setting.fields)
    return config


def pytorch(compiled: bool = False, **options: Any) -> Round:
    """The loop of `benchmarks.pytorch_simcse`: SDPA, a fused AdamW on a GPU; bfloat16 is autocast.

    Padded to a batch's longest sentence, or, compiled, to the longest of all: one shape, so that nothing is compiled
    again while it is timed.
    """
    import torch

    from benchmarks import pytorch_simcse as peer

    setting = Setting(**options)
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = peer.AutoTokenizer.from_pretrained(setting.model)
    model = peer.Encoder(setting.model, setting.num_layers or None, "cls", "train", 0.1).to(device)
    encode = torch.compile(model, dynamic=False) if compiled else model
    columns = read_columns(setting.data, setting.recipe)
    columns = columns * 2 if len(columns) == 1 else columns
    views = [peer.tokenize(tokenizer, column, setting.max_length) for column in columns]
    longest = max(len(ids) for view in views for ids in view) if compiled else 0
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5, weight_decay=0.0, fused=device == "cuda" or None)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / TOTAL_STEPS)
    stream = peer.batches(len(views[0]), setting.batch_size, 0)

    def run(steps: int) -> None:
        for _ in range(steps):
            batch = next(stream)
            padded = peer.pad([view[number] for view in views for number in batch], longest)
            with torch.autocast(device, torch.bfloat16, enabled=setting.dtype == "bfloat16"):
                vectors = encode({name: values.to(device) for name, values in padded.items()})
            loss = peer.simcse_loss(vectors.float().unflatten(0, (len(views), len(batch))), 0.05)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        if device == "cuda":
            torch.cuda.synchronize()

    return _rounds(run, setting)


def trainer(**options: Any) -> Round:
    """sentence-transformers' Trainer with MultipleNegativesRankingLoss; with chunks, the Cached one.

    It needs accelerate. It runs in a thread, which at the end of each step waits until it may do another one.
    """
    import torch
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from sentence_transformers import SentenceTransformerTrainingArguments as Arguments
    from sentence_transformers.sentence_transformer import losses
    from sentence_transformers.sentence_transformer.modules import Dense, Pooling, Transformer
    from transformers import TrainerCallback

    setting = Setting(**options)
    layers = {"num_hidden_layers": setting.num_layers} if setting.num_layers else {}
    encoder = Transformer(setting.model, max_seq_length=setting.max_length, config_kwargs=layers)
    size = encoder.get_embedding_dimension()
    on_cpu = not torch.cuda.is_available()
    modules = [encoder, Pooling(size, "cls"), Dense(size, size)]
    model = SentenceTransformer(modules=modules, device="cpu" if on_cpu else "cuda")
    columns = read_columns(setting.data, setting.recipe)
    columns = columns * 2 if len(columns) == 1 else columns
    names = ("anchor", "positive", "negative")
    chunk = {"mini_batch_size": setting.chunk_size} if setting.chunk_size else {}
    kind = losses.CachedMultipleNegativesRankingLoss if chunk else losses.MultipleNegativesRankingLoss
    allowed, ended = threading.Semaphore(0), queue.SimpleQueue()

    class Turns(TrainerCallback):
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            allowed.acquire()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            ended.put(None)
            allowed.acquire()  # before it reads the next batch, which is part of the next step

    arguments = Arguments(
        output_dir=tempfile.gettempdir(),  # which exists: nothing is saved
        max_steps=TOTAL_STEPS,
        per_device_train_batch_size=setting.batch_size,
        learning_rate=3e-5,
        max_grad_norm=1.0,
        bf16=setting.dtype == "bfloat16",
        use_cpu=on_cpu,
        dataloader_drop_last=True,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    steps = SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict(dict(zip(names, columns, strict=False))),
        loss=kind(model, scale=20.0, **chunk),
        callbacks=[Turns()],
    )

    def train() -> None:
        try:
            steps.train()
            ended.put(RuntimeError("the Trainer has ended by itself"))
        except Exception as error:
            ended.put(error)

    threading.Thread(target=train, daemon=True).start()

    def run(count: int) -> None:
        for _ in range(count):
            allowed.release()
        for _ in range(count):
            if (error := ended.get()) is not None:
                raise error
        if not on_cpu:
            torch.cuda.synchronize()

    return _rounds(run, setting)


def representax(**options: Any) -> Round:
    """A job of representax on `pairs`, in the environment that has it: multiple negatives ranking, its own defaults.

    It encodes the layers again in the backward pass, and tokenizes batches in threads. With chunks: its GradCache.
    """
    import jax
    from representax.train.job import build_job_runtime

    setting = Setting(**options)
    pairs = zip(*read_columns(setting.data, setting.recipe), strict=True)
    rows = [{"query": query, "positive": text} for query, text in pairs]
    runtime = build_job_runtime(_representax_job(setting), resolvers={"memory": lambda source: rows})
    state, batches, key, number = runtime.state, iter(runtime.batches), jax.random.key(0), 0

    def run(steps: int) -> None:
        nonlocal state, number
        for _ in range(steps):
            batch = runtime.place_batch(next(batches))
            state = runtime.step(state, batch, jax.random.fold_in(key, number)).state
            number += 1
        jax.block_until_ready(state)

    return _rounds(run, setting)


def _representax_job(setting: Setting) -> Any:
    from representax import JobConfig

    encoder = {"model_name_or_path": setting.model, "sequence_length_buckets": [setting.max_length]}
    falling = {"init_value": 5e-5, "end_value": 0.0, "transition_steps": TOTAL_STEPS}
    training: dict[str, Any] = {
        "global_batch_size": setting.batch_size,
        "batch": {"micro_batch_size": setting.batch_size},
        "max_steps": TOTAL_STEPS,
        "seed": 0,
    }
    if setting.dtype == "bfloat16":
        training["precision"] = {"compute_dtype": "bfloat16", "activation_dtype": "bfloat16"}
    if setting.chunk_size:
        training["grad_cache"] = {"micro_batch_size": setting.chunk_size}
    return JobConfig(
        name="benchmark",
        model={"target": "representax.models.sentence:SentenceEncoder.load_from_hf", "parameters": encoder},
        task={"kind": "retrieval"},
        loss={"kind": "mnr", "scale": 20.0},
        optimization={
            "optimizer": {"target": "optax.adamw", "parameters": {"weight_decay": 0.0}},
            "schedule": {"target": "optax.linear_schedule", "parameters": falling},
        },
        data={
            "distribution": {"sources": [{"uri": "memory:", "mapper": "representax.data.distribution.identity"}]},
            "collate": {"target": "representax.tasks.retrieval:RetrievalCollator"},
        },
        training=training,
    )


def _rounds(run: Callable[[int], None], setting: Setting) -> Round:
    """Warms up, and gives the round."""
    run(setting.warmup)

    def do_round() -> Done:
        run(setting.steps)
        return Done(setting.steps * setting.batch_size)

    return do_round
