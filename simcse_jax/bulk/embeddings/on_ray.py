"""Encoding on a Ray cluster: Ray Data hands blocks to an actor on each host, which reads, encodes and writes them."""

import contextlib
import logging
import os
import socket
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from simcse_jax.bulk.embeddings.blocks import make_block
from simcse_jax.bulk.embeddings.embeddings_folder import (
    Manifest,
    RowBlock,
    blocks_of,
    complete,
    finish,
    missing,
)
from simcse_jax.bulk.embeddings.encoder import EncodingOptions, RowEncoder
from simcse_jax.bulk.embeddings.shared_folder import FolderPlan
from simcse_jax.data.identity import read_sealed
from simcse_jax.errors import UserError, reason, require, system_message
from simcse_jax.host.progress import Progress
from simcse_jax.host.storage import Folder, as_path

CONNECT_SECONDS = 5.0  # until an address counts as wrong
RETRIES = 3  # of a block whose actor died: one that needs too much memory kills every actor
CHIPS = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1", 8: "2,4,1"}  # the layout of a host's TPU chips


class Share(NamedTuple):
    """The actors' resources."""

    hosts: int  # the number of actors
    kind: str  # TPU, GPU or CPU
    units: int  # how many of these an actor has


class Job(NamedTuple):
    """The facts that every host needs."""

    place: str  # the command's working directory, for relative names
    folder: str
    plan: FolderPlan
    options: EncodingOptions

    def arrive(self) -> Folder:
        """The folder of the embeddings on this host; refuses a different folder of that name."""
        with contextlib.suppress(OSError):  # not needed without relative names
            os.chdir(self.place)
        folder = as_path(self.folder)
        before = read_sealed(self.plan.file(folder))
        if before is None or before["key"] != self.plan.key:
            raise UserError(f"--output {folder}: is a different folder here; name one that all hosts see")
        return folder


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Connects to the cluster at `address`, or starts one on this machine.

    Connect before using JAX, because a cluster's processes are forked.
    """
    require("ray", "ray", "pandas")
    host, _, port = (address or "").rpartition(":")
    if host and port.isdecimal() and "/" not in host:  # Ray tries for minutes
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise UserError(f"--address {address}: cannot be reached: {system_message(error)}") from None
    import ray
    import ray.data

    os.environ.setdefault("RAY_worker_niceness", "0")  # of a cluster on this machine; Ray's own is 15
    options: dict[str, Any] = {} if address else {"include_dashboard": False}
    try:
        # Without an address, Ray would look for a cluster that another program started.
        ray.init(address or "local", logging_level=logging.ERROR, log_to_driver=False, **options)
    except Exception as error:  # Ray has no common class
        problem = f"--address {address}: cannot be reached" if address else "--engine ray: no cluster can be started"
        raise UserError(f"{problem}: {reason(error)}") from None
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()


def encode_on_ray(
    folder: Folder, plan: FolderPlan, options: EncodingOptions, hosts: int | None = None
) -> Manifest | None:
    """Makes the missing blocks on the connected cluster; the block of a lost actor is made again.

    Args:
      folder: of the embeddings, after `shared_folder.enter`; all hosts must see it.

    Returns:
      The manifest; None if processes outside the cluster are still making blocks.
    """
    import ray

    job = Job(os.getcwd(), str(folder), plan, options)
    blocks = blocks_of(folder, plan)
    if manifest := complete(folder, plan, blocks):
        return manifest
    share = share_of(ray.nodes(), hosts)
    rows, unmade = sum(block.rows for block in blocks), missing(folder, blocks)
    with Progress(rows, done=rows - sum(block.rows for block in unmade)) as bar:
        while unmade:
            for made in _make_blocks(job, unmade, share):
                bar.advance(made)
            before, unmade = unmade, missing(folder, blocks)
            if unmade == before:  # processes outside the cluster are making them
                return None
    return finish(folder, plan, blocks)


def share_of(nodes: list[dict[str, Any]], hosts: int | None) -> Share:
    """The resources of each actor.

    Args:
      nodes: as `ray.nodes` returns them.
      hosts: the number of actors; None for one per host with accelerators, or per host if none has any. Without
        accelerators, several actors can share a host's processors.
    """
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    for kind in ("TPU", "GPU", "CPU"):
        counts = [int(resources[kind]) for resources in alive if resources.get(kind)]
        if counts:
            hosts = hosts or len(counts)
            on_each = -(-hosts // len(counts)) if kind == "CPU" else 1
            return Share(hosts, kind, max(min(counts) // on_each, 1))
    raise UserError("--engine ray: no host of the cluster has a processor; start Ray with --num-cpus")


class BlockEncoder:
    """An actor. Its model is loaded once."""

    _encoder: RowEncoder | None

    def __init__(self, job: Job, blocks: Sequence[RowBlock], share: Share):
        self._job, self._blocks = job, blocks
        self._kind, self._encoder = share.kind, None
        # JAX reads these when it first looks for devices.
        if share.kind == "CPU":
            os.environ["NPROC"] = str(share.units)
        elif share.kind == "TPU" and share.units in CHIPS:  # else a host would wait for the others in its slice
            os.environ |= {"TPU_PROCESS_BOUNDS": "1,1,1", "TPU_CHIPS_PER_PROCESS_BOUNDS": CHIPS[share.units]}

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The rows of the block that it makes; or a mistake, which Ray would wrap into an error with a traceback."""
        (number,) = batch["item"]
        try:
            return {"rows": [self._make(self._blocks[number])], "mistake": [""]}
        except UserError as mistake:
            return {"rows": [0], "mistake": [f"{mistake} (on {os.uname().nodename})"]}

    def _make(self, block: RowBlock) -> int:
        import jax

        folder = self._job.arrive()
        if self._kind != "CPU" and not os.environ.get("JAX_PLATFORMS") and jax.default_backend() == "cpu":
            raise UserError(f"--engine ray: JAX sees no {self._kind} here; install JAX for it")
        if self._encoder is None:
            encoder = RowEncoder(self._job.options)
            for option, value in encoder.about().items():
                if value != self._job.plan.key[option]:
                    raise UserError(f"{option} {self._job.options.model}: differs here")
            self._encoder = encoder
        return block.rows if make_block(folder, self._job.plan, block, self._encoder, patient=True) else 0


def _make_blocks(job: Job, blocks: Sequence[RowBlock], share: Share) -> Iterator[int]:
    """Yields the rows of blocks as they are made; 0 for one that a process outside the cluster is making."""
    import ray
    from ray.exceptions import RayError

    amount: dict[str, dict[str, Any]] = {
        "CPU": {"num_cpus": share.units},
        "GPU": {"num_gpus": share.units},
        "TPU": {"resources": {"TPU": share.units}},
    }
    numbers = ray.data.from_items([*range(len(blocks))], override_num_blocks=len(blocks))
    # Actors that find no room wait for it while the others work.
    actors = ray.data.ActorPoolStrategy(size=min(share.hosts, len(blocks)), max_tasks_in_flight_per_actor=1)
    made = numbers.map_batches(
        BlockEncoder,
        fn_constructor_args=(job, blocks, share),
        batch_size=1,
        compute=actors,
        max_task_retries=RETRIES,
        **amount[share.kind],
    )
    try:
        for answer in made.iter_rows():
            if answer["mistake"]:
                raise UserError(answer["mistake"])
            yield answer["rows"]
    except RayError as error:
        raise UserError(f"--engine ray: {reason(error)}") from None
