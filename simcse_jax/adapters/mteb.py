"""Models for `mteb.evaluate`, and the tasks of mteb as an evaluator. Needs the package mteb, and PyTorch with it.

`mteb.evaluate(Encoder(SimCSE("runs/unsup")), mteb.get_tasks(["STSBenchmark"]))` scores a model with mteb's own code, in
its own results.
"""

import contextlib
import copy
import dataclasses
import functools
import importlib.metadata
import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack, get_args

import numpy as np
from numpy.typing import ArrayLike

from simcse_jax.encoding.arguments import EncodeOptions, with_prompt_of
from simcse_jax.errors import UserError, hint, reason, require
from simcse_jax.evaluation import sts
from simcse_jax.evaluation.evaluator import encode_once, with_titles
from simcse_jax.host.storage import sha256
from simcse_jax.huggingface.public_names import public_value
from simcse_jax.huggingface.sentence_transformers import DOCUMENT_PROMPTS
from simcse_jax.simcse import SimCSE
from simcse_jax.vectors.similarity import pairwise, similarities

if TYPE_CHECKING:
    from mteb import TaskMetadata
    from mteb.models import ModelMeta
    from mteb.types import BatchedInput, PromptType
    from torch.utils.data import DataLoader

ROLES = {"query": ("query",), "document": DOCUMENT_PROMPTS}  # mteb's, with the names of their prompts
BEST = 100  # the highest score


def prompt_names(task: str, kind: str, role: str | None) -> tuple[str, ...]:
    """The names that a model's prompt for a task may have; the first one that the model has counts.

    The order is mteb's, and after it sentence-transformers' for queries and documents.

    Args:
      role: "query" or "document"; None: a task without roles.
    """
    if role is None:
        return task, kind
    return f"{task}-{role}", task, f"{kind}-{role}", kind, *ROLES[role]


class MtebEncoder:
    """A model as `mteb.evaluate` takes it (mteb's `EncoderProtocol`), with the prompts of its own settings.

    `mteb_model_meta` is mteb's record of the model. Its revision is a fingerprint of all that embeddings depend on, so
    that results in mteb's cache are never those of another model with the same name.
    """

    mteb_model_meta: "ModelMeta"

    def __init__(self, model: SimCSE, **options: Unpack[EncodeOptions]):
        """The model as it is now; later changes of its attributes have no effect.

        Args:
          options: of `SimCSE.encode`, in place of the model's own. A `prompt` or `prompt_name` is for all tasks and
            both roles.
        """
        require("mteb", "mteb")
        self._model, self._options = copy.copy(model), options
        self._model.prompts = dict(model.prompts)
        self.mteb_model_meta = _meta(self._model, options)

    def encode(
        self,
        inputs: "DataLoader[BatchedInput]",
        *,
        task_metadata: "TaskMetadata",
        hf_split: str,
        hf_subset: str,
        prompt_type: "PromptType | None" = None,
        **kwargs: Any,
    ) -> np.ndarray:
        """(N, D) float32 embeddings of N texts, those of a document with its title before it, as mteb joins them.

        Args:
          inputs: batches with the texts under "text".
          prompt_type: the role of the texts; None: a task without roles.
          kwargs: mteb's `encode_kwargs`: `batch_size` and `show_progress_bar`.
        """
        texts = [text for batch in inputs for text in batch["text"]]
        names = prompt_names(task_metadata.name, task_metadata.type, prompt_type.value if prompt_type else None)
        options = with_prompt_of(self._options, self._model.prompts, *names)
        return encode_once(functools.partial(self._model.encode, **{**kwargs, **options}), [texts])[0]

    def similarity(self, embeddings1: ArrayLike, embeddings2: ArrayLike) -> np.ndarray:
        """(N, M) similarities of (N, D) and (M, D), by the model's `similarity_fn_name`; a number of (D,) and (D,)."""
        first, second = np.asarray(embeddings1), np.asarray(embeddings2)
        scores = similarities(np.atleast_2d(first), np.atleast_2d(second), self._model.similarity_fn_name)
        return scores[0, 0] if first.ndim == second.ndim == 1 else scores

    def similarity_pairwise(self, embeddings1: ArrayLike, embeddings2: ArrayLike) -> np.ndarray:
        """(N,) similarities of the rows of (N, D) and (N, D)."""
        return pairwise(np.asarray(embeddings1), np.asarray(embeddings2), self._model.similarity_fn_name)


def _meta(model: SimCSE, options: EncodeOptions) -> "ModelMeta":
    """mteb's record of a model."""
    from mteb.models import ModelMeta
    from mteb.models.model_meta import ScoringFunction
    from mteb.types import Licenses

    dimension = model.encode([], **options).shape[1]  # refuses options, too
    public, size = public_value("model.init_from", model.name), model.num_parameters
    base, licence = model.card.get("base_model"), model.card.get("license")
    name = re.sub(r"[^\w./-]+", "-", public)
    settings = (model.prompts, model.default_prompt_name, model.normalize, model.truncate_dim, model.max_length)
    about = repr((model.identity(), settings, sorted(options.items())))
    return ModelMeta.create_empty(
        {
            "name": name if "/" in name else f"simcse_jax/{name}",  # mteb wants an owner
            "revision": sha256(np.frombuffer(about.encode(), np.uint8)),
            "max_tokens": model.max_length,
            "embed_dim": dimension,
            "framework": ["JAX"],
            "similarity_fn_name": ScoringFunction(model.similarity_fn_name),
            "use_instructions": bool(model.prompts),
            "n_parameters": size,
            "n_embedding_parameters": model.config.vocab_size * model.config.table_size,
            "memory_usage_mb": round(4 * size / 2**20),  # in float32, as they are loaded
            "license": licence if licence in get_args(Licenses) else None,
            "adapted_from": base if isinstance(base, str) else None,
        }
    )


