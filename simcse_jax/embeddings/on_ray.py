"""Encoding on the machines of a Ray cluster: an actor on each encodes blocks."""

import contextlib
import importlib.util
import logging
import os
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from simcse_jax.corpus.begun import Plan
from simcse_jax.embeddings.blocks import make_block
from simcse_jax.embeddings.encoder import Encoder, Options
from simcse_jax.embeddings.manifest import Manifest, complete, finish, missing
from simcse_jax.embeddings.plan import Block, blocks_of, count_rows, uncounted
from simcse_jax.errors import UserError, reason
from simcse_jax.progress import Clock, Progress, write
from simcse_jax.storage import Folder, as_path

ACCELERATORS = ("TPU", "GPU")
LOOK_SECONDS = 5.0  # between two looks at whether there is a host
CHIPS = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1", 8: "2,4,1"}  # how a host's TPU chips lie


class Share(NamedTuple):
    """What an actor has."""

    hosts: int  # the number of actors
    kind: str  # TPU, GPU or CPU
    each: int  # how many of them


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[None]:
    """A connection to a cluster. Connect before JAX is used: a cluster's processes are started with a fork.

    Args:
      address: of the cluster; None starts one on this machine.

    Raises:
      UserError: when Ray is not installed, or the cluster cannot be reached.
    """
    if importlib.util.find_spec("ray") is None:
        raise UserError("--engine ray: the package is missing; pip install 'simcse_jax[ray]'")
    import ray

    os.environ.setdefault("RAY_worker_niceness", "0")  # of a cluster on this machine; Ray's own is 15
    own: dict[str, Any] = {} if address else {"include_dashboard": False}
    try:
        # Without an address Ray would look for a cluster that another program has started.
        ray.init(address or "local", logging_level=logging.ERROR, log_to_driver=False, **own)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        raise UserError(f"--address {address}: cannot be reached: {reason(error)}") from None
    try:
        yield
    finally:
        ray.shutdown()


def encode_on_ray(folder: Folder, plan: Plan, options: Options, hosts: int | None = None) -> Manifest | None:
    """Makes the blocks that are missing, on the connected cluster; what a lost actor was making is made again.

    An actor reads, encodes and writes a block by itself: no rows pass through Ray, and no other work of it needs a
    processor, for which it would wait without end where actors have all of them.

    Args:
      folder: of the embeddings, which all hosts see; `corpus.begun.enter` has seen it.
      plan: of the folder.
      options: of the plan's encoder.
      hosts: the number of actors, see `share_of`.

    Returns:
      The manifest; None if processes outside the cluster are still making blocks.

    Raises:
      UserError: naming the row or file that is wrong, or when the cluster has too few hosts.
    """
    import ray

    counts = [ray.remote(_count).remote(str(folder), plan, source) for source in uncounted(folder, plan)]
    for mistake in ray.get(counts):
        if mistake:
            raise UserError(mistake)
    blocks = blocks_of(folder, plan)
    if manifest := complete(folder, blocks):
        return manifest
    share = share_of(ray.nodes(), hosts)
    rows, left = sum(block.rows for block in blocks), missing(folder, blocks)
    with Progress(rows, done=rows - sum(block.rows for block in left)) as bar:
        for made in _made(folder, plan, options, left, share):
            bar.advance(made.rows)
    return None if missing(folder, blocks) else finish(folder, plan, blocks)


def share_of(nodes: list[dict[str, Any]], hosts: int | None) -> Share:
    """What each actor takes of a cluster.

    Args:
      nodes: as `ray.nodes` has them.
      hosts: the number of actors; None: one for each host with accelerators, or for each host where none has any.
        There more than hosts share their processors.

    Raises:
      UserError: when there are too few, for which Ray would wait without end.
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
    each, hosts = int(min(found)), hosts or len(found)
    on_each = -(-hosts // len(found))
    if on_each > (1 if kind in ACCELERATORS else each):
        has = f"{len(found)} host{'s' * (len(found) > 1)} with {each} {kind}{'s' * (each > 1)} each"
        raise UserError(f"--hosts {hosts}: the cluster has {has}")
    return Share(hosts, kind, each // on_each)


def _count(folder: str, plan: Plan, source: int) -> str:
    """Counts a source's rows, on any host; returns what is wrong with them."""
    try:
        count_rows(as_path(folder), plan, source)
    except UserError as mistake:
        return str(mistake)
    return ""


class BlockEncoder:
    """An actor. Its model is loaded once."""

    def __init__(self, folder: str, plan: Plan, options: Options, share: Share):
        self._folder, self._plan, self._options = as_path(folder), plan, options
        # JAX reads these when it looks for devices, which it has not done yet.
        if share.kind == "CPU":
            os.environ["NPROC"] = str(share.each)
        elif share.kind == "TPU" and share.each in CHIPS:  # by itself a host would wait for the others of its slice
            os.environ |= {"TPU_PROCESS_BOUNDS": "1,1,1", "TPU_CHIPS_PER_PROCESS_BOUNDS": CHIPS[share.each]}

    def load(self) -> str:
        """Loads the model; returns what is wrong with it."""
        try:
            self._encoder = Encoder(self._options)
            for option, value in self._encoder.about().items():
                if value != self._plan.key[option]:
                    raise UserError(f"{option} {self._options.model}: is another one on {os.uname().nodename}")
        except UserError as mistake:
            return str(mistake)
        return ""

    def make(self, block: Block) -> str:
        """Makes a block; returns what is wrong with it."""
        try:
            make_block(self._folder, self._plan, block, self._encoder, patient=True)
        except UserError as mistake:
            return str(mistake)
        return ""


class _Work(NamedTuple):
    actor: Any
    block: Block | None  # None: it loads its model


def _made(folder: Folder, plan: Plan, options: Options, blocks: Sequence[Block], share: Share) -> Iterator[Block]:
    """The blocks, as they are made.

    An actor that is lost is replaced, and its block goes to the one that is free next.
    """
    import ray
    from ray.exceptions import RayActorError

    amount: dict[str, dict[str, Any]] = {
        "CPU": {"num_cpus": share.each},
        "GPU": {"num_gpus": share.each},
        "TPU": {"resources": {"TPU": share.each}},
    }
    kind: Any = ray.remote(scheduling_strategy="SPREAD", **amount[share.kind])(BlockEncoder)
    waiting, running, clock = deque(blocks), {}, Clock()

    def start() -> None:
        actor = kind.remote(str(folder), plan, options, share)
        running[actor.load.remote()] = _Work(actor, None)

    for _ in range(min(share.hosts, len(blocks))):
        start()
    while waiting or any(work.block for work in running.values()):
        done, _ = ray.wait(list(running), num_returns=1, timeout=LOOK_SECONDS)
        if not done and not any(work.block for work in running.values()) and clock.is_due():
            write(f"waiting for a host with {share.each:g} {share.kind}s", sys.stderr)
        for result in done:
            actor, block = running.pop(result)
            try:
                mistake = ray.get(result)
            except RayActorError:  # its process or its host was lost
                if block:
                    waiting.appendleft(block)
                start()
                continue
            if mistake:
                raise UserError(mistake)
            if block:
                yield block
            if waiting:
                following = waiting.popleft()
                running[actor.make.remote(following)] = _Work(actor, following)
