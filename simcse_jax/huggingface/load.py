"""Loads a model by name: its parameters, its own pooler and its head.

A name is a folder in Hugging Face format, a hub id, `package:NAME` for weights in an installed
Python package, or `glove:SETTINGS_FILE` for a file of word vectors.
"""

import dataclasses
import re
import warnings
from collections.abc import Container
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simcse_jax.choices import MASK_TOKEN, POOLERS, SEVERAL_LAYERS, pooler_of
from simcse_jax.errors import UserError
from simcse_jax.host.names import split_glove
from simcse_jax.host.storage import local_path, read_json
from simcse_jax.huggingface.module_folders import Unsupported, is_written_as
from simcse_jax.huggingface.published import own_pooler
from simcse_jax.huggingface.resolve import resolve
from simcse_jax.huggingface.sentence_transformers import (
    DEFAULTS,
    LISTING,
    SETTINGS_FILE,
    USUAL_TYPE,
    Modules,
    Settings,
    describe,
    has_modules,
    read_modules,
    read_settings,
    transformer_fields,
    transformer_folder,
    words_folder,
)
from simcse_jax.huggingface.tokenizer import MARKER, Tokenizer, stated
from simcse_jax.huggingface.weight_files import read_weights
from simcse_jax.huggingface.weight_names import head_module, normalize_names, read_head, to_params
from simcse_jax.huggingface.word_vectors import (
    ENGLISH_STOP_WORDS,
    Vocabulary,
    WordTokenizer,
    read_glove,
    read_word_embeddings,
)
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.head import has_head
from simcse_jax.models.model_types import WORD_VECTORS
from simcse_jax.models.modules import PREFIX
from simcse_jax.models.parameters import WORD_EMBEDDING, Arrays

