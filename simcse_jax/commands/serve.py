"""simcse-jax serve --model M [--index I]: embeddings and search over HTTP, as in OpenAI's API."""

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from simcse_jax.commands.command_line import (
    MODEL,
    Parser,
    add_batch_size,
    add_dtype,
    add_pooler,
    add_truncation,
    open_reranker,
)
from simcse_jax.errors import UserError, require
from simcse_jax.host.ports import LOCAL, bind, is_local
from simcse_jax.host.storage import is_remote, local_path

if TYPE_CHECKING:
    import numpy as np

    from simcse_jax.index.index import Result
    from simcse_jax.serving.prometheus import Metrics
    from simcse_jax.serving.service import Limits, Service
    from simcse_jax.simcse import SimCSE

KEY = "SIMCSE_JAX_API_KEY"
MIB = 2**20


def main() -> None:
    """Takes the port and checks all options first, so that a mistake is reported before a model is loaded."""
    started = time.monotonic()
    args = parse()
    require("serve", "fastapi", "uvicorn", "prometheus_client", "orjson")
    from simcse_jax.serving.server import address_of, serve
    from simcse_jax.serving.service import Limits

    limits = Limits(
        inputs=args.max_inputs,
        waiting=args.max_queue,
        requests=args.max_requests,
        body=int(args.max_body * MIB),
        seconds=args.timeout,
        cut=args.truncate,
    )
    key = read_key()
    local = is_local(args.host)
    if not local and key is None:
        if not args.no_key:
            raise UserError(
                f"--host {args.host}: others can reach it; set {KEY} in the environment, or give --no-key to let "
                "everybody in"
            )
        print(f"warning: whoever can reach {args.host} can use the model; {KEY} sets a key", file=sys.stderr)
    if args.index is not None and not is_remote(args.index) and not local_path(args.index).is_dir():
        raise UserError(f"--index {args.index}: no such folder")
    with bind(args.host, args.port) as bound:
        from simcse_jax.serving.app import App
        from simcse_jax.serving.demo_guard import Names
        from simcse_jax.serving.guard import Guard
        from simcse_jax.serving.prometheus import Metrics

        metrics = Metrics()
        service = service_of(args, limits, metrics)
        app = App(service, metrics, lambda: print(f"ready after {time.monotonic() - started:.1f} s", flush=True))
        names = Names(args.host, args.allow_host) if key is None else None
        guarded = Guard(app.asgi, limits, metrics, app.paths, key, names)
        where = "this machine alone" if local else "all who can reach this machine"
        asked = f"the key of {KEY}" if key else "no key"
        said = f"{service.name}: {address_of(bound)}/v1 ({where}, {asked}); {address_of(bound)}/docs; Ctrl-C ends it"
        gc.freeze()  # libraries and the model stay: looking through them for garbage took a tenth of the server's time
        serve(guarded, bound, limits.seconds, said, lambda: app.failure)


