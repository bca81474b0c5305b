"""The inputs of a run, read before it starts: data, weights, tokenizer, evaluators."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from simcse_jax.data.batches import Corpus
from simcse_jax.data.corpora import AnyCorpus
from simcse_jax.data.sources import Examples
from simcse_jax.data.tokens import prompts_by_name
from simcse_jax.devices import backend, processes
from simcse_jax.errors import UserError
from simcse_jax.evaluation.analysis import last_layer
from simcse_jax.evaluation.retrieval import RetrievalSpec
from simcse_jax.host.storage import read_json, sha256
from simcse_jax.huggingface.load import Pretrained, choose_pooler
from simcse_jax.huggingface.sentence_transformers import DEFAULTS
from simcse_jax.huggingface.tokenizer import Tokenizer, read_backend, special_tokens
from simcse_jax.models.config import EncoderConfig, Template
from simcse_jax.models.decoders import both_ways
from simcse_jax.models.masking import Masking
from simcse_jax.models.projector import width
from simcse_jax.objectives.objective import TokenObjective
from simcse_jax.objectives.registry import needing, trained_objectives
from simcse_jax.runs.loading import load_model
from simcse_jax.runs.state import ModelSpec
from simcse_jax.training.data_spec import DataSpec
from simcse_jax.training.evaluation import Evaluation
from simcse_jax.training.generator import Generator
from simcse_jax.training.held_out import Folds, FoldsSpec, HeldOut, HeldOutSpec, hold_out_rows, split_examples
from simcse_jax.training.prepared import find_folders
from simcse_jax.training.reading import check_enough, read_training_examples


class Inputs(NamedTuple):
    """Everything a run reads before it starts."""

    devices: list[jax.Device]
    evaluation: Evaluation | None
    model: Pretrained
    tokenizer: Tokenizer
    corpus: AnyCorpus | None  # None: nothing is trained
    language_model: Masking | None  # what masking must know of the tokenizer; None: nothing is masked
    analysis: last_layer.Sample | None  # sentences that the last layer is measured on during training
    total_steps: int
    generator: Generator | None = None  # replaces tokens
    adapter: dict[str, np.ndarray] | None = None  # LoRA's first values; None: fresh ones
    sizes: tuple[int, ...] = ()  # of truncated embeddings, at which the model is scored too
    positive_template: Template | None = None  # around all but anchors, in place of the tokenizer's
    folds: Folds | None = None  # of the rows, which judge whether training helps; None: they do not

    @property
    def prompts(self) -> dict[str, str]:
        """The prompts of queries and documents that the model is trained with; {} without one for all sources."""
        return {} if self.corpus is None else prompts_by_name(self.corpus.prompts, self.corpus.num_columns)

    @property
    def template(self) -> Template | None:
        """The template around every sentence."""
        return self.tokenizer.template

    @property
    def other_folds(self) -> list[Corpus]:
        """For each fold, the rows of all others."""
        return self.folds.others(self.corpus) if self.folds and self.corpus else []

    @property
    def num_examples(self) -> int:
        """The number of rows to train on."""
        return 0 if self.corpus is None else self.corpus.num_rows

    @property
    def fingerprints(self) -> dict[str, str]:
        """SHA-256 of the contents that the config's fields refer to; a run resumes only with the same."""
        return {
            "data.train": sha256() if self.corpus is None else self.corpus.fingerprint,
            "model.init_from": sha256(*(np.asarray(self.model.params[name]) for name in sorted(self.model.params))),
            **(self.evaluation.fingerprints if self.evaluation else {"eval.data": ""}),
            **({"analysis.data": self.analysis.fingerprint} if self.analysis else {}),
            **({"model.generator": self.generator.fingerprint} if self.generator else {}),
            **({"teacher.model": teacher.key} if (teacher := self.corpus and self.corpus.teacher) else {}),
            **({"model.lora.init_from": sha256(*self.adapter.values())} if self.adapter else {}),
        }


