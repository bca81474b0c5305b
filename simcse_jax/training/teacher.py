"""The teachers: models that are read once, and their embeddings of all training sentences."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from simcse_jax.data.corpora import TeacherEmbeddings
from simcse_jax.data.equal_texts import numbered
from simcse_jax.data.examples import Examples
from simcse_jax.devices import processes
from simcse_jax.encoding.arguments import resolve_prompt
from simcse_jax.encoding.embedder import Embedder, on_local_devices
from simcse_jax.errors import UserError, about, system_message
from simcse_jax.host.outputs import output_folder
from simcse_jax.host.storage import local_path, sha256, written_once
from simcse_jax.huggingface.cross_encoder import is_cross_encoder
from simcse_jax.huggingface.load import choose_pooler_and_warn
from simcse_jax.models import parameters
from simcse_jax.objectives.objective import ELEMENTS, Objective
from simcse_jax.runs.loading import load_model


class TeacherSpec(NamedTuple):
    """The models whose embeddings are learned, and the objectives that learn them; see the fields `config.teacher`."""

    model: str
    second: str
    share: float
    kept: str
    objectives: tuple[Objective, ...]

    @property
    def names(self) -> dict[str, str]:
        """The models by their fields: one, or two."""
        first = {"config.teacher.model": self.model}
        return first | ({"config.teacher.second": self.second} if self.second else {})


def read_teachers(spec: TeacherSpec, student: str, size: int) -> list[Embedder]:
    """The models, as their files say that they encode, for a student whose embeddings have `size` elements.

    Raises:
      UserError: when one cannot be read, its embeddings have another size and the objective compares elements, or the
        folder that is to keep them cannot be written to.
    """
    if spec.kept:
        output_folder(spec.kept, option="config.teacher.kept")
    teachers = [_read_teacher(field, name) for field, name in spec.names.items()]
    elements = [objective.name for objective in spec.objectives if objective.teacher == ELEMENTS]
    if elements and teachers[0].dimension != size:
        raise UserError(
            f"config.teacher.model={spec.model}: its embeddings have {teachers[0].dimension} elements, those of "
            f"{student} {size}; objective.{elements[0]} compares them one by one"
        )
    return teachers


def _read_teacher(field: str, name: str) -> Embedder:
    with about(field):
        if is_cross_encoder(name):
            raise UserError(f"{name} is a cross-encoder; score candidates with mine --judge, and leave the field empty")
        model = load_model(name)
        pooler = choose_pooler_and_warn(model, None, stacklevel=2)
    settings = model.settings
    teacher = on_local_devices(model, model.tokenizer, pooler, "float32")
    prompt = resolve_prompt(settings.prompts, settings.default_prompt_name, None, None)
    batch_size = 64 * len(jax.local_devices())
    teacher = dataclasses.replace(teacher, normalize=model.normalize, prompt=prompt, batch_size=batch_size)
    if settings.truncate_dim and settings.truncate_dim < teacher.dimension:
        teacher = teacher.truncated(settings.truncate_dim, normalized_first=model.normalize)
    return teacher


def teach(spec: TeacherSpec, teachers: Sequence[Embedder], examples: Examples) -> TeacherEmbeddings:
    """The teachers' embeddings of all sentences, each distinct one encoded once, or read where they were kept."""
    places, sentences = numbered(zip(*examples.columns, strict=True))
    keys = [_key(teacher, sentences) for teacher in teachers]
    named = zip(spec.names.items(), teachers, keys, strict=True)
    embeddings = [_read_or_encode(spec.kept, *name, teacher, key, sentences) for name, teacher, key in named]
    if len(embeddings) == 1:
        return TeacherEmbeddings(embeddings[0], places, keys[0])
    key = sha256(np.frombuffer(f"{keys} {spec.share}".encode(), np.uint8))
    return TeacherEmbeddings(embeddings[0], places, key, embeddings[1], spec.share)


def _read_or_encode(
    folder: str, field: str, name: str, teacher: Embedder, key: str, sentences: list[str]
) -> np.ndarray:
    if not folder:
        return _encode(field, name, teacher, sentences)
    file = local_path(folder) / f"{key}.npy"
    if not file.is_file():
        embeddings = _encode(field, name, teacher, sentences)
        with written_once(file) as temporary, temporary.open("wb") as opened:
            np.save(opened, embeddings)
    return _read(file, len(sentences), teacher.dimension)


def _encode(field: str, name: str, teacher: Embedder, sentences: list[str]) -> np.ndarray:
    processes.say(f"encoding {len(sentences):,} distinct sentences with the teacher {name}")
    with about(f"{field}={name}"):
        return teacher.with_progress(sentences, processes.is_first())


def _key(teacher: Embedder, sentences: list[str]) -> str:
    """A hash of all that the embeddings depend on."""
    arrays = [np.asarray(value) for _, value in sorted(teacher.params.items())]
    architecture = parameters.merge(teacher.graph, parameters.sentence_encoder(teacher.params)).encoder.config
    about = (architecture, teacher.pooler, teacher.use_head, teacher.max_length, teacher.normalize, teacher.prompt)
    text = (repr((*about, teacher.include_prompt, teacher.modules, sentences)) + architecture.identity).encode()
    return sha256(np.frombuffer(text + teacher.tokenizer.content(), np.uint8), *arrays)


def _read(file: Path, rows: int, size: int) -> np.ndarray:
    try:
        embeddings = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:  # the last of an empty file
        raise UserError(f"{file}: cannot be read: {system_message(error)}; remove it, and it is made again") from None
    if embeddings.shape != (rows, size) or embeddings.dtype != np.float32:
        raise UserError(f"{file}: is damaged; remove it, and it is made again")
    processes.say(f"{file.parent}: has the teacher's embeddings of {rows:,} different sentences")
    return embeddings
