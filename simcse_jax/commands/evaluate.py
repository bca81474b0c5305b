"""simcse-jax evaluate --model M --data SENTEVAL_FOLDER: scores on STS, transfer, retrieval and mteb."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from simcse_jax.commands.command_line import run_command, warnings_in_a_line
from simcse_jax.commands.evaluate_arguments import Options, parse
from simcse_jax.host.outputs import printing

if TYPE_CHECKING:
    import numpy as np

    from simcse_jax.adapters.mteb import Benchmarks
    from simcse_jax.encoding.arguments import EncodeOptions
    from simcse_jax.evaluation.relatedness import WithRegressor
    from simcse_jax.evaluation.retrieval import Retrieval
    from simcse_jax.evaluation.sts import Similarity
    from simcse_jax.evaluation.transfer import Transfer
    from simcse_jax.simcse import SimCSE

SETTINGS = "retrieval_settings"  # in the scores: the storage and both prompts


def main() -> None:
    """Reads the data first, so that a mistake in it is reported before a model is loaded."""
    options = parse()
    args = options.args
    from simcse_jax.encoding.arguments import check_truncation
    from simcse_jax.evaluation import postprocess
    from simcse_jax.host.progress import doing
    from simcse_jax.host.storage import write_atomically
    from simcse_jax.simcse import SimCSE

    evaluators = read(options)
    fit_on = None
    if args.postprocess:
        fit_on = postprocess.read(args.postprocess, args.postprocess_data, args.postprocess_dimensions, args.data)
    model = SimCSE(
        args.model,
        pooler=args.pooler,
        num_layers=args.num_layers,
        batch_size=args.batch_size,
        dtype=args.dtype,
        truncate_dim=args.truncate_dim,
    )
    before = f", prompt {prompt!r}" if (prompt := model.prompt_of(args.prompt, args.prompt_name)) else ""
    if options.dimensions:
        model.truncate_dim = None
    for size in options.dimensions:
        check_truncation(size, model.dimension, "--dimensions")
    before += f", {model.dimension} elements" if model.truncate_dim else ""
    if fit_on:
        for size in options.dimensions or [model.dimension]:
            postprocess.check(fit_on, size, [item for each in evaluators for item in each.tasks.items()])
    after = f", after {args.postprocess} fit on {args.postprocess_data}" if fit_on else ""
    before += encoders(model, args.prompt, args.prompt_name).roles if options.folders or options.benchmarks else ""
    found: dict[int, dict[str, Any]] = {}
    with printing(options.output is not None) as say:
        say(f"{args.model}: pooler {model.pooler}{' with head' if model.use_head else ''}{before}{after}")
        settings = {"storage": args.storage or "float32", **encoders(model, args.prompt, args.prompt_name).prompts}
        if options.baseline and (others := unlike(options.baseline, settings)):
            say(f"--baseline {args.baseline}: was scored with {others}")
        for size in options.dimensions or [0]:
            scores = found[size] = {}
            with doing(args.postprocess), warnings_in_a_line():
                embed = postprocess.applied(encoders(model, args.prompt, args.prompt_name, size or None), fit_on)
                for evaluator in evaluators:
                    numbers = evaluator(embed)
                    at = f"{size} elements: " if size else ""
                    say(f"{at}{evaluator.protocol}\n{evaluator.table(numbers)}")
                    scores |= evaluator.flat(numbers)
                if options.folders:
                    scores[SETTINGS] = settings
        if options.output:
            written = found.get(0) or {"truncated": {str(size): scores for size, scores in found.items()}}
            write_atomically(options.output, json.dumps(written, indent=2) + "\n")


@dataclasses.dataclass(frozen=True)
class Encoders:
    """A model as the options say, with progress: an evaluator's `embed`, and its two roles in retrieval."""

    model: "SimCSE"
    options: "EncodeOptions"  # in place of the model's own
    prompts: dict[str, str]  # query_prompt, document_prompt
    roles: str  # those of them that are not the model's usual one, for people

    def __call__(self, sentences: Sequence[str]) -> "np.ndarray":
        """(N, D) embeddings of N sentences."""
        return self.model.encode(sentences, show_progress_bar=True, **self.options)

    def encode_query(self, sentences: Sequence[str]) -> "np.ndarray":
        """(N, D) embeddings of N queries."""
        return self.model.encode_query(sentences, show_progress_bar=True, **self.options)

    def encode_document(self, sentences: Sequence[str]) -> "np.ndarray":
        """(N, D) embeddings of N documents."""
        return self.model.encode_document(sentences, show_progress_bar=True, **self.options)

    @property
    def similarity_fn_name(self) -> str:
        """How the model compares embeddings."""
        return self.model.similarity_fn_name


