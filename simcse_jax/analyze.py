"""python -m simcse_jax.analyze --model M [--compare BASE] --data FILE --output DIR, or --runs A B [--data FILE] …

What contrastive learning does to the space: isotropy, self- and intra-sentence similarity of every layer, and what
single dimensions contribute, measured as the isotropy paper does; of a model alone, or beside what it was trained from.
`--runs` draws how the last layer changed while runs trained. Writes numbers, pictures and a page with both.
"""

import dataclasses
from argparse import Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from simcse_jax.analysis.protocol import CHOICES, Protocol, option
from simcse_jax.command_line import Parser, parse_model, run_command
from simcse_jax.errors import UserError
from simcse_jax.storage import local_path, output_folder

if TYPE_CHECKING:
    from simcse_jax.analysis.map import Map
    from simcse_jax.analysis.measure import Measurement
    from simcse_jax.analysis.tokens import Survey
    from simcse_jax.evaluation import sts
    from simcse_jax.simcse import SimCSE

NUMBERS = {  # the protocol's, and what they are
    "min_count": "token types that occur less often have no self-similarity",
    "max_types": "so many have one, the most frequent; memory grows with them",
    "samples": "tokens of the anisotropy baseline, each of another sentence",
    "seed": "of that sample",
}


def main() -> None:
    """Reads the data and all models first, so that a mistake is told before hours of encoding."""
    args, protocol = read_arguments()
    if args.runs:
        from simcse_jax.analyze_runs import analyze_runs

        return analyze_runs(args, protocol, read_data(args.data, args.column) if args.data else None)
    from simcse_jax.analysis import report, tokens
    from simcse_jax.runs.workdir import versions

    sentences, data, _ = read_data(args.data, args.column)
    pairs = [[args.model, args.compare] if args.compare else [args.model], args.second_pair or []]
    models = {name: load(name, args.batch_size) for pair in pairs for name in pair}
    max_length = min(model.max_length for model, _ in models.values())
    encoders = {name: model.token_encoder(max_length) for name, (model, _) in models.items()}
    surveys = {name: tokens.survey(encoder, sentences, protocol, args.data) for name, encoder in encoders.items()}
    for pair in filter(None, pairs):
        tokens.check_same_tokens({name: surveys[name] for name in pair})
    if args.second_pair:
        tokens.check_in_common(surveys[args.model], surveys[args.second_pair[0]])
    output = output_folder(args.output)
    say_data(data, surveys[args.model], max_length)

    from simcse_jax.analysis.measure import measure

    found = {}
    for name, encoder in encoders.items():
        found[name] = measure(encoder, surveys[name], show_progress_bar=None)
        print(f"\n{name}\n{table(found[name])}", flush=True)
    metrics = collect(args, data, max_length, surveys, found)
    say_changes(metrics)
    drawn = make_map(report.models_of(metrics), [models[name] for name in pairs[0]], surveys[args.model])
    names = report.write(metrics, output, versions=versions(), embedding_map=drawn)
    pictures = sum(name.endswith(".png") for name in names)
    print(f"\n{output}: {report.METRICS}, {report.PAGE} and {pictures} pictures (PNG, SVG and their numbers in JSON)")


