"""The job that holds a lock, as it is written into the lock for others to read."""

import json
import os
import shlex
import socket
import sys
import uuid
from datetime import UTC, datetime
from typing import NamedTuple

from simcse_jax.errors import UserError


class Owner(NamedTuple):
    """A job: where it runs, what it is, and since when it has the lock."""

    host: str
    process: int
    since: str
    command: str
    token: str  # no other lock has the same

    def text(self) -> str:
        """The contents of the lock."""
        return json.dumps(self._asdict(), indent=2) + "\n"


def this_job() -> Owner:
    """This process, from now on."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return Owner(socket.gethostname(), os.getpid(), now, shlex.join(sys.orig_argv), uuid.uuid4().hex)


def read_owner(text: bytes) -> Owner | None:
    """The job that wrote a lock; None if the text does not say, e.g. because it was read while it was written."""
    try:
        fields = json.loads(text)
        return Owner(**{name: kind(fields[name]) for name, kind in Owner.__annotations__.items()})
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def describe(owner: Owner | None) -> str:
    """The job, for messages."""
    if owner is None:
        return "another process"
    text = f"process {owner.process} on {owner.host}, since {owner.since},"
    return "".join(each if each.isprintable() else "?" for each in text)  # the file may be anybody's


def taken(place: object, owner: Owner | None) -> UserError:
    """The error for the second job, which names the first one."""
    return UserError(f"{place}: {describe(owner)} is writing there; wait for its end, or choose another place")
