"""Flags for XLA, which ends a process with one that it does not know; pytest would show nothing of what it says."""

import os
import re
import subprocess
import sys

READ = "from jaxlib.xla_client import CompileOptions; CompileOptions().executable_build_options.debug_options"


def refusal(flags: list[str]) -> str:
    """What XLA says of these flags in a process of its own, in a fifth of a second; empty: it knows them all."""
    environment = {**os.environ, "XLA_FLAGS": " ".join(flags)}
    done = subprocess.run([sys.executable, "-c", READ], env=environment, capture_output=True, text=True)
    if not done.returncode:
        return ""
    said = done.stderr.strip() or f"exit code {done.returncode}"
    fatal = re.search(r"^F\d+ [^\]]*\] (.*)", said, re.MULTILINE)
    return fatal[1] if fatal else said.splitlines()[-1]


def known(needed: list[str], wanted: list[str]) -> list[str]:
    """`needed`, and those of `wanted` that this XLA knows; ends the tests with a line if it does not know `needed`."""
    if not (refused := refusal([*needed, *wanted])):
        return [*needed, *wanted]
    if not wanted:
        sys.exit(f"XLA_FLAGS={' '.join(needed)}: {refused}")
    named = [flag for flag in wanted if flag in refused.split()] or wanted
    return known(needed, [flag for flag in wanted if flag not in named])
