"""The inputs of a run, read before it starts: data, weights, tokenizer, evaluators."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from simcse_jax.config.fields import LARGEST, choosing_pooler, flatten, scoring_pooler, trains
from simcse_jax.config.sections import Section
from simcse_jax.data.corpora import AnyCorpus
from simcse_jax.data.sources import by_field
from simcse_jax.data.tokens import prompts_by_name
from simcse_jax.devices import backend, processes
from simcse_jax.errors import UserError
from simcse_jax.evaluation import postprocess
from simcse_jax.evaluation.analysis import last_layer
from simcse_jax.host.storage import sha256
from simcse_jax.huggingface.load import Pretrained, choose_pooler
from simcse_jax.huggingface.sentence_transformers import DEFAULTS
from simcse_jax.huggingface.tokenizer import Tokenizer, special_tokens
from simcse_jax.huggingface.weight_names import NAMES
from simcse_jax.models.config import EncoderConfig, Template
from simcse_jax.models.head import HEADS
from simcse_jax.models.masking import Masking
from simcse_jax.models.projector import width
from simcse_jax.objectives.objective import TokenObjective
from simcse_jax.objectives.registry import needing, trained
from simcse_jax.runs.loading import load_model
from simcse_jax.runs.state import convolutions_of, own_adapter, with_parts
from simcse_jax.training.evaluation import Evaluation, check_sizes, read_analysis, read_evaluation
from simcse_jax.training.generator import Generator, read_generator
from simcse_jax.training.held_out import HeldOut, hold_out_rows
from simcse_jax.training.prepared import folders_of
from simcse_jax.training.reading import read_corpus, read_training_examples

READ = (
    "model.init_from",
    "model.generator",
    "model.lora.init_from",
    "teacher.model",
    "teacher.second",
    "data.train",
    "data.augment.lexicon",
    "eval.data",
    "eval.retrieval.data",
    "eval.postprocess_data",
    "analysis.data",
)
LISTS = ("data.train", "eval.retrieval.data", "eval.postprocess_data")  # those of them that may name several sources


def sources(config: Section) -> dict[str, str]:
    """The names of what a run reads, by the fields that have them; not all are files or folders."""
    fields = flatten(config)
    named = {f"config.{field}": fields[field] for field in READ}
    for field in LISTS:
        del named[f"config.{field}"]
        named |= by_field(f"config.{field}", fields[field])
    return named


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

    @property
    def prompts(self) -> dict[str, str]:
        """The prompts of queries and documents that the model is trained with; {} without one for all sources."""
        return {} if self.corpus is None else prompts_by_name(self.corpus.prompts, self.corpus.num_columns)

    @property
    def template(self) -> Template | None:
        """Around every sentence."""
        return self.tokenizer.template

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
            **({"teacher.model": taught.key} if (taught := self.corpus and self.corpus.taught) else {}),
            **({"model.lora.init_from": sha256(*self.adapter.values())} if self.adapter else {}),
        }


def read_inputs(config: Section) -> Inputs:
    """Everything a run reads before it starts, checked.

    Raises:
      UserError: in one line, for anything that is wrong.
    """
    devices = choose_devices(config)
    held = read_held_out(config, devices) if config.data.held_out and trains(config) else None
    evaluation = held.evaluation if held else read_evaluation(config, devices)
    model = load_model(config.model.init_from, config.model.num_layers)
    model = dataclasses.replace(model, template=config.model.template)
    if model.template:
        model.check_layers("model.template")
    masked = needing(config.objective, "masks_tokens")
    if trains(config):  # word vectors are scored as they are
        model.check_layers("training (train.epochs and train.max_steps other than 0)")
    for field in [f"objective.{one.name}.weight" for one in masked] + ["analysis.every"] * bool(config.analysis.every):
        model.check_layers(field)
    tokenizer = model.tokenizer
    convolutions, kept = convolutions_of(config.model), keeps_modules(config, model)
    unused = ["its convolutions"] if model.config.convolutions and not convolutions else []
    if left_out := unused + dropped(config.model, model.without_modules() if kept else model):
        used = "the encoder and its modules" if kept else "the encoder only"
        processes.say(f"{model.name}: training uses {used}; dropped: {', '.join(left_out)}")
    model = model if kept else model.without_modules()
    if trains(config) and (others := differences(config, model)):
        processes.say(f"{model.name}: {others}")
    if not trains(config) and convolutions not in (None, model.config.convolutions):
        raise UserError(
            f"config.model.convolutions.widths={config.model.convolutions.widths}: nothing is trained, and "
            f"{model.name} has no such convolutions of its own; set it to ()"
        )
    known = dataclasses.replace(model.config, convolutions=convolutions, mask_token_id=tokenizer.mask_token_id)
    model = dataclasses.replace(model, config=known)
    positive_template = read_positive_template(config, model, tokenizer)
    for pooler in (config.model.pooler, scoring_pooler(config), choosing_pooler(config)):
        choose_pooler(model, pooler)
    shuffled = [name for name, value in config.views.items() if value == "shuffled"]
    if shuffled and model.config.causal and config.model.pooler == "last":
        raise UserError(
            f"config.views.{shuffled[0]}=shuffled: {model.name} reads from left to right, and the pooler last does not "
            "know where a shuffled text ends; choose another change, or model.pooler=avg"
        )
    with_parts(model.config, config.model)  # refuses what does not fit
    adapter = own_adapter(config.model, model)
    if masked and not NAMES[model.config.model_type].language_model:
        raise UserError(
            f"{model.name}: a model of the type {model.config.model_type} guesses no masked words; leave out the "
            "objective that masks them, or start from an encoder such as BERT"
        )
    language_model = Masking(*special_tokens(model.folder)) if masked else None
    generator = read_generator(config, model)
    check_projector(config, model.config)
    analysis = read_analysis(config, evaluation)
    if evaluation and evaluation.postprocess:
        try:
            postprocess.check(evaluation.postprocess, model.config.sentence_size, evaluation.tasks)
        except UserError as error:
            raise UserError(f"config.eval.postprocess_data={config.eval.postprocess_data}: {error}") from None
    if not trains(config):
        if HEADS[config.model.mlp].scored and not choose_pooler(model, config.model.pooler)[1]:
            raise UserError(
                f"config.model.mlp=always: nothing is trained, and {model.name} has no such head of its own; "
                "set model.mlp=none"
            )
        return Inputs(devices, evaluation, model, tokenizer, None, language_model, analysis, 0, adapter=adapter)
    sizes = check_sizes(config, model.config, evaluation)
    corpus = read_corpus(config, model, tokenizer, held and held.examples)
    epoch = corpus.steps_per_epoch(config.train.batch_size)
    total_steps = config.train.max_steps or config.train.epochs * epoch
    if total_steps > LARGEST:
        raise UserError(f"config.train.epochs={config.train.epochs}: gives {total_steps:,} steps; at most {LARGEST:,}")
    inputs = Inputs(
        *(devices, evaluation, model, tokenizer, corpus, language_model, analysis, total_steps, generator, adapter),
        sizes=sizes,
        positive_template=positive_template,
    )
    return inputs._replace(evaluation=evaluation and evaluation.with_prompts(inputs.prompts))


def read_positive_template(config: Section, model: Pretrained, tokenizer: Tokenizer) -> Template | None:
    """The template around positives and hard negatives, if they have one of their own.

    Raises:
      UserError: naming the field that needs a template, when the sentences have none.
    """
    views = config.views
    if tokenizer.template is not None:
        return tokenizer.make_template(views.positive_template) if views.positive_template else None
    for name, off in (("positive_template", ""), ("denoising", "none")):
        if views[name] != off:
            raise UserError(
                f"config.views.{name}={views[name]!r:.100}: {model.name} has no template; set model.template"
            )
    return None


def read_held_out(config: Section, devices: Sequence[jax.Device]) -> HeldOut:
    """The rows to train on and the evaluation on the others, whose numbers are printed.

    Raises:
      UserError: also for a prepared corpus, whose texts are not there.
    """
    if prepared := folders_of(config.data.train):
        raise UserError(
            f"config.data.held_out={config.data.held_out}: {next(iter(prepared))} is a prepared corpus, which has "
            "tokens and no texts; set eval.data"
        )
    examples = read_training_examples(config)
    held = hold_out_rows(config, examples, devices)
    rows = len(examples) - len(held.examples)
    use = "half choose the best checkpoint, half are the test set" if config.eval.every else "the test set"
    processes.say(f"{config.data.train}: {rows:,} of {len(examples):,} rows are held out: {use}")
    return held


def choose_devices(config: Section) -> list[jax.Device]:
    """The first `parallel.devices` of each process, or all; the batch must be divisible by their number."""
    backend.start(training=True)  # a sweep's runs in one program join no others, so nothing has started it
    wanted, there = config.parallel.devices, jax.local_device_count()
    if wanted > there:
        raise UserError(f"config.parallel.devices={wanted}: there are {there} (0: all of them)")
    devices = [d for process in range(jax.process_count()) for d in jax.local_devices(process)[: wanted or None]]
    check_parts(config, len(devices))
    if trains(config):
        check_divides(config, len(devices))
    return devices


def check_parts(config: Section, devices: int) -> None:
    """Refuses copies of the state that the devices cannot share evenly."""
    parts = config.parallel.parts
    if parts and devices % parts:
        raise UserError(f"config.parallel.parts={parts}: must divide {devices}, the number of devices (0: all of them)")


def check_divides(config: Section, devices: int) -> None:
    """Refuses a batch size that is not divisible by the number of devices, naming the nearest that are."""
    size = config.train.batch_size
    if size % devices:
        below, above = size // devices * devices, -(-size // devices) * devices
        nearest = f"{below} and {above}" if below else str(above)
        raise UserError(
            f"config.train.batch_size={size} is not divisible by {devices} devices; the nearest are {nearest}"
        )


def keeps_modules(config: Section, model: Pretrained) -> bool:
    """Whether a run's model has the modules after pooler and head of the model that it starts from.

    They belong to its own pooler, over its own convolutions or none, and to objectives that compare sentences with
    sentences alone, not with their tokens.
    """
    poolers = {config.model.pooler, scoring_pooler(config), choosing_pooler(config)}
    same = poolers == {model.pooler} and convolutions_of(config.model) == model.config.convolutions
    with_tokens = any(one.contrasts and isinstance(one, TokenObjective) for one in trained(config.objective).values())
    return config.model.keep_modules and bool(model.config.modules) and same and not with_tokens


def dropped(fields: Section, model: Pretrained) -> list[str]:
    """What the model's folder asks for, and the trained model will not have; `fields` are `config.model`."""
    if not fields.keep_settings:
        return model.besides
    return dataclasses.replace(model, settings=DEFAULTS, normalize=False).besides