# The reference's released models state their pooler only in their names, not in their files; those that its scripts
# train are in my-unsup-simcse-bert-base-uncased and the like.
REFERENCE_NAME = re.compile(r"(unsup|sup)-simcse-(bert|roberta)-(base|large)")
# In our marker, of a model that is not itself without the folders of its modules.
NEEDS_MODULES = ("convolutions", "modules")
# A model that others trained with the reference's code and named themselves: sup_mydata, my-unsup-2024.
LIKE_REFERENCE = re.compile(r"^(my[_-])?(un)?sup([_-]|$)|(un)?sup[_-]simcse")


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """A model read from a folder.

    `params` has a head's parameters if a pooler of the model is followed by one, and those of convolutions and modules
    if and only if `config` names some. `pooler` is the model's own, None if its folder asks for something that this
    package lacks (`refusal` then says what); `guess` says how it was found where the files do not state it, empty: they
    do.
    `language_model` is the checkpoint's masked-language-model head (see `models.language_model`), None if it has none.

    The others are for folders of sentence-transformers: `normalize` says whether embeddings have unit length,
    `include_prompt` whether the pooler reads a prompt's tokens; `settings` are the prompts, the truncation and the
    similarity.
    """

    name: str
    folder: Path
    config: EncoderConfig
    params: Arrays
    pooler: str | None
    max_length: int
    language_model: dict[str, np.ndarray] | None = None
    normalize: bool = False
    include_prompt: bool = True
    settings: Settings = DEFAULTS
    refusal: str = ""
    guess: str = ""
    vocabulary: Vocabulary | None = None  # of word vectors; None for a transformer
    template: str = ""  # that its tokenizer gets, by its text; empty: it keeps the one that it has, if any

    @property
    def has_head(self) -> bool:
        """Whether the model has a head at test time: one after its own pooler."""
        return has_head(self.params) and self.pooler != "cls_before_pooler"

    @property
    def states_pooler(self) -> bool:
        """Whether its files say how to make an embedding, as a sentence encoder's do."""
        folders = (self.folder, self.folder.parent)  # of sentence-transformers' first versions: 0_Transformer
        return any((folder / name).is_file() for folder in folders for name in (MARKER, LISTING))

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer, read anew."""
        if self.vocabulary is not None:
            return WordTokenizer(self.vocabulary)
        return Tokenizer(self.folder, self.config, self.template)

    def check_layers(self, user: str) -> None:
        """Refuses word vectors where a transformer is needed."""
        if self.vocabulary is not None:
            raise UserError(f"{self.name}: averages word vectors and has no layers; {user} needs a transformer")

    def without_modules(self) -> "Pretrained":
        """The same model with nothing after pooler and head but what `normalize` says."""
        params = {name: value for name, value in self.params.items() if not name.startswith(PREFIX)}
        return dataclasses.replace(self, config=dataclasses.replace(self.config, modules=()), params=params)

    @property
    def besides(self) -> list[str]:
        """The parts that its folder has besides encoder, pooler and head, in words."""
        settings = self.settings
        prompts = [name for name, text in settings.prompts.items() if text]
        parts = [f"its own pooling ({self.refusal})"] if self.refusal else []
        parts += [f"the prompts {', '.join(prompts)}"] if prompts else []
        parts += [f"the modules {describe(self.config.modules)}"] if self.config.modules else []
        parts += ["the module Normalize"] if self.normalize else []
        parts += ["include_prompt=false"] if not self.include_prompt else []
        parts += [f"the truncation to {settings.truncate_dim} elements"] if settings.truncate_dim else []
        return parts + ([f"the similarity {settings.similarity}"] if settings.similarity != "cosine" else [])


class ChosenPooler(NamedTuple):
    """How hidden states become an embedding."""

    pooler: str
    use_head: bool  # the model's head comes after the pooler


def choose_pooler(model: Pretrained, pooler: str | None) -> ChosenPooler:
    """The requested pooler (None: the model's own), and whether the model's head comes after it.

    The head belongs to the model's own pooler; `cls` means with the head if the model has one,
    `cls_before_pooler` never. Modules of sentence-transformers belong to the model's own pooler alone.

    Raises:
      UserError: when none was given and this encoder lacks the model's own, word vectors are to be pooled otherwise
        than by their average, or a pooler needs layers that convolutions leave out, or a template with a mask token.
    """
    chosen = pooler_of(pooler) if pooler else model.pooler
    if model.vocabulary is not None and chosen not in ("avg", None):
        model.check_layers(f"the pooler {chosen}")
    if chosen == MASK_TOKEN:
        tokenizer = model.tokenizer
        template = tokenizer.template
        if template is None or tokenizer.mask_token_id not in template.before + template.after:
            raise UserError(f"the pooler {chosen}: {model.name} has no template with a mask token")
    if chosen in SEVERAL_LAYERS and model.config.convolutions:
        raise UserError(
            f"the pooler {chosen} reads several layers, but {model.name} has convolutions over the last one"
        )
    if chosen is None:
        raise UserError(f"{model.refusal}; name a pooler, such as avg, to use the encoder without it")
    head = has_head(model.params) and chosen in ("cls", model.pooler) and chosen != "cls_before_pooler"
    return ChosenPooler(chosen, head)


def choose_pooler_and_warn(model: Pretrained, pooler: str | None, stacklevel: int) -> ChosenPooler:
    """`choose_pooler` for a model that a user has just named; warns where the model's own pooler is a guess."""
    if pooler is None and model.guess:
        warnings.warn(model.guess, UserWarning, stacklevel)
    return choose_pooler(model, pooler)


def load(name: str, num_layers: int = 0) -> Pretrained:
    """Loads a model by name, or its first `num_layers` layers; 0 keeps all.

    The folder's own pooler and head are read from sentence-transformers' `modules.json`, or else from our marker,
    or else from the name of a released model (`sup-simcse-…` uses its pooler as a head, `unsup-simcse-…` had one only
    in training; those of DiffCSE, SCD, CT and DeCLUTR are in `published`), or else as the reference's tool does where
    there are signs of its code (`_by_name`). Our exports have both files; where `modules.json` says
    something else than the marker, another program has changed the model since. An export that was copied without the
    folders of its modules is what the marker says.
    The pooler in any other checkpoint is not a head.
    """
    if (glove := split_glove(name)) is not None:
        words, table = read_glove(glove.file)
        vocabulary = Vocabulary(words, glove.lower_case, frozenset() if glove.stop_words else ENGLISH_STOP_WORDS)
        return _of_words(name, glove.file, vocabulary, table, num_layers)
    folder = resolve(name)
    if (of_words := words_folder(folder)) is not None:
        return _word_embeddings(name, folder, of_words, num_layers)
    marker = read_json(folder / MARKER) if (folder / MARKER).is_file() else None
    settings = read_settings(folder)
    listed = (folder / LISTING).is_file() and (marker is None or has_modules(folder))
    transformer = transformer_folder(folder) if listed else folder

    hf_config = read_config(transformer, folder)
    whole = EncoderConfig.from_hugging_face(hf_config, str(transformer / "config.json"))
    config = whole.keep_layers(num_layers)
    if config.model_type == WORD_VECTORS:
        raise UserError(
            f"{transformer / 'config.json'}: belongs to a run that scored word vectors; give the run's own folder"
        )
    tensors, path = read_weights(transformer)
    tensors = normalize_names(tensors)
    is_tied = marker is not None or hf_config.get("tie_word_embeddings") is not False  # our heads always are
    pooler, with_head, guess, refusal, modules = None, False, "", "", None
    try:
        if marker is None or listed:
            _check_kind(folder, hf_config, settings, listed)
        modules = read_modules(folder) if listed or (marker and any(map(marker.get, NEEDS_MODULES))) else None
    except Unsupported as error:
        refusal = str(error)
    marked = None if marker is None else ChosenPooler(str(marker.get("pooler")), marker.get("head") is True)
    if marked and marked.pooler not in POOLERS:
        raise UserError(f"{folder / MARKER}: damaged: its pooler is {marked.pooler:.60}; export the model again")
    if modules:
        pooler, with_head = modules.pooler, bool(modules.dense)
        if marked and is_written_as(marked.pooler, whole.num_layers, pooler):
            pooler = marked.pooler
    elif not refusal:
        pooler, with_head, guess = (*marked, "") if marked else _by_name(name, hf_config, tensors, whole)
    tensors |= modules.dense if modules else {}
    head = head_module(tensors) if with_head else None
    if with_head and head is None:
        raise UserError(f"{path}: the model has a head, but its tensor 'pooler.dense.weight' is missing")
    params, language_model = to_params(tensors, config, head, str(path)), read_head(tensors, config, tied=is_tied)
    parts = (name, transformer, config, params, pooler, max_length_of(transformer, config), language_model)
    model = Pretrained(*parts, settings=settings, refusal=refusal, guess=guess)
    return model if modules is None else _with_modules(model, modules)


def _with_modules(model: Pretrained, modules: Modules) -> Pretrained:
    return dataclasses.replace(
        model,
        config=dataclasses.replace(model.config, convolutions=modules.convolutions, modules=modules.after),
        params={**model.params, **modules.convolution_weights, **modules.weights},
        normalize=modules.normalize,
        include_prompt=modules.include_prompt,
    )


def _of_words(name: str, folder: Path, vocabulary: Vocabulary, table: np.ndarray, num_layers: int) -> Pretrained:
    config = EncoderConfig.of_words(*table.shape).keep_layers(num_layers)
    return Pretrained(name, folder, config, {WORD_EMBEDDING: table}, "avg", config.max_length, vocabulary=vocabulary)


def _word_embeddings(name: str, folder: Path, words: Path, num_layers: int) -> Pretrained:
    """A folder of sentence-transformers whose first module are word vectors."""
    vocabulary, table, length = read_word_embeddings(words)
    model = _of_words(name, folder, vocabulary, table, num_layers)
    model = dataclasses.replace(model, settings=read_settings(folder), max_length=min(length, model.max_length))
    try:
        return _with_modules(model, read_modules(folder, table.shape[1]))
    except Unsupported as error:
        return dataclasses.replace(model, pooler=None, refusal=str(error))


def _check_kind(folder: Path, hf_config: dict[str, Any], settings: Settings, listed: bool) -> None:
    """Refuses models that score pairs or have sparse embeddings, and folders that do not say how to pool."""
    if settings.model_type != USUAL_TYPE:
        raise Unsupported(f"{folder / SETTINGS_FILE}: a {settings.model_type}, which has no embeddings of sentences")
    if not listed and (folder / SETTINGS_FILE).is_file():
        raise Unsupported(f"{folder}: has {SETTINGS_FILE}, but no {LISTING} that says how to pool")
    architectures = hf_config.get("architectures")
    if not listed and "ForSequenceClassification" in str(architectures):
        kind = "a classifier or cross-encoder, for CrossEncoder, --judge or --rerank"
        raise Unsupported(f"{folder / 'config.json'}: architectures is {architectures!r:.60}, {kind}")


def read_config(transformer: Path, folder: Path) -> dict[str, Any]:
    """The `config.json` of a model's transformer; refuses a `folder` without one."""
    if (transformer / "config.json").is_file():
        return read_json(transformer / "config.json")
    if (folder / "adapter_config.json").is_file():
        raise UserError(
            f"{folder}: is an adapter, without the model that it belongs to; give that model as model.init_from and "
            "this folder as model.lora.init_from"
        )
    raise UserError(f"{folder}: no config.json; give a folder in Hugging Face format, a hub id or package:NAME")


def _by_name(
    name: str, hf_config: dict[str, Any], tensors: Container[str], config: EncoderConfig
) -> tuple[str, bool, str]:
    """The pooler of a published model; for others, the one that the reference's tool takes.

    That is by the name, and for a model of other code `cls` alone, or a decoder's last token. Signs of its code are the
    layer `mlp.dense`, an architecture `…ForCL`, or, since its conversion leaves neither, the words sup, unsup or simcse
    in the name of a model with a pooler's layer.

    Returns:
      The pooler, whether there is a head, which follows `cls` alone, and what was guessed, in words.
    """
    if (published := own_pooler(name)) is not None:
        return published, False, ""
    if released := REFERENCE_NAME.search(Path(name).name):
        return "cls", released[1] == "sup", ""
    path = local_path(name).absolute()
    named = path.name
    if re.fullmatch(r"checkpoint-\d+", named):  # of a run
        named = path.parent.name
    elif path.parent.name == "snapshots":  # of a model in the hub's cache
        named = path.parents[1].name.rpartition("--")[2]
    named = named.partition("@")[0].lower()
    by_word = LIKE_REFERENCE.search(named)
    trained = "mlp.dense.weight" in tensors or "ForCL" in str(hf_config.get("architectures"))
    if config.causal:
        return "last", False, ""
    if not trained and (head_module(tensors) is None or not by_word):
        return "cls", False, ""
    note = f"{name}: its files do not say how to pool; inferred from its name, as in the SimCSE authors' tool: pooler"
    if "unsup" not in (named if by_word else str(path).lower()):
        return "cls", True, f"{note} cls with its dense layer; cls_before_pooler leaves that out"
    with_head = head_module(tensors) is not None
    return "cls_before_pooler", with_head, f"{note} cls_before_pooler{'; cls adds its dense layer' * with_head}"


def max_length_of(folder: Path, config: EncoderConfig) -> int:
    """The length stated in the model's files, if any: sentence-transformers writes it in one of two places."""
    for length in (
        transformer_fields(folder).get("max_seq_length"),
        stated(folder, "tokenizer_config.json").get("model_max_length"),
    ):
        if isinstance(length, (int, float)) and length >= 3:  # two tokens are special
            return int(min(length, config.max_length))
    return config.max_length