def read_start(spec: ModelSpec, training: bool, measured: bool) -> Pretrained:
    """The model that a run starts from, with the modules that it keeps; prints which parts training leaves out."""
    model = dataclasses.replace(load_model(spec.init_from, spec.num_layers), template=spec.template)
    needed = ["model.template"] * bool(model.template)
    needed += ["training (train.epochs and train.max_steps other than 0)"] * training  # word vectors are only scored
    needed += [f"objective.{objective.name}.weight" for objective in needing(spec.objectives, "masks_tokens")]
    for field in needed + ["analysis.every"] * measured:
        model.check_layers(field)
    model = read_both_ways(model) if spec.bidirectional else model
    kept = keeps_modules(spec, model)
    unused = ["its convolutions"] if model.config.convolutions and not spec.convolutions else []
    if left_out := unused + dropped_parts(spec.keep_settings, model.without_modules() if kept else model):
        part = "the encoder and its modules" if kept else "the encoder only"
        processes.say(f"{model.name}: training uses {part}; dropped: {', '.join(left_out)}")
    model = model if kept else model.without_modules()
    if training and model.states_pooler and model.pooler != spec.scored_pooler:
        processes.say(f"{model.name}: the pooler is {spec.scored_pooler} in place of the model's own, {model.pooler}")
    if not training and spec.convolutions not in (None, model.config.convolutions):
        raise UserError(
            f"config.model.convolutions.widths: nothing is trained, and {model.name} has no such convolutions of its "
            "own; set it to ()"
        )
    return model


def keeps_modules(spec: ModelSpec, model: Pretrained) -> bool:
    """Whether a run's model has the modules after pooler and head of the model that it starts from.

    They belong to its own pooler, over its own convolutions or none, and to objectives that compare sentences with
    sentences alone, not with their tokens.
    """
    poolers = {spec.pooler, spec.scored_pooler, spec.choosing_pooler}
    same = poolers == {model.pooler} and spec.convolutions == model.config.convolutions
    with_tokens = any(
        objective.contrasts and isinstance(objective, TokenObjective)
        for objective in trained_objectives(spec.objectives).values()
    )
    return spec.keep_modules and bool(model.config.modules) and same and not with_tokens


def dropped_parts(keep_settings: bool, model: Pretrained) -> list[str]:
    """The parts of the model's folder that the trained model will not have."""
    if not keep_settings:
        return model.besides
    return dataclasses.replace(model, settings=DEFAULTS, normalize=False).besides


def check_poolers(spec: ModelSpec, model: Pretrained, shuffled: Sequence[str]) -> None:
    """Refuses poolers that the model cannot have, and `shuffled` views, which would hide from one where a text ends."""
    for pooler in (spec.pooler, spec.scored_pooler, spec.choosing_pooler):
        choose_pooler(model, pooler)
    if shuffled and model.config.causal and spec.pooler == "last":
        raise UserError(
            f"config.views.{shuffled[0]}=shuffled: {model.name} reads from left to right, and the pooler last does not "
            "know where a shuffled text ends; choose another change, or model.pooler=avg"
        )


def read_masking(model: Pretrained, mask_token: str) -> Masking:
    """The properties of the model's tokenizer that masking needs; see `special_tokens`."""
    if model.config.causal:
        raise UserError(
            f"{model.name}: reads from left to right, and would guess a masked word by those before it alone; set "
            "model.bidirectional=True"
        )
    if not (mask_token or read_backend(model.folder)[1]):
        raise UserError(
            f"config.objective.mlm.mask_token: {model.name}'s tokenizer has no mask token; name one of its tokens that "
            "texts hardly have, such as _"
        )
    return Masking(*special_tokens(model.folder, mask_token))


def read_both_ways(model: Pretrained) -> Pretrained:
    """The same decoder, which reads a text in both directions."""
    if not model.config.guesses_next:
        raise UserError(f"config.model.bidirectional=True: {model.name} is not a decoder; set it to False")
    path = model.folder / "config.json"
    config = EncoderConfig.from_hugging_face(read_json(path) | both_ways(model.config.model_type), str(path))
    return dataclasses.replace(
        model, config=dataclasses.replace(model.config, causal=config.causal, window=config.window)
    )


