"""Encoding on a Ray cluster: an actor on each host encodes blocks."""

import contextlib
import logging
import os
import re
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from simcse_jax.bulk.embeddings.blocks import make_block
from simcse_jax.bulk.embeddings.embeddings_folder import (
    Manifest,
    RowBlock,
    blocks_of,
    complete,
    count_rows,
    finish,
    missing,
    uncounted,
)
from simcse_jax.bulk.embeddings.encoder import EncodingOptions, RowEncoder
from simcse_jax.bulk.embeddings.shared_folder import FolderPlan
from simcse_jax.data.identity import read_sealed
from simcse_jax.errors import UserError, reason, require, system_message
from simcse_jax.host.progress import Clock, Progress, write
from simcse_jax.host.storage import Folder, as_path

ACCELERATORS = ("TPU", "GPU")
LOOK_SECONDS = 5.0  # between checks of what is done
CONNECT_SECONDS = 5.0  # until an address counts as wrong
LOST = 3  # actors per host that may be lost in a row
NEEDED = {"TPU": "tpu", "GPU": "cuda13"}  # JAX's extras
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
        if before is None or before["key"] != self.plan.key or before["stamps"] != self.plan.stamps:
            raise UserError(f"--output {folder}: is a different folder here; name one that all hosts see")
        return folder


class Answer(NamedTuple):
    """The result of work on a host."""

    done: bool  # False if another process is doing it
    mistake: str = ""  # what is wrong, and on which host


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Connects to the cluster at `address`, or starts one on this machine.

    Connect before using JAX, because a cluster's processes are forked.
    """
    require("ray", "ray")
    if address:
        _check_reached(address)
    import ray

    os.environ.setdefault("RAY_worker_niceness", "0")  # of a cluster on this machine; Ray's own is 15
    options: dict[str, Any] = {} if address else {"include_dashboard": False}
    try:
        # Without an address, Ray would look for a cluster that another program started.
        ray.init(address or "local", logging_level=logging.ERROR, log_to_driver=False, **options)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        problem = f"--address {address}: cannot be reached" if address else "--engine ray: no cluster can be started"
        token = "; if it asks for a token, set RAY_AUTH_MODE=token" * (address not in (None, "auto"))
        raise UserError(f"{problem}: {reason(error)}{token}") from None
    try:
        yield
    finally:
        ray.shutdown()


def _check_reached(address: str) -> None:
    """Finds within seconds that nobody listens, where Ray tries for minutes. Ignores names without a port."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"--address {address}: cannot be reached: {system_message(error)}") from None


def encode_on_ray(
    folder: Folder, plan: FolderPlan, options: EncodingOptions, hosts: int | None = None
) -> Manifest | None:
    """Makes the missing blocks on the connected cluster; the block of a lost actor is made again.

    An actor reads, encodes and writes a block by itself, so no rows pass through Ray, and no other task needs a
    processor, which it would wait for forever if the actors have all of them.

    Args:
      folder: of the embeddings, after `shared_folder.enter`; all hosts must see it.

    Returns:
      The manifest; None if processes outside the cluster are still making blocks.
    """
    import ray

    share = share_of(ray.nodes(), hosts)  # before hours of counting
    job = ray.put(Job(os.getcwd(), str(folder), plan, options))
    _count_together(job, uncounted(folder, plan))
    blocks = blocks_of(folder, plan)
    if manifest := complete(folder, plan, blocks):
        return manifest
    rows, unmade = sum(block.rows for block in blocks), missing(folder, blocks)
    with Progress(rows, done=rows - sum(block.rows for block in unmade)) as bar:
        while unmade:
            for made in _make_blocks(job, unmade, share):
                bar.advance(made.rows)
            before, unmade = unmade, missing(folder, blocks)
            if unmade == before:  # processes outside the cluster are making them
                return None
    return finish(folder, plan, blocks)


