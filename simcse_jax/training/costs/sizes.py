"""What a step needs to be compiled, from its specs alone: columns of data, the batch, and the models' shapes."""

from simcse_jax.data.columns import ROLES
from simcse_jax.data.sts import PREFIX, of_task
from simcse_jax.encoding.batching import FINE_LENGTHS
from simcse_jax.errors import UserError
from simcse_jax.host.names import split_sources
from simcse_jax.huggingface.published import encoder_config
from simcse_jax.models.config import EncoderConfig
from simcse_jax.objectives.objective import CLASSES
from simcse_jax.objectives.registry import needing
from simcse_jax.runs.state import ModelSpec, add_parts
from simcse_jax.training.data_spec import DataSpec
from simcse_jax.training.generator import check_generator
from simcse_jax.training.inputs import check_divides, check_projector


def guess_columns(data: DataSpec) -> int:
    """The number of columns of sentences in a run's data, as far as the config shows it."""
    if data.spans:
        return 1 + data.spans.positives
    graded = data.scores and not data.scores.of_candidates
    if data.labels == CLASSES:
        return 1
    if data.augment or data.positives or data.labels or graded or data.pairing:
        return 2
    if data.columns["anchor"]:
        return sum(1 for role in ROLES if data.columns[role])
    sources = split_sources(data.train)
    if all(source.startswith(PREFIX) and of_task(source) for source in sources):
        return 2
    return 1 if all(source.endswith(".txt") or source.startswith(PREFIX) for source in sources) else 3


def choose_batch(
    batch_size: int, batch_per_chip: int | None, chips: int, first_chips: int, scaling: str = "weak"
) -> int:
    """The batch for a topology.

    For weak scaling: the examples per chip (by default the config's batch on the first topology) × chips; for strong
    scaling: the config's.
    """
    if scaling == "strong":
        check_divides(batch_size, chips)
        return batch_size
    if batch_per_chip:
        return batch_per_chip * chips
    check_divides(batch_size, first_chips)
    return batch_size // first_chips * chips


def padded_length(tokens: float, max_length: int) -> int:
    """The padded length of a batch whose sentences have this many tokens, when many are encoded."""
    return min(next((length for length in FINE_LENGTHS if length >= tokens), max_length), max_length)


def read_models(spec: ModelSpec, data: DataSpec, denoising: str) -> tuple[EncoderConfig, EncoderConfig | None]:
    """The encoder, and the generator if an objective has one; both fit the run."""
    encoder = encoder_config(spec.init_from, spec.num_layers)
    field, most = data.longest
    if most > encoder.max_length:
        raise UserError(f"config.{field}={most}: the model takes {encoder.max_length} tokens")
    if data.positive_template or denoising != "none":
        raise UserError(
            "config.views.positive_template, config.views.denoising: the step has tokens of templates, which aot, "
            "without a tokenizer, does not know; leave them out"
        )
    generator = encoder_config(spec.generator) if needing(spec.objectives, "replaces_tokens") else None
    if generator:
        check_generator(spec.generator, generator, spec.init_from, encoder, data.longest)
    check_projector(spec, add_parts(encoder, spec))
    return encoder, generator
