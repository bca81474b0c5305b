"""The options of `simcse_jax.commands.geometry`."""

from argparse import Namespace
from typing import NamedTuple

from simcse_jax.commands.command_line import Model, Parser, add_postprocess, add_prompts, checked_split, parse_model
from simcse_jax.config.checks import check_postprocess
from simcse_jax.errors import UserError
from simcse_jax.evaluation.tasks import POSTPROCESSING
from simcse_jax.host.names import split_label

SCORES = ("sts_avg", "stsb")


class Options(NamedTuple):
    """The command line."""

    args: Namespace
    models: dict[str, Model]  # as they were given
    panels: dict[str, list[str]]  # the given models of each panel, by its title
    runs: dict[str, str]  # labels, empty for none, by the runs' folders


def read_arguments(parser: Parser) -> Options:
    """The options; `parser` has none yet.

    Raises:
      UserError: naming the option that is wrong, or has no effect with the others.
    """
    _add_options(parser)
    args = parser.parse_args()
    given = [spec for panel in args.models for spec in panel]
    if not given and not args.runs:
        raise UserError("nothing to measure; give --models, --runs or both")
    for option, names in (("--models", given), ("--runs", args.runs), ("--panels", args.panels)):
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated:
            raise UserError(f"{option}: {repeated} is given twice")
    if len(args.panels) not in (0, len(args.models)):
        raise UserError(f"--panels: must have a title for each --models, {len(args.models)}; it has {len(args.panels)}")
    if not given:
        alone = ("prompt", "prompt_name", "truncate_dim", "score", "postprocess", "postprocess_data")
        for option in (*alone, "postprocess_dimensions"):
            if getattr(args, option) not in (None, "", 0):
                raise UserError(f"--{option.replace('_', '-')}: is for --models, which is not given")
    elif args.data is None:
        raise UserError("--data: is missing; --models are measured on graded pairs, --runs alone draw their records")
    for option in ("prompt", "prompt_name", "truncate_dim") if given and args.runs else ():
        if getattr(args, option) is not None:
            raise UserError(
                f"--{option.replace('_', '-')}: is for --models, and the checkpoints of --runs are encoded without it; "
                "measure them separately"
            )
    args.split = checked_split(args.split, args.data)
    if args.batch_size < 1:
        raise UserError(f"--batch-size {args.batch_size}: must be 1 or more")
    runs: dict[str, str] = {}
    for spec in args.runs:
        name, label = split_label(spec)
        if name in runs:
            raise UserError(f"--runs: {name} is given twice")
        runs[name] = label
    titles = args.panels or [
        f"panel {number}" if len(args.models) > 1 else "" for number in range(1, 1 + len(args.models))
    ]
    models = read_models(given, args)
    return Options(args, models, dict(zip(titles, args.models, strict=True)), runs)


def _add_options(parser: Parser) -> None:
    """Adds the options of the command."""
    parser.add_argument(
        "--models",
        nargs="+",
        action="append",
        default=[],
        metavar="NAME[@LAYERS][@POOLER][@METHOD][=LABEL]",
        help="folders, hub ids, package:NAME, workdirs or glove:FILE; NAME@3 keeps the first 3 layers, NAME@avg takes "
        f"that pooler, NAME@whitening that post-processing ({' or '.join(POSTPROCESSING)}); given again: another panel",
    )
    parser.add_argument("--panels", nargs="+", default=[], metavar="TITLE", help="the panels' titles, one each")
    parser.add_argument(
        "--runs",
        nargs="+",
        default=[],
        metavar="WORKDIR[=LABEL]",
        help="runs: their kept checkpoints (checkpoint.keep_every=n), or without --data what they recorded "
        "(analysis.every=n, eval.every=n); those that differ in the seed alone are drawn as one",
    )
    parser.add_argument("--data", help="SentEval's data/downstream, or a file of pairs graded 0 to 5")
    parser.add_argument(
        "--split",
        choices=("dev", "test", "all"),
        help="the split of STS-B (default: test); all is train, dev and test together",
    )
    parser.add_argument(
        "--score",
        choices=SCORES,
        help="the models' colours: the average of the seven similarity tasks' test sets, or STS-B's pairs alone "
        "(default: sts_avg if --data is a folder)",
    )
    parser.add_argument("--batch-size", type=int, default=64, help="sentences encoded together on each device")
    add_prompts(parser)
    add_postprocess(parser, POSTPROCESSING, "for models that name none")
    parser.add_argument("--output", required=True, help="the folder for geometry.json and the pictures")


def read_models(given: list[str], args: Namespace) -> dict[str, Model]:
    """The models by what was given, with their labels and methods.

    Raises:
      UserError: when a label is given twice, or a post-processing lacks its data.
    """
    models: dict[str, Model] = {}
    for spec in given:
        name, label = split_label(spec)
        model = parse_model(name, POSTPROCESSING)
        models[spec] = model._replace(label=label, postprocess=model.postprocess or args.postprocess)
    labels = [model.label for model in models.values() if model.label]
    repeated = next((label for label in labels if labels.count(label) > 1), None)
    if repeated:
        raise UserError(f"--models: the label {repeated} is given twice")
    methods = {model.postprocess for model in models.values()} - {""}
    # Of several methods whitening is the one that takes dimensions.
    method = args.postprocess or ("whitening" if "whitening" in methods else next(iter(methods), ""))
    check_postprocess(method, args.postprocess_data, args.postprocess_dimensions, "--postprocess", "-")
    return models
