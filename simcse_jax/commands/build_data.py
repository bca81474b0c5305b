"""simcse-jax build-data NAME --source FOLDER … --output FILE: a training file of the papers, from downloads.

Each file that a recipe names has a builder. It reads the original files, writes the whole file or nothing, and prints
how many rows it read, used and left out, and why, with the papers' number of rows.
"""

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from simcse_jax.commands.command_line import Parser
from simcse_jax.data.building.builders import BUILDERS, Builder, BuildOptions
from simcse_jax.data.building.nli import HYPOTHESES
from simcse_jax.data.building.reading import Tally, is_dataset, resolve
from simcse_jax.data.building.wikipedia import DRAWS
from simcse_jax.errors import UserError, why
from simcse_jax.host.outputs import output_file
from simcse_jax.host.storage import local_path, replacing_file

FLAGS = {"splits": "--split", "hypothesis": "--hypothesis", "draws": "--draw", "count": "--count", "seed": "--seed"}


def main() -> None:
    """The command."""
    args = _parser().parse_args()
    builder = BUILDERS[args.name]
    given: dict[str, Any] = {name: value for name in FLAGS if (value := getattr(args, name)) is not None}
    for name in given:
        if name not in builder.options:
            raise UserError(f"{FLAGS[name]}: has no effect on {args.name}")
    if given.get("count", 0) < 0:
        raise UserError(f"--count {args.count}: must be 0, for all, or more")
    for source in args.source:
        if not source:
            raise UserError("--source '': has no name")
        if "splits" in given and (is_dataset(source) or local_path(source).is_file()):
            raise UserError(f"--split: has no effect on --source {source}, which is not a folder; name files alone")
    options = BuildOptions(**({"count": builder.count} | given))
    files = resolve(args.source, builder.files, options.splits)
    output = args.output or builder.output
    kind = Path(builder.output).suffix
    inputs = {f"--source {source}": source for source in [*args.source, *files]}
    path = output_file(output, inputs, kinds=(kind,), streamed=False)
    tally = Tally(builder.unit)
    written = write(path, builder, builder.rows(files, options, tally), args.source)
    for line in tally.lines():
        print(line)
    print(f"{written:,} {builder.makes} written to {output} (the papers' number: {builder.paper})")


def _parser() -> Parser:
    listed = "\n".join(
        f"  {name:<16}{each.about}; {each.output}\n    from {each.sources}" for name, each in BUILDERS.items()
    )
    parser = Parser(
        "build-data",
        description="Make a training file of the papers from what people can download.",
        epilog=f"files:\n{listed}\n",
    )
    parser.add_argument("name", choices=BUILDERS, metavar="NAME", help=f"the file: {', '.join(BUILDERS)}")
    parser.add_argument(
        "--source", nargs="+", action="extend", required=True, help="folders, files, hf:NAME… or tfds:NAME…, in order"
    )
    parser.add_argument("--output", help="the file to write (default: the name that the recipes have for it)")
    parser.add_argument("--split", dest="splits", nargs="+", help="of NLI: the splits to read (default: train)")
    parser.add_argument(
        "--hypothesis", choices=HYPOTHESES, help=f"of several with one label (default: {HYPOTHESES[0]})"
    )
    parser.add_argument(
        "--draw", dest="draws", choices=DRAWS, help=f"of wiki_sentences: what is drawn at random (default: {DRAWS[0]})"
    )
    parser.add_argument("--count", type=int, help="draw so many lines, 0: all (default: as in the paper)")
    parser.add_argument("--seed", type=int, help="of the draw (default: 42)")
    return parser


def write(path: Path, builder: Builder, rows: Iterable[tuple[str, ...]], sources: Iterable[str]) -> int:
    """Writes the rows, all or none.

    Returns:
      The number of rows, blank lines aside.

    Raises:
      UserError: when there are none, or the file cannot be written.
    """
    try:
        with replacing_file(path) as file:
            text = io.TextIOWrapper(file, encoding="utf-8", newline="")
            try:
                written = _write_rows(text, builder, rows)
            finally:
                text.detach()
            if not written:
                raise UserError(f"--source {' '.join(sources)}: gives no {builder.makes}; is it the right data?")
            return written
    except OSError as error:  # of reading they are `UserError` already
        raise UserError(f"--output {path}: cannot be written: {why(error)}") from None


def _write_rows(text: IO[str], builder: Builder, rows: Iterable[tuple[str, ...]]) -> int:
    written = 0
    writer = csv.writer(text, lineterminator="\n")
    if builder.header:
        writer.writerow(builder.header)
    for row in rows:
        if builder.header:
            writer.writerow(row)
        else:
            text.write(row[0] + "\n")
        written += bool(row[0])
    return written
