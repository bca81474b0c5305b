"""The process that a contender runs in: `python -m benchmarks.contender`, which `benchmarks.side_by_side` starts.

The first line on standard input is JSON: `factory`, the name `module:function` that builds the contender, and its
`options`. A factory warms up, and returns a function that does one round and gives what it `Done`. Each further line
asks for a round. Answers are lines of JSON; any other output goes to standard error.
"""

import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from benchmarks import machine


class Done(NamedTuple):
    """The result of a round: `work` units, and notes as JSON.

    `seconds` is for work in another process; None: the time the function took.
    """

    work: float
    notes: Mapping[str, Any] = {}
    seconds: float | None = None


Round = Callable[[], Done]


def main() -> None:
    """Builds, says so, and does rounds until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries is not an answer

    def answer(**values: Any) -> None:
        print(json.dumps(values), file=answers, flush=True)

    try:
        order = json.loads(sys.stdin.readline())
        module, _, function = order["factory"].partition(":")
        started = time.perf_counter()
        do_round = getattr(importlib.import_module(module), function)(**order["options"])
        seconds = time.perf_counter() - started
        answer(device=machine.device(), versions=machine.versions(), seconds=seconds)
        for _ in sys.stdin:
            started = time.perf_counter()
            done = do_round()
            seconds = time.perf_counter() - started
            answer(
                work=done.work,
                seconds=seconds if done.seconds is None else done.seconds,
                notes=done.notes,
                memory_mib=machine.peak_memory_mib(),
                device_memory_mib=machine.peak_device_memory_mib(),
            )
    except Exception as error:
        traceback.print_exc()
        text = " ".join(str(error).split())[:200]
        answer(failed=f"{type(error).__name__}: {text}" if text else type(error).__name__)
    answers.flush()
    os._exit(0)  # a contender's threads may wait for rounds that never come


if __name__ == "__main__":
    main()