def read_arguments() -> tuple[Namespace, Protocol]:
    """The command line.

    Raises:
      UserError: naming the option that is wrong.
    """
    parser = Parser(
        prog="simcse_jax.analyze",
        description="Isotropy and contextualization of a model's layers, or how the last one changed in training. "
        "Needs a model and sentences, or the folders of runs. Writes numbers, pictures and a page to --output.",
    )
    model = "NAME[@LAYERS]"
    parser.add_argument("--model", metavar=model, help="a folder, hub id, package:NAME or workdir; NAME@3: 3 layers")
    parser.add_argument(
        "--runs",
        nargs="+",
        default=[],
        metavar="WORKDIR",
        help="in place of --model: their kept checkpoints, measured on --data; without it what analysis.every recorded",
    )
    parser.add_argument("--compare", metavar=model, help="what it was trained from, or any model of the same tokens")
    parser.add_argument(
        "--second-pair",
        nargs=2,
        metavar=("MODEL", "BASE"),
        help="another model and what it was trained from: do the same tokens change in both (eq. 11)?",
    )
    parser.add_argument("--data", help="a .txt, .csv, .tsv, .jsonl or .parquet file, or SentEval's data/downstream")
    parser.add_argument("--column", help="of the sentences (default: sentence, text, sent0 or anchor, or the only one)")
    parser.add_argument("--output", required=True, help="the folder for metrics.json, report.html and the pictures")
    parser.add_argument("--batch-size", type=int, default=64, help="sentences encoded together on each device")
    choices = parser.add_argument_group("protocol", "what the paper leaves open; the defaults come closest to it")
    for name, values in CHOICES.items():
        text = "; ".join(f"{value}: {meaning}" for value, meaning in values.items())
        choices.add_argument(option(name), choices=values, default=getattr(Protocol, name), help=text)
    for name, text in NUMBERS.items():
        default = getattr(Protocol, name)
        choices.add_argument(option(name), type=int, default=default, metavar="N", help=text)
    args = parser.parse_args()
    if args.batch_size < 1:
        raise UserError(f"--batch-size {args.batch_size}: must be 1 or more")
    protocol = Protocol(**{field.name: getattr(args, field.name) for field in dataclasses.fields(Protocol)})
    if args.runs:
        check_runs(args, protocol)
        return args, protocol
    if not args.model:
        raise UserError("name what to measure: --model, or --runs")
    if not args.data:
        raise UserError("--data: is missing, the sentences to measure on")
    if args.second_pair and not args.compare:
        raise UserError("--second-pair: is compared with --model and --compare; give --compare too")
    if args.compare == args.model:
        raise UserError(f"--compare {args.compare}: is the model itself")
    if args.second_pair and args.second_pair[0] == args.second_pair[1]:
        raise UserError(f"--second-pair {' '.join(args.second_pair)}: is a model and itself")
    return args, protocol


def check_runs(args: Namespace, protocol: Protocol) -> None:
    """Refuses what has no use beside `--runs`.

    Raises:
      UserError: naming the option.
    """
    for option_, value in (("--model", args.model), ("--compare", args.compare), ("--second-pair", args.second_pair)):
        if value:
            raise UserError(f"{option_}: has no use beside --runs; leave one of them out")
    if repeated := next((name for name in args.runs if args.runs.count(name) > 1), None):
        raise UserError(f"--runs: {repeated} is there twice")
    fields = dataclasses.fields(Protocol)
    given = [option(field.name) for field in fields if getattr(protocol, field.name) != field.default]
    given += ["--column"] if args.column else []
    if given and not args.data:
        raise UserError(f"{given[0]}: is for --data; without it nothing is measured anew")


class Data(NamedTuple):
    """What to measure on."""

    sentences: list[str]
    name: str
    pairs: "sts.Pairs | None"  # that the sentences are of, where they are of graded pairs


def read_data(name: str, column: str | None) -> Data:
    """The sentences of a file; of graded pairs the first ones, for the second ones repeat their words.

    Raises:
      UserError: in one line, for whatever is wrong with the data.
    """
    from simcse_jax.data.sentences import read_sentences
    from simcse_jax.evaluation import sts

    path = local_path(name)
    if not sts.is_graded(path):
        return Data(read_sentences(name, column), path.name, None)
    if column:
        raise UserError(f"--column {column}: of graded pairs the first sentences are taken; leave it out")
    pairs = next(iter(sts.read(name, ["STSBenchmark"])[0].values()))
    return Data(pairs.first, "STS-B test" if path.is_dir() else path.name, pairs)


def load(name: str, batch_size: int) -> tuple["SimCSE", str | None]:
    """A model, and its pooler; None where its own is not known here, which the map of the sentences alone needs."""
    from simcse_jax.simcse import SimCSE

    spec = parse_model(name)
    # With any pooler, for a model whose own is not known is measured too.
    model = SimCSE(spec.name, pooler=spec.pooler or "avg", num_layers=spec.num_layers, batch_size=batch_size)
    return model, spec.pooler or model.own_pooler


