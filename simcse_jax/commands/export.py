"""simcse-jax export --workdir DIR --output FOLDER: a model for transformers and sentence-transformers."""

import argparse

from simcse_jax.commands.command_line import Parser, started_as
from simcse_jax.errors import UserError
from simcse_jax.host.names import split_step
from simcse_jax.host.outputs import printing
from simcse_jax.host.storage import local_path
from simcse_jax.huggingface import hub


def parse() -> argparse.Namespace:
    """The arguments, of which those that exclude each other are refused."""
    parser = Parser(
        "export",
        description="Exports a trained model for transformers and sentence-transformers. Needs the folder of a run. "
        "Writes the model, its tokenizer and its model card to --output.",
    )
    parser.add_argument(
        "--workdir",
        required=True,
        help="a run's folder, whose best checkpoint is exported; DIR@step=200 exports that one",
    )
    parser.add_argument("--output", required=True, help="the folder to write; an earlier export there is replaced")
    parser.add_argument(
        "--adapter", action="store_true", help="write LoRA alone, as a folder for PEFT; by default it is merged"
    )
    parser.add_argument(
        "--truncate-dim",
        type=int,
        help="the model's embeddings keep so many of their elements, wherever it is used (default: all)",
    )
    parser.add_argument("--push-to-hub", metavar="OWNER/NAME", help="upload it to this model of the hub")
    parser.add_argument(
        "--license",
        metavar="ID",
        help="the hub's name of a licence, e.g. apache-2.0 (default: the base model's, if known)",
    )
    parser.add_argument(
        "--base-model",
        metavar="NAME",
        help="for the model card: the hub's name of the model that training started from (default: the run's, if it "
        "came from the hub)",
    )
    parser.add_argument(
        "--language",
        metavar="CODE[,CODE]",
        help="for the model card: the languages, such as en or en,de (default: none are named)",
    )
    parser.add_argument(
        "--private", action="store_true", help="with --push-to-hub: only you and your organization see it"
    )
    parser.add_argument("--revision", help="with --push-to-hub: the branch (default: main)")
    args = parser.parse_args()
    if args.push_to_hub is None and (args.private or args.revision is not None):
        raise UserError(f"--{'private' if args.private else 'revision'}: has no use without --push-to-hub OWNER/NAME")
    for option in ("push_to_hub", "license", "base_model", "language", "truncate_dim"):
        if args.adapter and getattr(args, option) is not None:
            raise UserError(f"--{option.replace('_', '-')}: is for a whole model; leave out --adapter")
    return args


def main() -> None:
    """The command."""
    args = parse()
    from simcse_jax.host.storage import as_path
    from simcse_jax.runs.card_fields import card_fields
    from simcse_jax.runs.exporting import check_places, export, export_adapter

    fields = card_fields(license=args.license, base_model=args.base_model, language=args.language)
    name, step = split_step(args.workdir)
    workdir, output = as_path(name), local_path(args.output)
    check_places(workdir, output)
    if args.push_to_hub is not None:
        hub.check_push(args.push_to_hub, args.private, args.revision)
    if args.adapter:
        export_adapter(workdir, output, step)
        with printing(False) as say:
            say(f"exported to {args.output}; open it with")
            say(f"  peft.AutoPeftModelForFeatureExtraction.from_pretrained({args.output!r})")
            say("  --config.model.lora.init_from, which trains it further")
        return
    export(workdir, output, args.push_to_hub, args.revision, fields, step, args.truncate_dim)
    with printing(args.push_to_hub is not None) as say:
        say(f"exported to {args.output}; open it with")
        say(f"  sentence_transformers.SentenceTransformer({args.output!r})")
        if (output / "config.json").is_file():  # word vectors are no model of transformers
            say(f"  transformers.AutoModel.from_pretrained({args.output!r})")
        say(f"  {started_as('evaluate')} --model {args.output} --data SENTEVAL_FOLDER")
        if args.push_to_hub is not None:
            say(f"pushed: {hub.push(output, args.push_to_hub, args.private, args.revision)}")