def encoders(model: "SimCSE", prompt: str | None, prompt_name: str | None, size: int | None = None) -> Encoders:
    """The model's, with the prompt that is given; otherwise queries and documents have their own.

    `size` is the number of elements that embeddings keep; None: as the model says.
    """
    from simcse_jax.encoding.arguments import EncodeOptions, with_prompt_of
    from simcse_jax.simcse import DOCUMENT_PROMPTS

    given: EncodeOptions = {"prompt": prompt, "prompt_name": prompt_name, "truncate_dim": size}
    prompts, roles = {}, ""
    for side, role, names in (("query", "queries", ("query",)), ("document", "documents", DOCUMENT_PROMPTS)):
        own = with_prompt_of(given, model.prompts, *names)
        prompts[f"{side}_prompt"] = text = model.prompt_of(own["prompt"], own["prompt_name"])
        roles += f", {role} with prompt {text!r}" if text != model.prompt_of(prompt, prompt_name) else ""
    return Encoders(model, given, prompts, roles)


def unlike(baseline: Mapping[str, Any], settings: Mapping[str, str]) -> str:
    """How earlier scores of retrieval were made otherwise, for people; empty: they were not.

    Such scores may be what one wants to compare with, so they are named, not refused.
    """
    earlier = baseline.get(SETTINGS)
    if not isinstance(earlier, dict):
        return f"unknown settings: it has no {SETTINGS}"
    others = {name: earlier.get(name) for name, value in settings.items() if earlier.get(name) != value}
    return ", ".join(f"{name} {value!r} instead of {settings[name]!r}" for name, value in others.items())


def read(options: Options) -> "list[Similarity | WithRegressor | Transfer | Retrieval | Benchmarks]":
    """The evaluators of the tasks in the options; prints which tasks have no data.

    Raises:
      UserError: for anything that is wrong with the data.
    """
    from simcse_jax.evaluation import relatedness, retrieval, sts, transfer, transfer_files

    args = options.args
    evaluators: list[Similarity | WithRegressor | Transfer | Retrieval | Benchmarks] = []
    if options.sts_tasks:
        pairs, missing = sts.read(args.data, options.sts_tasks, args.split)
        say_missing(args.data, missing, "has no development set" if args.split == "dev" else "not found")
        similarity = sts.Similarity(pairs, missing, options.metrics, options.aggregations, every_average=True)
        graded = relatedness.read(args.data, list(pairs)) if args.regressor else {}
        evaluators.append(relatedness.WithRegressor(similarity, graded) if graded else similarity)
    if options.transfer_tasks:
        classes, missing = transfer_files.read(args.data, options.transfer_tasks)
        say_missing(args.data, missing, "not found")
        evaluators.append(transfer.Transfer(classes, missing, options.transfer_protocol))
    if options.folders:
        tasks = retrieval.read(options.folders, args.split, args.documents or 0, args.documents_seed or 0)
        scored = retrieval.Retrieval(tasks, options.measures, args.storage or "float32", per_query=True)
        evaluators.append(scored.with_baseline(options.baseline, f"--baseline {args.baseline}"))
    if options.benchmarks:
        from simcse_jax.adapters import mteb

        with warnings_in_a_line():
            evaluators.append(mteb.read(options.benchmarks))
    return evaluators


def say_missing(data: str, tasks: list[str], why: str) -> None:
    """Prints the tasks that are left out."""
    if tasks:
        print(f"{data}: {', '.join(tasks)} {why}; left out, so no average is given", flush=True)


if __name__ == "__main__":
    run_command(main)
