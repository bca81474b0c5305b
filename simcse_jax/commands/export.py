"""simcse-jax export --workdir DIR --output FOLDER: a model for transformers and sentence-transformers."""

import dataclasses
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from simcse_jax.commands.command_line import Parser, started_as
from simcse_jax.errors import UserError
from simcse_jax.host.names import split_step
from simcse_jax.host.outputs import check_replaced_folder, printing
from simcse_jax.host.storage import local_path
from simcse_jax.huggingface import hub

if TYPE_CHECKING:
    from collections.abc import Callable

    from simcse_jax.host.storage import Folder

LICENSE = re.compile(r"[a-z0-9][a-z0-9.-]*")


def main() -> None:
    """The command."""
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
        "--private", action="store_true", help="with --push-to-hub: only you and your organization see it"
    )
    parser.add_argument("--revision", help="with --push-to-hub: the branch (default: main)")
    args = parser.parse_args()
    if args.push_to_hub is None and (args.private or args.revision is not None):
        raise UserError(f"--{'private' if args.private else 'revision'}: has no use without --push-to-hub OWNER/NAME")
    for option in ("push_to_hub", "license", "truncate_dim"):
        if args.adapter and getattr(args, option) is not None:
            raise UserError(f"--{option.replace('_', '-')}: is for a whole model; leave out --adapter")
    if args.license is not None and not LICENSE.fullmatch(args.license):
        raise UserError(f"--license {args.license}: must be one of the hub's identifiers, such as apache-2.0 or mit")
    from simcse_jax.host.storage import as_path

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
    export(workdir, output, args.push_to_hub, args.revision, args.license, step, args.truncate_dim)
    with printing(args.push_to_hub is not None) as say:
        say(f"exported to {args.output}; open it with")
        say(f"  sentence_transformers.SentenceTransformer({args.output!r})")
        if (output / "config.json").is_file():  # word vectors are no model of transformers
            say(f"  transformers.AutoModel.from_pretrained({args.output!r})")
        say(f"  {started_as('evaluate')} --model {args.output} --data SENTEVAL_FOLDER")
        if args.push_to_hub is not None:
            say(f"pushed: {hub.push(output, args.push_to_hub, args.private, args.revision)}")


def check_places(workdir: "Folder", output: Path) -> None:
    """Refuses folders that cannot be exported from or to.

    Raises:
      UserError: when there is no run, or `output` is not an earlier export or cannot be written.
    """
    from simcse_jax.host.storage import is_of_macos, is_remote
    from simcse_jax.huggingface.tokenizer import MARKER
    from simcse_jax.runs.workdir import Workdir

    Workdir(workdir).check_exists(f"--workdir {workdir}")
    source = None if is_remote(workdir) else Path(workdir)
    check_replaced_folder(output, source, ("model", "checkpoints", "tensorboard"))
    if output.exists() and not (
        output.is_dir() and ((output / MARKER).is_file() or all(is_of_macos(path.name) for path in output.iterdir()))
    ):
        raise UserError(f"--output {output}: exists and is not an earlier export; remove it or choose another folder")


def export(
    workdir: "Folder",
    output: Path,
    hub_name: str | None = None,
    revision: str | None = None,
    license: str | None = None,
    step: int | str | None = None,
    truncate_dim: int | None = None,
) -> None:
    """Writes a checkpoint of `workdir` and its card to the folder `output`, whole or not at all.

    Args:
      workdir: a run's folder.
      output: a new folder, an empty one, or that of an earlier export, which is replaced.
      hub_name: OWNER/NAME, the name in the model card's code; None for the folder's own name.
      revision: the branch there, None for the main one.
      license: the hub's identifier of a licence, for the card; None for that of the base model, if known.
      step: of the checkpoint, or "last"; None for the best one.
      truncate_dim: the elements that the model's embeddings keep, by its settings; None for all.

    Raises:
      UserError: when there is no run or checkpoint, `truncate_dim` is more than its embeddings have, `output` is not
        an earlier export, or another job exports there.
    """
    import numpy as np

    from simcse_jax.encoding.arguments import check_truncation
    from simcse_jax.huggingface.write import write_model
    from simcse_jax.runs.loading import load_workdir, other_than_scored
    from simcse_jax.runs.model_card import model_card
    from simcse_jax.runs.workdir import Workdir

    check_places(workdir, output)
    model = load_workdir(workdir, step=step)
    if truncate_dim is not None:
        check_truncation(truncate_dim, model.config.token_size, "--truncate-dim")
        model = dataclasses.replace(model, settings=model.settings._replace(truncate_dim=truncate_dim))
    other = other_than_scored(workdir, step)
    for name, values in {**model.params, **(model.language_model or {})}.items():
        if not np.isfinite(values).all():
            which = "best checkpoint" if other is None else f"checkpoint of step {other}"
            raise UserError(f"{workdir}: {name} of the {which} is not finite; it is not exported")
    run = Workdir(workdir)
    card = model_card(
        model, run.read_run(), run.read_result(), hub_name or output.resolve().name, revision, license, other
    )

    def write(folder: Path) -> None:
        write_model(model, folder)
        (folder / "README.md").write_text(card, encoding="utf-8")

    write_whole(output, write)


def export_adapter(workdir: "Folder", output: Path, step: int | str | None = None) -> None:
    """Writes the LoRA of a checkpoint of `workdir` to the folder `output`, whole or not at all; the rest as `export`.

    Raises:
      UserError: also when the run has no LoRA, or its model is more than that.
    """
    from simcse_jax.runs.lora_export import adapter_writer

    check_places(workdir, output)
    write_whole(output, adapter_writer(workdir, step))


def write_whole(output: Path, write: "Callable[[Path], None]") -> None:
    """Lets `write` fill a new folder, which then takes the place of `output`.

    Raises:
      UserError: when it cannot be written, or another job exports there.
    """
    from safetensors import SafetensorError

    from simcse_jax.host.locks import replacing

    output = Path(os.path.realpath(output))  # a link stays one, what it points to is replaced
    try:
        with replacing(output) as temporary:
            write(temporary)
    except (OSError, SafetensorError) as error:
        raise UserError(f"--output {output}: cannot be written: {getattr(error, 'strerror', None) or error}") from None
