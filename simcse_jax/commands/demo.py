"""simcse-jax demo --model M --data FILE: a page to try a model on, for this machine alone."""

import os
import threading
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from simcse_jax.commands.command_line import MODEL, Parser, add_pooler, warnings_in_a_line
from simcse_jax.errors import UserError, reason, require
from simcse_jax.host.ports import LOCAL, bind, is_local
from simcse_jax.serving.demo_guard import HostNames, launch_options

if TYPE_CHECKING:
    from simcse_jax.simcse import SimCSE

EXAMPLES = 6
FONTS, FONTS_OF_CODE = ["system-ui", "sans-serif"], ["ui-monospace", "monospace"]  # the machine's own


def main() -> None:
    """Reads the file and finds a port first, so that a mistake is reported before a model is loaded."""
    parser = Parser(
        "demo",
        description="Serves a page with search, comparison and a heat map, and an API of the same. Needs Gradio, a "
        "model, and a file of sentences or an index. Writes nothing.",
    )
    parser.add_argument("--model", required=True, help=MODEL)
    searched = parser.add_mutually_exclusive_group(required=True)
    searched.add_argument(
        "--data", help="what to search: a .txt, .csv, .tsv, .jsonl or .parquet file, a folder, or a pattern"
    )
    searched.add_argument("--index", help="what to search, in place of a file: an index of simcse-jax search build")
    parser.add_argument(
        "--compare", metavar="MODEL", help="a second model, whose heat map stands beside the first one's"
    )
    parser.add_argument("--column", only="--data", help="the column of --data, if its name is not a usual one")
    add_pooler(parser)
    parser.add_argument("--host", default=LOCAL, help=f"the address to serve at (default: {LOCAL}, this machine alone)")
    parser.add_argument(
        "--allow-host",
        nargs="+",
        default=[],
        metavar="NAME",
        help="further names of this machine that the page answers to (default: the local ones, and --host)",
    )
    parser.add_argument("--port", type=int, default=7860, help="0 takes any free one (default: %(default)s)")
    parser.add_argument("--share", action="store_true", help="also a public address, through Gradio's server")
    args = parser.parse_args()
    require("demo", "gradio")
    from simcse_jax.data.sentences import read_sentences

    sentences = read_sentences(args.data, args.column) if args.data is not None else []
    with bind(args.host, args.port) as free:
        port = free.getsockname()[1]
    keep_to_this_machine()

    from simcse_jax.simcse import SimCSE

    model = SimCSE(args.model, pooler=args.pooler)
    if args.index is not None and model.similarity_fn_name != "cosine":
        other = f"{args.model} compares by {model.similarity_fn_name}"
        raise UserError(f"--index {args.index}: the page shows cosines, and {other}; give --data")
    models = {PurePath(args.model).name: model}
    if args.compare is not None:
        models[f"{args.compare}, for comparison"] = SimCSE(args.compare)
    for one in models.values():
        one.similarity_fn_name = "cosine"  # what the page says and colours
    with warnings_in_a_line():
        if args.index is not None:
            count, sentences = open_index(model, args.index)
        else:
            print(f"{args.data}: encoding {len(sentences)} sentences", flush=True)
            model.build_index(sentences)
            count = len(sentences)
        model.search(sentences[0])  # compiles the program of a single query
    names = HostNames(args.host, args.allow_host)
    serve(models, count, sentences, args.host, port, names, args.share)


def open_index(model: "SimCSE", folder: str) -> tuple[int, list[str]]:
    """Opens an index for the model; the number of its rows, and some of its sentences.

    Raises:
      UserError: when there is none for this model.
    """
    from simcse_jax.index.lance import LanceIndex

    model.open_index(folder)
    assert isinstance(model.index, LanceIndex)
    sentences = model.index.first_sentences(10 * EXAMPLES)
    if not sentences:
        raise UserError(f"--index {folder}: its rows have no sentences that the page could show; encode to .parquet")
    return len(model.index), sentences


def keep_to_this_machine() -> None:
    """Before Gradio is imported: no telemetry, and no proxy between its server and itself."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), LOCAL, "localhost"]))


def examples_of(sentences: Sequence[str]) -> list[str]:
    """A few different sentences, evenly spread over the file: as queries, each finds at least itself."""
    different = [sentence for sentence in dict.fromkeys(sentences) if sentence.strip()]
    return different[:: max(1, len(different) // EXAMPLES)][:EXAMPLES]


def serve(
    models: "dict[str, SimCSE]", count: int, sentences: list[str], host: str, port: int, names: HostNames, share: bool
) -> None:
    """Serves the page until it is interrupted. It answers to `names` only.

    `count` sentences are searched; `sentences` are these or some of them.

    Raises:
      UserError: when another process has taken the port in the meantime.
    """
    import gradio as gr

    from simcse_jax.serving.demo_page import CSS, build, shade_rules

    page = build(models, count, examples_of(sentences))
    try:
        page.launch(
            server_name=f"[{host}]" if ":" in host else host,
            server_port=port,
            share=share,
            quiet=True,
            prevent_thread_lock=True,
            footer_links=[],
            run_history=False,
            theme=gr.themes.Default(font=FONTS, font_mono=FONTS_OF_CODE),
            css=CSS + shade_rules(),
            **launch_options(names),
        )
    except OSError as error:
        raise UserError(f"--host {host} --port {port}: {reason(error)}") from None
    if page.share_url:
        names.add(urlsplit(page.share_url).netloc)
    where = "this machine alone" if is_local(host) else "open to all who can reach this machine"
    print(f"open {page.local_url} ({where}); Ctrl-C ends it", flush=True)
    if share:
        print(f"public for a while: {page.share_url or 'no; Gradio gave no address'}", flush=True)
    try:
        threading.Event().wait()
    finally:
        page.close(verbose=False)
