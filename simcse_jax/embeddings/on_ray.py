"""Encoding on the machines of a Ray cluster: an actor on each encodes blocks."""

import contextlib
import importlib.util
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from simcse_jax.corpus.begun import Plan
from simcse_jax.embeddings.blocks import make_block
from simcse_jax.embeddings.encoder import Encoder, Options
from simcse_jax.embeddings.manifest import Manifest, complete, finish, missing
from simcse_jax.embeddings.plan import Block, blocks_of
from simcse_jax.errors import UserError, reason
from simcse_jax.progress import Progress
from simcse_jax.storage import Folder, as_path

ACCELERATORS = ("TPU", "GPU")


class Share(NamedTuple):
    """What an actor has."""

    hosts: int  # the number of actors
    kind: str  # TPU, GPU or CPU
    each: float  # how many of them


def encode_on_ray(
    folder: Folder, plan: Plan, options: Options, address: str | None = None, hosts: int | None = None
) -> Manifest | None:
    """Makes the blocks that are missing, in any order; what a lost actor was making is made again.

    An actor reads, encodes and writes a block by itself, so that no rows pass through Ray, and none of its other work
    waits for a processor.

    Args:
      folder: of the embeddings, which all hosts see; `corpus.begun.enter` has seen it.
      plan: of the folder.
      options: of the plan's encoder.
      address: of the cluster; None starts one on this machine.
      hosts: the number of actors; None: one for each host with accelerators, or for each host where none has any.

    Returns:
      The manifest; None if processes outside the cluster are still making blocks.

    Raises:
      UserError: naming the row or file that is wrong, or when the cluster cannot be reached or has too few hosts.
    """
    blocks = blocks_of(folder, plan)
    if manifest := complete(folder, blocks):
        return manifest
    with _connected(address) as ray:
        share = share_of(ray.nodes(), hosts)
        rows = sum(block.rows for block in blocks)
        left = missing(folder, blocks)
        with Progress(rows, done=rows - sum(block.rows for block in left)) as bar:
            for made in _made(folder, plan, options, left, share):
                if made["error"]:
                    raise UserError(made["error"])
                bar.advance(made["rows"])
    return None if missing(folder, blocks) else finish(folder, plan, blocks)


def check_installed() -> None:
    """Refuses to go on without Ray.

    Raises:
      UserError: with the command that installs it.
    """
    if importlib.util.find_spec("ray") is None:
        raise UserError("--engine ray: the package is missing; pip install 'simcse_jax[ray]'")


def share_of(nodes: list[dict[str, Any]], hosts: int | None) -> Share:
    """What each actor takes of a cluster.

    Args:
      nodes: as `ray.nodes` has them.
      hosts: the number of actors; None: one for each host with accelerators, or for each host where none has any.

    Raises:
      UserError: when there are fewer hosts, which Ray would wait for without end.
    """
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    for kind in ACCELERATORS:
        found = [resources[kind] for resources in alive if resources.get(kind)]
        if found:
            break
    else:
        kind, found = "CPU", [resources["CPU"] for resources in alive if resources.get("CPU")]
    if not found:
        raise UserError("--engine ray: no host of the cluster has a processor to give; start Ray with --num-cpus")
    if hosts is not None and hosts > len(found):
        what = f"hosts with {kind}s" if kind in ACCELERATORS else "hosts"
        raise UserError(f"--hosts {hosts}: the cluster has only {len(found)} {what}")
    return Share(hosts or len(found), kind, min(found))


class BlockEncoder:
    """An actor of Ray Data. Its model is loaded once."""

    def __init__(self, folder: str, plan: Plan, options: Options, blocks: Sequence[Block]):
        self._folder, self._plan, self._options, self._blocks = as_path(folder), plan, options, blocks
        self._encoder: Encoder | None = None

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[Any]]:
        """Makes a block.

        Args:
          batch: `block`, the number of one.
        """
        (block,) = (self._blocks[number] for number in batch["block"])
        error = ""
        try:
            if self._encoder is None:
                self._encoder = self._load()
            make_block(self._folder, self._plan, block, self._encoder, patient=True)
        except UserError as mistake:
            error = str(mistake)
        return {"rows": [block.rows], "error": [error]}

    def _load(self) -> Encoder:
        encoder = Encoder(self._options)
        for option, value in encoder.about().items():
            if value != self._plan.key[option]:
                raise UserError(f"{option} {self._options.model}: is another model on {os.uname().nodename}")
        return encoder


def _made(folder: Folder, plan: Plan, options: Options, blocks: list[Block], share: Share) -> Iterator[dict[str, Any]]:
    """Facts of blocks, as they are made."""
    import ray.data

    resources: dict[str, Any] = {"num_cpus": 1 if share.kind != "CPU" else max(share.each - 1, share.each / 2)}
    if share.kind == "GPU":
        resources["num_gpus"] = share.each
    elif share.kind == "TPU":
        resources["resources"] = {"TPU": share.each}
    items = ray.data.from_items([{"block": number} for number in range(len(blocks))], override_num_blocks=len(blocks))
    made = items.map_batches(
        BlockEncoder,
        fn_constructor_args=(str(folder), plan, options, blocks),
        batch_size=1,
        batch_format="numpy",
        compute=ray.data.ActorPoolStrategy(size=min(share.hosts, len(blocks)), max_tasks_in_flight_per_actor=2),
        scheduling_strategy="SPREAD",
        **resources,
    )
    return made.iter_rows()


@contextlib.contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    check_installed()
    import ray
    import ray.data

    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    try:
        # Without an address Ray would look for a cluster that another program has started.
        ray.init(address or "local", **({} if address else {"include_dashboard": False}), **quiet)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        raise UserError(f"--address {address}: cannot be reached: {reason(error)}") from None
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        yield ray
    finally:
        ray.shutdown()