def parse() -> argparse.Namespace:
    """The options.

    Raises:
      UserError: naming the one that is out of its range.
    """
    parser = Parser(
        "serve",
        description="Serves a model over HTTP: /v1/embeddings and /v1/models as in OpenAI's API, /v1/search in an "
        "index, /v1/rerank with a cross-encoder, /health, /ready, /metrics for Prometheus, and /docs. Requests that "
        f"arrive together share batches. Needs a model. Prints its address. With {KEY} in the environment, clients "
        "need that key. SIGTERM ends it after the requests in progress.",
    )
    parser.add_argument("--model", required=True, help=MODEL)
    parser.add_argument("--index", help="what /v1/search searches: a folder of `search --index` or of `search build`")
    parser.add_argument("--rerank", metavar="FOLDER", help="a cross-encoder, which /v1/rerank sorts documents with")
    parser.add_argument("--name", help="the name that clients give (default: the model's, without its folder)")
    add_pooler(parser)
    add_dtype(parser)
    add_truncation(parser)
    parser.add_argument(
        "--normalize",
        action=argparse.BooleanOptionalAction,
        help="scale embeddings to length 1 (default: as the model says)",
    )
    parser.add_argument("--truncate", action="store_true", help="cut texts that are too long; otherwise: refuse them")
    parser.add_argument("--host", default=LOCAL, help=f"the address to serve at (default: {LOCAL}, this machine alone)")
    parser.add_argument("--port", type=int, default=8000, help="0 takes any free one (default: %(default)s)")
    parser.add_argument(
        "--allow-host",
        nargs="+",
        default=[],
        metavar="NAME",
        help="further names of this machine, where no key is asked for (default: the local ones, and --host)",
    )
    parser.add_argument("--no-key", action="store_true", help=f"serve others without {KEY}")
    add_batch_size(parser, "texts")
    for name, default, least, most, what in (
        ("--timeout", 30.0, 0.01, 3600, "seconds that a request may take"),
        ("--max-body", 16.0, 0.001, 1024, "MiB of a request"),
        ("--max-inputs", 2048, 1, 2**31 - 1, "texts in a request"),
        ("--max-queue", 8192, 1, 2**31 - 1, "texts that wait; above it, requests get 429"),
        ("--max-requests", 1024, 1, 2**31 - 1, "requests at a time; above it, they get 429"),
    ):
        parser.add_argument(name, type=type(default), default=default, least=least, most=most, help=what)
    args = parser.parse_args()
    if args.max_inputs > args.max_queue:
        raise UserError(
            f"--max-inputs {args.max_inputs}: more than --max-queue {args.max_queue}; none such could ever wait"
        )
    if args.name is not None and not args.name.strip():
        raise UserError("--name: is empty; leave it out, or name the model")
    return args


def read_key() -> str | None:
    """The key that clients need; None: none.

    Raises:
      UserError: when it is set, but nothing that a header can have.
    """
    key = os.environ.get(KEY)
    if key is not None and (not key or not key.isascii() or not key.isprintable() or " " in key):
        raise UserError(f"{KEY}: must be printable ASCII without blanks, and not empty; unset it to ask for no key")
    return key


def service_of(args: argparse.Namespace, limits: "Limits", metrics: "Metrics") -> "Service":
    """The model with its index, loaded.

    Raises:
      UserError: for anything that is wrong with one of them.
    """
    from simcse_jax.huggingface.public_names import public_value
    from simcse_jax.serving.service import Service
    from simcse_jax.simcse import SimCSE

    model = SimCSE(
        args.model,
        pooler=args.pooler,
        batch_size=args.batch_size,
        dtype=args.dtype,
        truncate_dim=args.truncate_dim,
    )
    search = None if args.index is None else search_of(model, args.index)
    reranker = None
    if args.rerank is not None:
        judge = open_reranker(args.rerank, args.batch_size, args.dtype)
        reranker = public_value("model.init_from", judge.name), judge.batch_encoder()
    if args.normalize is not None and model.index is not None and model.index.similarity != "cosine":
        raise UserError(
            f"--{'' if args.normalize else 'no-'}normalize: changes the scores of an index that is compared by "
            f"{model.index.similarity}; leave it out"
        )
    prompts: list[str | None] = [None, *model.prompts]
    encoders = {name: model.batch_encoder(prompt_name=name, normalize_to_unit=args.normalize) for name in prompts}
    return Service(
        args.name or public_value("model.init_from", model.name),
        encoders,
        limits,
        search=search,
        query_prompt="query" if "query" in model.prompts else None,
        reranker=reranker,
        observe=metrics.count_batch,
    )


def search_of(model: "SimCSE", folder: str) -> "Callable[[np.ndarray, int], list[list[Result]]]":
    """Opens an index of the model, in memory or on a disk, and returns the function that searches it."""
    import numpy as np

    from simcse_jax.index.lance import is_lance_index
    from simcse_jax.serving.service import QUERIES

    on_disk = is_lance_index(folder)
    (model.open_index if on_disk else model.load_index)(folder)
    index = model.index
    assert index is not None
    if on_disk:  # one query after the other, nothing is compiled
        return index.search

    def search(queries: "np.ndarray", top_k: int) -> "list[list[Result]]":
        rows = 1 if len(queries) == 1 else QUERIES  # filled up, so that few programs are compiled
        return index.search(np.resize(queries, (rows, queries.shape[1])), top_k)[: len(queries)]

    return search