def read_positive_template(text: str, denoising: str, model: Pretrained, tokenizer: Tokenizer) -> Template | None:
    """The template around positives and hard negatives, if they have one of their own (`text`)."""
    if tokenizer.template is not None:
        return tokenizer.make_template(text) if text else None
    for name, value, off in (("positive_template", text, ""), ("denoising", denoising, "none")):
        if value != off:
            raise UserError(f"config.views.{name}={value!r:.100}: {model.name} has no template; set model.template")
    return None


def read_held_out(data: DataSpec, spec: HeldOutSpec, fields: RetrievalSpec, devices: Sequence[jax.Device]) -> HeldOut:
    """The rows to train on and the evaluation on the others, whose numbers are printed; see `hold_out_rows`."""
    examples = _read_rows(data, f"config.data.held_out={spec.rows}")
    held = hold_out_rows(examples, spec, fields, devices)
    rows = len(examples) - len(held.examples)
    use = "half choose the best checkpoint, half are the test set" if spec.chooses else "the test set"
    processes.say(f"{data.train}: {rows:,} of {len(examples):,} rows are held out: {use}")
    return held


def read_folds(
    data: DataSpec, spec: FoldsSpec, fields: RetrievalSpec, devices: Sequence[jax.Device]
) -> tuple[Examples, Folds]:
    """The rows to train on, and their folds; see `split_examples`."""
    examples = _read_rows(data, f"config.data.folds={spec.folds}")
    folds = split_examples(examples, spec, fields, devices)
    check_enough(data.batch_size, data.train, len(examples) - int(np.bincount(folds.of).max()), None)
    processes.say(f"{data.train}: {len(examples):,} rows in {spec.folds} folds, each scored by a model of the others")
    return examples, folds


def _read_rows(data: DataSpec, field: str) -> Examples:
    if prepared := find_folders(data.train):
        raise UserError(
            f"{field}: {next(iter(prepared))} is a prepared corpus, which has tokens and no texts; set eval.data"
        )
    return read_training_examples(data)


def choose_devices(wanted: int, parts: int, batch_size: int) -> list[jax.Device]:
    """The first `wanted` devices of each process (0: all), which must divide `batch_size`; `parts` share a copy."""
    backend.start()
    available = jax.local_device_count()
    if wanted > available:
        raise UserError(f"config.parallel.devices={wanted}: there are {available} (0: all of them)")
    devices = [d for process in range(jax.process_count()) for d in jax.local_devices(process)[: wanted or None]]
    check_parts(parts, len(devices))
    check_divides(batch_size, len(devices))
    return devices


def check_parts(parts: int, devices: int) -> None:
    """Refuses copies of the state that the devices cannot share evenly."""
    if parts and devices % parts:
        raise UserError(f"config.parallel.parts={parts}: must divide {devices}, the number of devices (0: all of them)")


def check_divides(batch_size: int, devices: int) -> None:
    """Refuses a batch size that is not divisible by the number of devices."""
    if batch_size % devices:
        raise UserError(f"config.train.batch_size={batch_size} is not divisible by {devices} devices")


def check_projector(spec: ModelSpec, encoder: EncoderConfig) -> None:
    """Refuses an embedding that is to take the place of a token and has another size."""
    widths = spec.projector.widths if spec.projector else ()
    for name in [objective.name for objective in needing(spec.objectives, "replaces_tokens")]:
        size = encoder.sentence_size
        if widths and name in spec.projected:
            size = width(widths[-1], size)
        if size != encoder.hidden_size:
            raise UserError(
                f"config.projector.widths={','.join(widths)!r}: gives embeddings of {size} numbers; objective.{name} "
                f"puts one in the place of a token, which has {encoder.hidden_size}"
            )


def check_head(spec: ModelSpec, model: Pretrained) -> None:
    """Refuses to score a model with a head that it does not have."""
    if spec.head.scored and not choose_pooler(model, spec.pooler)[1]:
        raise UserError(
            f"config.model.mlp=always: nothing is trained, and {model.name} has no such head of its own; "
            "set model.mlp=none"
        )