def collect(
    args: Namespace, data: str, max_length: int, surveys: "dict[str, Survey]", found: "dict[str, Measurement]"
) -> dict[str, Any]:
    """What `metrics.json` holds."""
    from simcse_jax.analysis import change
    from simcse_jax.analysis.measure import token_changes

    survey = surveys[args.model]
    protocol = dataclasses.asdict(survey.protocol) | {"samples": len(survey.sample), "max_length": max_length}
    metrics = {
        "model": args.model,
        "compare": args.compare,
        "data": data,
        "sentences": len(survey.sentences),
        "tokens": int(survey.units.sum()),
        "types": len(survey.names),
        "protocol": protocol,
        **found[args.model].to_json(),
    }
    if not args.compare:
        return metrics
    changes = token_changes(survey, found[args.model], found[args.compare])
    more, less = change.most_changed(changes)
    rows = [{**token._asdict(), "change": round(token.change, 6)} for token in changes]
    listed = {"tokens": rows, "more_contextualized": more, "less_contextualized": less}
    metrics |= {"base": found[args.compare].to_json(), "self_similarity_change": listed}
    if args.second_pair:
        tuned, base = args.second_pair
        both = change.correlation(changes, token_changes(surveys[tuned], found[tuned], found[base]))
        by_n = [None if r is None else round(r, 6) for r in both.by_n]
        about = {"models": [[args.model, args.compare], [tuned, base]]}
        metrics["correlation"] = about | {"by_n": by_n, "best_n": both.best_n, "best": round(both.best, 6)}
    return metrics


def make_map(names: Iterable[str], models: "list[tuple[SimCSE, str | None]]", survey: "Survey") -> "Map | None":
    """A map of the sentences that the anisotropy baseline is of; None, saying why, where they have no embeddings.

    Args:
      names: what to call the models.
      models: the model, and what it is compared with, as `load` gives them.
      survey: of the data.
    """
    from simcse_jax.analysis.map import project

    for model, pooler in models:
        if pooler is None:
            print(f"no map of the sentences: how {model.name} pools is not known here; name a pooler, {model.name}@avg")
            return None
    if len({model.config.hidden_size for model, _ in models}) > 1:
        print("no map of the sentences: the embeddings of the two models differ in size")
        return None
    some = [survey.sentences[row] for row in survey.sample]
    embeddings = [model.encode_counted(some, pooler=pooler).embeddings for model, pooler in models]
    found = list(zip(names, embeddings, strict=True))
    return project(dict(reversed(found)))  # before and after, from left to right


def say_data(data: str, survey: "Survey", max_length: int) -> None:
    """What is measured, and what is less than might be expected."""
    protocol = survey.protocol
    types = f"{len(survey.names):,} token types that occur {protocol.min_count} times or more"
    print(f"{data}: {len(survey.sentences):,} sentences, {survey.units.sum():,} tokens, {types}")
    if len(survey.sample) < protocol.samples:
        print(f"{data}: the anisotropy baseline is of {len(survey.sample)} tokens, one of each sentence")
    if survey.cut:
        print(f"{data}: {survey.cut:,} of the sentences are longer than {max_length} tokens and cut there")


def say_changes(metrics: dict[str, Any]) -> None:
    """The tokens that changed most, and how two pairs of models agree."""
    if changes := metrics.get("self_similarity_change"):
        print(f"\nmore contextualized than in {metrics['compare']}: {' '.join(changes['more_contextualized'])}")
        print(f"less contextualized: {' '.join(changes['less_contextualized'])}")
    if both := metrics.get("correlation"):
        where = f"the {both['best_n']} most frequent of {len(both['by_n'])} tokens"
        print(f"correlation of the changes in both pairs of models: at best {both['best']:.3f}, over {where}")


def table(found: "Measurement") -> str:
    """A line a layer, and what the dimensions of the last one make up."""
    from simcse_jax.evaluation.sts import aligned

    numbers = found.to_json()
    header = ["layer", "anisotropy", "self-sim.", "intra-sent.", "L2 norm", "adj. self", "adj. intra"]
    rows = [
        [f"{row['layer']}", *(f"{value:.3f}" for name, value in row.items() if name != "layer")]
        for row in numbers["layers"]
    ]
    lines = [aligned([header, *rows])]
    for field, pairs in (("dimensions", "pairs of the same token"), ("dimensions_random_pairs", "random pairs")):
        part = numbers[field]
        if part["cumulated"] is None:
            lines.append(f"{pairs}: their mean cosine is not positive, so dimensions have no share of it")
            continue
        shares = ", ".join(f"{share:.3f}" for share in part["top_share"])
        needed = ", ".join(map(str, part["needed"].values()))
        lines.append(f"{pairs}: the top 1, 2, 3 dimensions make up {shares}; 10, 20, 50 % take {needed}")
    r2 = ", ".join(f"{row['r2']:.3f} ({row['k']})" for row in numbers["informativity"])
    return "\n".join([*lines, f"r² without the top k dimensions: {r2}"])


if __name__ == "__main__":
    run_command(main)
