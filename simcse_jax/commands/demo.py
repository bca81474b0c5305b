"""simcse-jax demo --model M --data FILE: a page to try a model on, for this machine alone."""

import os
import re
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simcse_jax.commands.command_line import shorten_warnings
from simcse_jax.commands.verbs import ModelName, Names, Pooler, verb
from simcse_jax.errors import UserError, require
from simcse_jax.evaluation.plotting import short_names
from simcse_jax.host.ports import LOCAL, bind, is_local

if TYPE_CHECKING:
    from simcse_jax.simcse import SimCSE

EXAMPLES = 6
MOST_OF_AN_EXAMPLE = 200  # characters
FONTS, FONTS_OF_CODE = ["system-ui", "sans-serif"], ["ui-monospace", "monospace"]  # the machine's own


@verb
def demo(
    model: ModelName,
    data: str | None = None,
    *,
    index: str | None = None,
    compare: str | None = None,
    column: str | None = None,
    pooler: Pooler = None,
    host: str = LOCAL,
    allow_host: Names = (),
    port: int = 7860,
    share: bool = False,
) -> None:
    """Serves a page with search, comparison and a heat map, and an API of the same, until it is interrupted.

    Needs Gradio, a model, and a file of sentences or an index. Writes nothing.

    Args:
      data: What to search: a .txt, .csv, .tsv, .jsonl or .parquet file, a folder, or a pattern.
      index: What to search, in place of a file: an index of simcse-jax search build.
      compare: A second model, whose results and heat map stand next to the first one's.
      column: The column of the data, if its name is not a usual one.
      host: The address to serve at; by default this machine alone can reach it.
      allow_host: Further names of this machine that the page answers to. By default the local ones, and the host.
      port: 0 takes any free one.
      share: Also a public address, through Gradio's server.

    Raises:
      UserError: for any mistake in the options, the data or the model; most before a model is loaded.
    """
    if (data is None) == (index is None):
        raise UserError("--data, --index: give one of them, what to search")
    if index is not None and compare is not None:
        raise UserError("--compare: each model searches an index of its own; give --data, which both encode")
    require("demo", "gradio")
    from simcse_jax.data.sentences import read_sentences

    sentences = [] if data is None else read_sentences(data, column)
    with bind(host, port) as free:
        port = free.getsockname()[1]
    keep_to_this_machine()

    from simcse_jax.simcse import SimCSE

    if compare == model and pooler is None:
        raise UserError(f"--compare {compare}: is the model itself; name another one")
    encoders = [SimCSE(model, pooler=pooler), *([] if compare is None else [SimCSE(compare)])]
    if index is not None and (measure := encoders[0].similarity_fn_name) != "cosine":
        raise UserError(f"--index {index}: the page shows cosines; {model} compares by {measure}")
    if index is None:
        print(f"{data}: encoding {len(sentences)} sentences", flush=True)
    count = len(sentences)
    with shorten_warnings():
        for encoder in encoders:
            encoder.similarity_fn_name = "cosine"  # what the page says and colours
            if index is not None:
                count, sentences = open_index(encoder, index)
            else:
                encoder.build_index(sentences)
            encoder.search(sentences[0])  # compiles the program of a single query
    serve(titled(encoders), count, sentences, host, port, allow_host, share)


def titled(models: "Sequence[SimCSE]") -> "dict[str, SimCSE]":
    """The models by short names that tell them apart, with their poolers where one model stands there twice."""
    names = [model.name for model in models]
    if len({*names}) < len(names):
        names = [f"{model.name}, {model.pooler}" for model in models]
    return dict(zip(short_names(names), models, strict=True))


def open_index(model: "SimCSE", folder: str) -> tuple[int, list[str]]:
    """Opens an index for the model; the number of its rows, and some of its sentences."""
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


def pick_examples(sentences: Sequence[str]) -> list[str]:
    """A few different sentences, evenly spread over the file."""
    different = [sentence[:MOST_OF_AN_EXAMPLE] for sentence in dict.fromkeys(sentences) if sentence.strip()]
    return different[:: max(1, len(different) // EXAMPLES)][:EXAMPLES]


def make_query(sentence: str) -> str:
    """What one may type to find a sentence: its longer words, `reset password` for `Reset my password!`, or its end."""
    words = re.findall(r"\w+", sentence)
    long = [word for word in words if len(word) > 3]
    return " ".join(long[:5] or words[len(words) // 2 :]) or sentence


def launch_options(host: str, allow_host: Sequence[str] = (), share: bool = False) -> dict[str, Any]:
    """The arguments of Gradio's `launch`.

    A website could let a name of its own point to this machine (DNS rebinding), so a page for this machine alone
    answers to its names.
    """
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    names = ["localhost", "127.0.0.1", "::1", "[::1]", host, *allow_host, *["*.gradio.live"] * share]
    trusted = Middleware(TrustedHostMiddleware, allowed_hosts=names if is_local(host) else ["*"])
    return {
        "server_name": f"[{host}]" if ":" in host else host,
        "app_kwargs": {"middleware": [trusted]},
        "share": share,
        "max_file_size": 1,  # byte: the page takes no files
        "enable_monitoring": False,
        "ssr_mode": False,
        "quiet": True,
        "prevent_thread_lock": True,
    }


def serve(
    models: "dict[str, SimCSE]",
    count: int,
    sentences: list[str],
    host: str,
    port: int,
    allow_host: Sequence[str],
    share: bool,
) -> None:
    """Serves the page until it is interrupted; `sentences` are all `count` that are searched, or some."""
    import gradio as gr

    from simcse_jax.serving.demo_page import CSS, build, shade_rules

    examples = pick_examples(sentences)
    page = build(models, count, examples, list(dict.fromkeys(map(make_query, examples))))
    theme = gr.themes.Default(font=FONTS, font_mono=FONTS_OF_CODE)
    page.launch(
        server_port=port,
        theme=theme,
        css=CSS + shade_rules(),
        footer_links=[],
        run_history=False,
        **launch_options(host, allow_host, share),
    )
    where = "this machine alone" if is_local(host) else "open to all who can reach this machine"
    print(f"open {page.local_url} ({where}); Ctrl-C ends it", flush=True)
    if share:
        print(f"public for a while: {page.share_url or 'no; Gradio gave no address'}", flush=True)
    try:
        threading.Event().wait()
    finally:
        page.close(verbose=False)
