"""Encoding on a Ray cluster, which starts on each host what `blocks.encode_here` does."""

import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from typing import Any, NamedTuple

from simcse_jax.bulk.embeddings.blocks import encode_here
from simcse_jax.bulk.embeddings.embeddings_folder import Manifest, blocks_of, finish, missing
from simcse_jax.bulk.embeddings.encoder import EncodingOptions, RowEncoder
from simcse_jax.bulk.embeddings.shared_folder import FolderPlan
from simcse_jax.data.identity import read_sealed
from simcse_jax.errors import UserError, reason, require, system_message
from simcse_jax.host.progress import Progress
from simcse_jax.host.storage import Folder, as_path

CONNECT_SECONDS = 5.0  # until an address counts as wrong
LOOK_SECONDS = 1.0  # between two looks at what has been made
RETRIES = 3  # of a worker that died: a block that needs too much memory kills each of them
CHIPS = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1", 8: "2,4,1"}  # the layout of a host's TPU chips


class Share(NamedTuple):
    """The workers' resources."""

    hosts: int  # the number of workers
    kind: str  # TPU, GPU or CPU
    units: int  # how many of these a worker has


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
    require("ray", "ray")
    host, _, port = (address or "").rpartition(":")
    if host and port.isdecimal() and "/" not in host:  # Ray tries for minutes
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise UserError(f"--address {address}: cannot be reached: {system_message(error)}") from None
    import ray

    os.environ.setdefault("RAY_worker_niceness", "0")  # of a cluster on this machine; Ray's own is 15
    options: dict[str, Any] = {} if address else {"include_dashboard": False}
    try:
        # Without an address, Ray would look for a cluster that another program started.
        ray.init(address or "local", logging_level=logging.ERROR, log_to_driver=False, **options)
    except Exception as error:  # Ray has no common class
        problem = f"--address {address}: cannot be reached" if address else "--engine ray: no cluster can be started"
        raise UserError(f"{problem}: {reason(error)}") from None
    try:
        yield
    finally:
        ray.shutdown()


def encode_on_ray(folder: Folder, plan: FolderPlan, options: EncodingOptions, hosts: int | None = None) -> Manifest:
    """Makes the missing blocks on the connected cluster; a worker that dies is started again.

    Args:
      folder: of the embeddings, after `shared_folder.enter`; all hosts must see it.
    """
    import ray
    from ray.exceptions import RayError

    blocks, share = blocks_of(folder, plan), share_of(ray.nodes(), hosts)
    rows, left = sum(block.rows for block in blocks), sum(block.rows for block in missing(folder, blocks))
    amount: dict[str, dict[str, Any]] = {
        "CPU": {"num_cpus": share.units},
        "GPU": {"num_gpus": share.units},
        "TPU": {"resources": {"TPU": share.units}},
    }
    # A process of its own for each, since JAX keeps the accelerators that it has seen.
    worker = ray.remote(max_calls=1, max_retries=RETRIES, **amount[share.kind])(encode_on_host)
    job = Job(os.getcwd(), str(folder), plan, options)
    work = [worker.remote(job, share) for _ in range(share.hosts if left else 0)]
    ended: list[Any] = []
    with Progress(rows, done=rows - left) as bar:
        while left and not ended:
            ended, _ = ray.wait(work, timeout=LOOK_SECONDS)
            before, left = left, sum(block.rows for block in missing(folder, blocks))
            bar.advance(before - left)
            try:
                mistake = "".join(ray.get(ended))
            except RayError as error:
                raise UserError(f"--engine ray: {reason(error)}") from None
            if mistake:
                raise UserError(mistake)
    return finish(folder, plan, blocks)


def share_of(nodes: list[dict[str, Any]], hosts: int | None) -> Share:
    """The resources of each worker.

    Args:
      nodes: as `ray.nodes` returns them.
      hosts: the number of workers; None for one per host with accelerators, or per host if none has any. Without
        accelerators, several workers can share a host's processors.
    """
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    for kind in ("TPU", "GPU", "CPU"):
        counts = [int(resources[kind]) for resources in alive if resources.get(kind)]
        if counts:
            hosts = hosts or len(counts)
            on_each = -(-hosts // len(counts)) if kind == "CPU" else 1
            return Share(hosts, kind, max(min(counts) // on_each, 1))
    raise UserError("--engine ray: no host of the cluster has a processor; start Ray with --num-cpus")


def encode_on_host(job: Job, share: Share) -> str:
    """A worker; returns its mistake, which Ray would wrap into an error with a traceback."""
    # JAX reads these when it first looks for devices.
    if share.kind == "CPU":
        os.environ["NPROC"] = str(share.units)
    elif share.kind == "TPU" and share.units in CHIPS:  # else a host would wait for the others in its slice
        os.environ |= {"TPU_PROCESS_BOUNDS": "1,1,1", "TPU_CHIPS_PER_PROCESS_BOUNDS": CHIPS[share.units]}
    import jax

    try:
        folder = job.arrive()
        if share.kind != "CPU" and not os.environ.get("JAX_PLATFORMS") and jax.default_backend() == "cpu":
            raise UserError(f"--engine ray: JAX sees no {share.kind} here; install JAX for it")
        encoder = RowEncoder(job.options)
        for option, value in encoder.about().items():
            if value != job.plan.key[option]:
                raise UserError(f"{option} {job.options.model}: differs here")
        encode_here(folder, job.plan, encoder, shown=False)
    except UserError as mistake:
        return f"{mistake} (on {os.uname().nodename})"
    return ""
