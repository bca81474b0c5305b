"""simcse-jax serve --model M [--index I]: embeddings and search over HTTP, as in OpenAI's API."""

import gc
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from simcse_jax.commands.command_line import open_reranker
from simcse_jax.commands.verbs import WITH_NO, BatchSize, Count, Dtype, ModelName, Names, Pooler, TruncateDim, verb
from simcse_jax.errors import UserError, require
from simcse_jax.host.ports import LOCAL, bind, is_local

if TYPE_CHECKING:
    import numpy as np

    from simcse_jax.encoding.cross_encoder import CrossEncoder
    from simcse_jax.index.index import Result
    from simcse_jax.serving.prometheus import Metrics
    from simcse_jax.serving.service import Limits, Service
    from simcse_jax.simcse import SimCSE

KEY = "SIMCSE_JAX_API_KEY"
MIB = 2**20


@verb
def serve(
    model: ModelName,
    index: str | None = None,
    *,
    rerank: str | None = None,
    name: str | None = None,
    pooler: Pooler = None,
    dtype: Dtype = "float32",
    truncate_dim: TruncateDim = None,
    normalize: Annotated[bool | None, WITH_NO] = None,
    truncate: bool = False,
    host: str = LOCAL,
    port: int = 8000,
    allow_host: Names = (),
    no_key: bool = False,
    batch_size: BatchSize = 64,
    timeout: Annotated[float, Parameter(validator=Number(gte=0.01, lte=3600))] = 30.0,
    max_body: Annotated[float, Parameter(validator=Number(gte=0.001, lte=1024))] = 16.0,
    max_inputs: Count = 2048,
    max_queue: Count = 8192,
    max_requests: Count = 1024,
) -> None:
    """Serves a model over HTTP until SIGTERM, which ends it after the requests in progress, or Ctrl-C.

    It has /v1/embeddings and /v1/models as in OpenAI's API, /v1/search in an index, /v1/rerank with a cross-encoder,
    /health, /ready, /metrics for Prometheus, and /docs. Requests that arrive together share batches. Needs a model.
    Prints its address. With SIMCSE_JAX_API_KEY in the environment, clients need that key.

    Args:
      index: What /v1/search searches: a folder of `search --index` or of `search build`.
      rerank: A cross-encoder's folder, which /v1/rerank sorts documents with.
      name: The name that clients give. By default the model's, without its folder.
      normalize: Scale embeddings to length 1. By default as the model says.
      truncate: Cut texts that are too long, in place of refusing them.
      host: The address to serve at; by default this machine alone can reach it.
      port: 0 takes any free one.
      allow_host: Further names of this machine, where no key is asked for. By default the local ones, and the host.
      no_key: Serve others without SIMCSE_JAX_API_KEY.
      timeout: Seconds that a request may take.
      max_body: MiB of a request.
      max_inputs: Texts in a request.
      max_queue: Texts that wait; above it, requests get 429.
      max_requests: Requests at a time; above it, they get 429.

    Raises:
      UserError: for any mistake in the options or the model; most before the model is loaded.
    """
    started = time.monotonic()
    require("serve", "fastapi", "uvicorn", "prometheus_client", "orjson")
    from simcse_jax.serving import server
    from simcse_jax.serving.service import Limits

    key = read_key()
    local = is_local(host)
    if not local and key is None:
        if not no_key:
            let_in = f"set {KEY} in the environment, or give --no-key to let everybody in"
            raise UserError(f"--host {host}: others can reach it; {let_in}")
        print(f"warning: whoever can reach {host} can use the model; {KEY} sets a key", file=sys.stderr)
    with bind(host, port) as bound:
        from simcse_jax.serving.app import App
        from simcse_jax.serving.guard import Guard
        from simcse_jax.serving.prometheus import Metrics
        from simcse_jax.simcse import SimCSE

        limits = Limits(max_inputs, max_queue, max_requests, int(max_body * MIB), timeout, cut=truncate)
        metrics = Metrics()
        encoder = SimCSE(model, pooler=pooler, batch_size=batch_size, dtype=dtype, truncate_dim=truncate_dim)
        search = None if index is None else make_search(encoder, index)
        reranker = None if rerank is None else open_reranker(rerank, batch_size, dtype)
        service = make_service(encoder, name, normalize, search, reranker, limits, metrics)
        url = server.address_of(bound)
        app = App(service, metrics, lambda: print(f"ready after {time.monotonic() - started:.1f} s", flush=True), url)
        names = [host, *allow_host] if key is None else None
        guarded = Guard(app.asgi, limits, metrics, app.paths, key, names)
        where = "this machine alone" if local else "all who can reach this machine"
        asked = f"the key of {KEY}" if key else "no key"
        said = f"{service.name}: {url}/v1 ({where}, {asked}); {url}/docs; Ctrl-C ends it"
        gc.freeze()  # libraries and the model stay: looking through them for garbage took a tenth of the server's time
        server.serve(guarded, bound, limits.seconds, said, lambda: app.failure)


def read_key() -> str | None:
    """The key that clients need; None: none.

    Raises:
      UserError: when it is set, but nothing that a header can have.
    """
    key = os.environ.get(KEY)
    if key is not None and (not key or not key.isascii() or not key.isprintable() or " " in key):
        raise UserError(f"{KEY}: must be printable ASCII without blanks, and not empty; unset it to ask for no key")
    return key


def make_service(
    model: "SimCSE",
    name: str | None,
    normalize: bool | None,
    search: "Callable[[np.ndarray, int], list[list[Result]]] | None",
    reranker: "CrossEncoder | None",
    limits: "Limits",
    metrics: "Metrics",
) -> "Service":
    """The service that answers requests: an encoder for each of the model's prompts, an index, and a cross-encoder.

    Raises:
      UserError: when the index has scores that `normalize` would change.
    """
    from simcse_jax.huggingface.public_names import public_value
    from simcse_jax.serving.service import Service

    if normalize is not None and model.index is not None and model.index.similarity != "cosine":
        raise UserError(
            f"--{'' if normalize else 'no-'}normalize: changes the scores of an index that is compared by "
            f"{model.index.similarity}; leave it out"
        )
    judge = None if reranker is None else (public_value("model.init_from", reranker.name), reranker.batch_encoder())
    prompts: list[str | None] = [None, *model.prompts]
    return Service(
        name or public_value("model.init_from", model.name),
        {prompt: model.batch_encoder(prompt_name=prompt, normalize_to_unit=normalize) for prompt in prompts},
        limits,
        search=search,
        query_prompt="query" if "query" in model.prompts else None,
        reranker=judge,
        observe=metrics.count_batch,
    )


def make_search(model: "SimCSE", folder: str) -> "Callable[[np.ndarray, int], list[list[Result]]]":
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
