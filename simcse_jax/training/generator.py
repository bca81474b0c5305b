"""The generator of replaced tokens: a pretrained language model that is read once and never trained."""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from simcse_jax.errors import UserError
from simcse_jax.host.storage import sha256
from simcse_jax.huggingface.load import Pretrained
from simcse_jax.huggingface.tokenizer import read_backend, special_tokens, vocabulary
from simcse_jax.models import parameters
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.head import PREFIX
from simcse_jax.models.masking import Masking
from simcse_jax.models.sentence_encoder import build
from simcse_jax.objectives.tokens import DISCRIMINATOR, GENERATOR
from simcse_jax.runs.loading import load_model
from simcse_jax.training.recipe import Networks


class Generator(NamedTuple):
    """A language model, and its special tokens."""

    model: Pretrained
    masking: Masking

    @property
    def params(self) -> dict[str, np.ndarray]:
        """The encoder's parameters, and those of the language-model head, by their names in a run's checkpoints."""
        encoder = {name: value for name, value in self.model.params.items() if not name.startswith(PREFIX)}
        head = {parameters.LANGUAGE_MODEL + name: value for name, value in (self.model.language_model or {}).items()}
        return {name: np.asarray(value) for name, value in (encoder | head).items()}

    @property
    def fingerprint(self) -> str:
        """SHA-256 of its parameters."""
        params = self.params
        return sha256(*(params[name] for name in sorted(params)))


def check_generator(
    name: str, generator: EncoderConfig, model: str, encoder: EncoderConfig, longest: tuple[str, int]
) -> None:
    """Refuses a generator that takes too short sentences, or has another number of words than the trained encoder.

    `longest` has the most tokens of a sentence, after the field that says so.
    """
    field, most = longest
    if most > generator.max_length:
        raise UserError(f"config.{field}={most}: model.generator takes at most {generator.max_length}")
    if generator.vocab_size != encoder.vocab_size:
        sizes = f"{generator.vocab_size:,} words, those of {model} {encoder.vocab_size:,}"
        raise UserError(f"config.model.generator={name}: its weights have {sizes}; they must have the same vocabulary")


def read_generator(name: str, model: Pretrained, longest: tuple[str, int]) -> Generator:
    """Reads a generator, which must number the same tokens in the same way as the model that is trained."""
    generator, field = load_model(name).without_modules(), f"config.model.generator={name}"
    if generator.language_model is None or generator.config.guesses_next:
        raise UserError(f"{field}: has no masked-language-model head; use a pretrained checkpoint that kept it")
    check_generator(name, generator.config, model.name, model.config, longest)
    ours, theirs = (vocabulary(read_backend(network.folder)[0]) for network in (model, generator))
    if differing := sorted(ours.items() ^ theirs.items()):
        token, _ = differing[0]
        raise UserError(
            f"{field}: its tokenizer is not that of {model.name}: the token {token!r:.60} has the number "
            f"{theirs.get(token, 'none')} there and {ours.get(token, 'none')} here"
        )
    return Generator(generator, Masking(*special_tokens(generator.folder)))


def build_networks(encoder: EncoderConfig, generator: EncoderConfig, kernels: bool, dtype: str) -> Networks:
    """The networks of an objective that replaces tokens: a generator, and a discriminator that is like the encoder.

    The latter has no convolutions and no modules: it decides for each token from the encoder's own states.
    """
    networks = {GENERATOR: generator, DISCRIMINATOR: dataclasses.replace(encoder, convolutions=None, modules=())}
    computed = {name: dataclasses.replace(network, attention_kernels=kernels) for name, network in networks.items()}
    return tuple((name, build(network, False, jnp.dtype(dtype))[0]) for name, network in computed.items())