def share_of(nodes: list[dict[str, Any]], hosts: int | None) -> Share:
    """The resources of each actor; refuses more actors than fit, for which Ray would wait forever.

    Args:
      nodes: as `ray.nodes` returns them.
      hosts: the number of actors; None for one per host with accelerators, or per host if none has any. Without
        accelerators, several actors can share a host's processors.
    """
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    for kind in ACCELERATORS:
        counts = [resources[kind] for resources in alive if resources.get(kind)]
        if counts:
            break
    else:
        kind, counts = "CPU", [resources["CPU"] for resources in alive if resources.get("CPU")]
    if not counts:
        raise UserError("--engine ray: no host of the cluster has a processor; start Ray with --num-cpus")
    fewest, hosts = int(min(counts)), hosts or len(counts)
    on_each = -(-hosts // len(counts))
    if on_each > (1 if kind in ACCELERATORS else fewest):
        has = f"{len(counts)} host{'s' * (len(counts) > 1)} with {fewest} {kind}{'s' * (fewest > 1)} each"
        raise UserError(f"--hosts {hosts}: the cluster has {has}")
    return Share(hosts, kind, fewest // on_each)


def _answer(work: Callable[[], bool]) -> Answer:
    try:
        return Answer(work())
    except UserError as mistake:  # which Ray would wrap into an error of its own, with a traceback
        return Answer(False, f"{mistake} (on {os.uname().nodename})")


def _check_answer(result: Any) -> bool:
    """Whether the work on a host was done; raises the host's errors, and `RayActorError` if the actor was lost."""
    import ray
    from ray.exceptions import RayActorError, RayTaskError

    try:
        answer: Answer = ray.get(result)
    except (RayActorError, RayTaskError) as error:
        if absent := re.search(r"No module named '[\w.]+'", str(error)):
            raise UserError(
                f"--engine ray: on a host of the cluster: {absent[0]}; install the same packages on all hosts"
            ) from None
        raise
    if answer.mistake:
        raise UserError(answer.mistake)
    return answer.done


def _last_line(error: Exception) -> str:
    """The last line of an error that contains a host's traceback."""
    return str(error).strip().rpartition("\n")[2][:200]


def _count_together(job: Any, sources: Sequence[int]) -> None:
    import ray

    if sources and not any(node["Alive"] and node["Resources"].get("CPU", 0) >= 1 for node in ray.nodes()):
        raise UserError("--engine ray: no host of the cluster has a processor to count rows; start Ray with --num-cpus")
    count, clock = ray.remote(_count), Clock()
    pending = [count.remote(job, source) for source in sources]
    while pending:
        done, pending = ray.wait(pending, num_returns=len(pending), timeout=LOOK_SECONDS)
        for result in done:
            _check_answer(result)
        if pending and clock.is_due():
            counted = f"{len(sources) - len(pending):,} of {len(sources):,} files"
            write(f"counted the rows of {counted}; each uses a processor of the cluster", sys.stderr)


def _count(job: Job, source: int) -> Answer:
    """Counts a source's rows, on any host."""
    return _answer(lambda: count_rows(job.arrive(), job.plan, source))


class BlockEncoder:
    """An actor. Its model is loaded once."""

    def __init__(self, job: Job, share: Share):
        self._job, self._share = job, share
        # JAX reads these when it first looks for devices.
        if share.kind == "CPU":
            os.environ["NPROC"] = str(share.units)
        elif share.kind == "TPU" and share.units in CHIPS:  # else a host would wait for the others in its slice
            os.environ |= {"TPU_PROCESS_BOUNDS": "1,1,1", "TPU_CHIPS_PER_PROCESS_BOUNDS": CHIPS[share.units]}

    def load(self) -> Answer:
        """Loads the model, and compares it with the plan."""
        return _answer(self._load)

    def make(self, block: RowBlock) -> Answer:
        """Makes a block."""
        return _answer(lambda: make_block(self._folder, self._job.plan, block, self._encoder, patient=True))

    def _load(self) -> bool:
        import jax

        self._folder = self._job.arrive()
        kind, chosen = self._share.kind, os.environ.get("JAX_PLATFORMS")
        if kind in ACCELERATORS and not chosen and jax.default_backend() == "cpu":  # JAX's warning is not seen here
            raise UserError(f'--engine ray: JAX sees no {kind} here; run: pip install "jax[{NEEDED[kind]}]"')
        self._encoder = RowEncoder(self._job.options)
        for option, value in self._encoder.about().items():
            if value != self._job.plan.key[option]:
                raise UserError(f"{option} {self._job.options.model}: differs here")
        return True


def _make_blocks(job: Any, blocks: Sequence[RowBlock], share: Share) -> Iterator[RowBlock]:
    """Yields blocks as they are made, except those that processes outside the cluster are making.

    A lost actor is replaced, and its block goes to the next free one.
    """
    import ray
    from ray.exceptions import RayActorError

    amount: dict[str, dict[str, Any]] = {
        "CPU": {"num_cpus": share.units},
        "GPU": {"num_gpus": share.units},
        "TPU": {"resources": {"TPU": share.units}},
    }
    kind: Any = ray.remote(scheduling_strategy="SPREAD", **amount[share.kind])(BlockEncoder)
    waiting, clock, lost = deque(blocks), Clock(), 0
    running: dict[
        Any, tuple[Any, RowBlock | None]
    ] = {}  # by its result, an actor with its block; None: it loads its model

    def start() -> None:
        actor = kind.remote(job, share)
        running[actor.load.remote()] = actor, None

    for _ in range(min(share.hosts, len(blocks))):
        start()
    while waiting or any(block for _, block in running.values()):
        done, _ = ray.wait(list(running), num_returns=1, timeout=LOOK_SECONDS)
        if not done and not any(block for _, block in running.values()) and clock.is_due():
            write(f"waiting for a host with {share.units} {share.kind}s, and for the model on it", sys.stderr)
        for result in done:
            actor, block = running.pop(result)
            try:
                made = _check_answer(result)
            except RayActorError as error:  # its process or its host was lost
                lost += 1
                if lost == LOST * share.hosts:
                    raise UserError(f"--engine ray: {lost} actors in a row were lost: {_last_line(error)}") from None
                if block:
                    waiting.appendleft(block)
                start()
                continue
            if block and made:
                lost = 0
                yield block
            if waiting:
                following = waiting.popleft()
                running[actor.make.remote(following)] = actor, following