def differences(config: Section, model: Pretrained) -> str:
    """How a run differs from the sentence encoder that it starts from, for people; empty: not at all.

    Of a model that does not state how it makes embeddings, nothing but its length can differ.
    """
    heads = {"train": "a head in training", "always": "a head", "none": "no head"}
    own = [f"pooler {model.pooler}", heads["always" if model.has_head else "none"]]
    run = [f"pooler {scoring_pooler(config)}", heads[config.model.mlp]]
    parts = [
        f"{mine} in place of {its}" for its, mine in zip(own, run, strict=True) if its != mine and model.states_pooler
    ]
    length = config.data.max_length
    if length < model.max_length:
        parts.append(f"this run reads {length} tokens of a sentence, the model {model.max_length}")
    return ", ".join(parts)


def check_projector(config: Section, encoder: EncoderConfig) -> None:
    """Refuses an embedding that is to take the place of a token and has another size.

    Raises:
      UserError: naming the projector's field.
    """
    projector, wanted = config.projector, encoder.hidden_size
    for name in [one.name for one in needing(config.objective, "replaces_tokens")]:
        size = encoder.sentence_size
        if projector.widths and name in projector.objectives:
            size = width(projector.widths.split(",")[-1], size)
        if size != wanted:
            raise UserError(
                f"config.projector.widths={projector.widths!r}: gives embeddings of {size} numbers; objective.{name} "
                f"puts one in the place of a token, which has {wanted}"
            )
