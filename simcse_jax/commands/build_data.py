"""simcse-jax build-data NAME --source FOLDER … --output FILE: a training file of the papers, from downloads.

Each file that a recipe names has a builder. It reads the original files, writes the whole file or nothing, and prints
how many rows it read, used and left out, and why, with the papers' number of rows.
"""

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from simcse_jax.commands.verbs import Names, Seed, Texts, verb
from simcse_jax.data.building.builders import BUILDERS, Builder, BuildOptions
from simcse_jax.data.building.reading import Tally, resolve
from simcse_jax.errors import UserError, no_such, system_message
from simcse_jax.host.outputs import output_file
from simcse_jax.host.storage import replacing_file

FILES = "\n".join(
    f"- {name}: {builder.about}; {builder.output}, from {builder.sources}." for name, builder in BUILDERS.items()
)


@verb
def build_data(
    name: Annotated[str, Parameter(help=f"The file:\n\n{FILES}")],
    /,
    source: Texts,
    *,
    output: str | None = None,
    split: Names = ("train",),
    hypothesis: Literal["last", "first"] = "last",
    draw: Literal["sentences", "articles"] = "sentences",
    count: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    seed: Seed = 42,
) -> int:
    """Makes a training file of the papers from what people can download.

    Needs the downloads. Writes the whole file or nothing, and prints how many rows it read, used and left out, and why.

    Args:
      source: Folders, files, hf:NAME… or tfds:NAME…, in order.
      output: The file to write. By default the name that the recipes have for it.
      split: Of the folders of NLI: the splits to read.
      hypothesis: Of NLI: which of several with one label.
      draw: Of wiki_sentences: what is drawn at random.
      count: Draw so many lines, 0: all. By default as in the paper.
      seed: Of the draw.

    Returns:
      The number of rows.

    Raises:
      UserError: for any mistake in the options or the downloads.
    """
    if name not in BUILDERS:
        raise no_such("name", "file", name, BUILDERS)
    builder = BUILDERS[name]
    options = BuildOptions(hypothesis, draw, builder.count if count is None else count, seed)
    files = resolve(source, builder.files, split)
    output = output or builder.output
    inputs = {f"--source {place}": place for place in [*source, *files]}
    path = output_file(output, inputs, kinds=(Path(builder.output).suffix,), streamed=False)
    tally = Tally(builder.unit)
    written = write(path, builder, builder.rows(files, tally, options), source)
    for line in tally.lines():
        print(line)
    print(f"{written:,} {builder.makes} written to {output} (the papers' number: {builder.paper})")
    return written


def write(path: Path, builder: Builder, rows: Iterable[tuple[str, ...]], sources: Iterable[str]) -> int:
    """Writes the rows, all or nothing, and refuses to write no row. Returns their number, blank lines aside."""
    written = 0
    try:
        with replacing_file(path) as file:
            text = io.TextIOWrapper(file, encoding="utf-8", newline="")
            writer = csv.writer(text, lineterminator="\n")
            try:
                writer.writerows([builder.header] if builder.header else [])
                for row in rows:
                    writer.writerow(row) if builder.header else text.write(row[0] + "\n")
                    written += bool(row[0])
            finally:
                text.detach()
            if not written:
                raise UserError(f"--source {' '.join(sources)}: gives no {builder.makes}; is it the right data?")
    except OSError as error:  # of reading they are `UserError` already
        raise UserError(f"--output {path}: cannot be written: {system_message(error)}") from None
    return written