@dataclasses.dataclass(frozen=True)
class Benchmarks:
    """Scores tasks of mteb: {"mteb": results by task, "mteb_average": the mean of their main scores}.

    A task's result is {"main_score": × 100, "measure": its name, "type": the task's, "revision": of its data,
    "mteb_version", "scores": mteb's own by split, a dictionary for each subset, as mteb has them, mostly from 0 to 1}.
    A figure that is not defined is None, and then there is no average.
    """

    tasks: Mapping[str, Any]  # by name, with their data

    def __call__(self, embed: Any) -> dict[str, Any]:
        """The numbers of one model; `embed` has a `model` and `options` of `SimCSE.encode`, as evaluate hands it."""
        import mteb

        encoder = MtebEncoder(embed.model, **embed.options)
        chosen = {"batch_size": embed.model.batch_size, "show_progress_bar": True}
        results: dict[str, Any] = {}
        for name, task in with_titles(self.tasks):
            with _restored_randomness(task):
                evaluated = mteb.evaluate(
                    encoder, task, co2_tracker=False, cache=None, encode_kwargs={**chosen}, show_progress_bar=False
                )
            (result,) = evaluated.task_results
            results[name] = {
                "main_score": _rounded(result.main_score),
                "measure": task.metadata.main_score,
                "type": task.metadata.type,
                "revision": result.dataset_revision,
                "mteb_version": result.mteb_version,
                "scores": _plain(result.scores),
            }
        figures = [result["main_score"] for result in results.values()]
        present = [figure for figure in figures if figure is not None]
        average = {"mteb_average": round(float(np.mean(present)), 4)} if len(present) == len(figures) else {}
        return {"mteb": results, **average}

    def table(self, numbers: Mapping[str, Any]) -> str:
        """A row for each task, and one for their average if there are several."""
        rows = [["", "measure", "score"]]
        for name, result in numbers["mteb"].items():
            rows.append([name, result["measure"], _shown(result["main_score"])])
        if len(self.tasks) > 1:
            rows.append(["average", "", _shown(numbers.get("mteb_average"))])
        return sts.aligned(rows)

    @property
    def protocol(self) -> str:
        """A description of the figures."""
        lines = [f"main scores × 100, by mteb {importlib.metadata.version('mteb')}"]
        for name, task in self.tasks.items():
            lines.append(f"{name}: {task.metadata.type}, {', '.join(task.eval_splits)}")
        return "\n".join(lines)


def read(names: Sequence[str]) -> Benchmarks:
    """The tasks of mteb of these names, with their data, which mteb fetches from the hub or finds in its cache."""
    require("mteb", "mteb")
    import datasets

    datasets.disable_progress_bars()
    for library in ("mteb", "datasets", "huggingface_hub"):  # mteb raises its warnings, too; the hub's are of retries
        logging.getLogger(library).setLevel(logging.ERROR)
    tasks = {name: _task(name) for name in names}
    for name, task in tasks.items():
        for part in _parts(task):
            try:
                part.load_data()
            except Exception as error:  # of any kind: the hub's, the library's, or the file system's
                raise UserError(f"mteb:{name}: its data could not be loaded: {reason(error)}") from None
    return Benchmarks(tasks)


def _task(name: str) -> Any:
    import mteb

    try:
        task = mteb.get_task(name)
    except KeyError:
        closest = hint(name, [task.metadata.name for task in mteb.get_tasks()], "mteb:")
        raise UserError(f"--tasks: mteb has no task {name!r}{closest}") from None
    if modalities := sorted(set(task.modalities) - {"text"}):
        raise UserError(f"mteb:{name}: a task of {', '.join(modalities)}; these models take text alone")
    return task


def _parts(task: Any) -> list[Any]:
    """The tasks that a task is the mean of; otherwise itself."""
    return list(task.tasks) if task.is_aggregate else [task]


@contextlib.contextmanager
def _restored_randomness(task: Any) -> Iterator[None]:
    """Sets a task's random numbers back after the block, so that each model has the same ones."""
    before = [(part, copy.deepcopy((part.rng_state, part.np_rng))) for part in _parts(task)]
    try:
        yield
    finally:
        for part, (state, generator) in before:
            part.rng_state, part.np_rng = state, generator


def _plain(value: Any) -> Any:
    """Scores as JSON can hold them: None for what is not a finite number."""
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value


def _rounded(score: float | None) -> float | None:
    return None if score is None or not math.isfinite(score) else round(BEST * float(score), 4)


def _shown(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:.2f}"
