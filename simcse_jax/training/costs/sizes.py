"""What a step needs to be compiled, from its config alone: columns of data, the batch, and the models' shapes."""

from simcse_jax.config.sections import Section
from simcse_jax.config.source_fields import longest
from simcse_jax.data.columns import ROLES
from simcse_jax.data.documents import SPANS
from simcse_jax.data.sources import split_sources
from simcse_jax.data.sts import PREFIX, of_task
from simcse_jax.encoding.batching import FINE_LENGTHS
from simcse_jax.errors import UserError
from simcse_jax.huggingface.published import encoder_config
from simcse_jax.models.config import EncoderConfig
from simcse_jax.objectives.registry import needing, trained
from simcse_jax.runs.state import with_parts
from simcse_jax.training.columns import positives_of
from simcse_jax.training.generator import check_generator
from simcse_jax.training.inputs import check_divides, check_projector


def guess_columns(config: Section) -> int:
    """The number of columns of sentences in a config's data, as far as the config shows it."""
    data, objectives = config.data, trained(config.objective)
    pairs = any(one.labels or one.scores or one.pairing(config.objective[name]) for name, one in objectives.items())
    if data.positives == SPANS:
        return 1 + positives_of(config)
    if data.augment.name or data.positives or pairs:
        return 2
    if data.columns.anchor:
        return sum(1 for role in ROLES if data.columns[role])
    sources = split_sources(data.train)
    if all(source.startswith(PREFIX) and of_task(source) for source in sources):
        return 2
    return 1 if all(source.endswith(".txt") or source.startswith(PREFIX) for source in sources) else 3


def choose_batch(
    config: Section, batch_per_chip: int | None, chips: int, first_chips: int, scaling: str = "weak"
) -> int:
    """The batch for a topology.

    For weak scaling: the examples per chip (by default the config's batch on the first topology) × chips; for strong
    scaling: the config's.

    Raises:
      UserError: when the chips cannot share it evenly.
    """
    if scaling == "strong":
        check_divides(config, chips)
        return config.train.batch_size
    if batch_per_chip:
        return batch_per_chip * chips
    check_divides(config, first_chips)
    return config.train.batch_size // first_chips * chips


def padded_length(tokens: float, max_length: int) -> int:
    """The length of a batch of sentences of so many tokens, when many sentences are encoded."""
    return min(next((length for length in FINE_LENGTHS if length >= tokens), max_length), max_length)


def read_models(config: Section) -> tuple[EncoderConfig, EncoderConfig | None]:
    """The encoder, and the generator if the objective has one; both fit the recipe."""
    encoder = encoder_config(config.model.init_from, config.model.num_layers)
    field, most = longest(config)
    if most > encoder.max_length:
        raise UserError(f"config.{field}={most}: the model takes {encoder.max_length} tokens")
    if config.views.positive_template or config.views.denoising != "none":
        raise UserError(
            "config.views.positive_template, config.views.denoising: the step has tokens of templates, which aot, "
            "without a tokenizer, does not know; leave them out"
        )
    generator = encoder_config(config.model.generator) if needing(config.objective, "replaces_tokens") else None
    if generator:
        check_generator(config, encoder, generator)
    check_projector(config, with_parts(encoder, config.model))
    return encoder, generator
