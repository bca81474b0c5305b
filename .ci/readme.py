"""Runs the Python and the commands of ./README.md, in order, and lists those that need what is not here."""

import re
import subprocess
import sys
from pathlib import Path

# Words of lines that need other people's data, a download of weights, another machine, or an answer from a person.
ELSEWHERE = ("SentEval", "unsup_bert", "sup_bert", "ablations/", "OWNER/", "aot", "serve", "demo", "hf:", "gs://", "…")
INSTALLING = ("pip ", "python -m venv", "git ", "make ", "source ", "docker ")


def main() -> None:
    """Runs them."""
    done = 0
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", Path("README.md").read_text("utf-8"), re.M | re.S):
        if language == "text":  # what was printed
            continue
        lines = block.replace("\\\n", " ").splitlines()
        for command in [block] if language == "python" else [line.partition("  #")[0].strip() for line in lines]:
            if not command or command.startswith(INSTALLING):
                continue
            if needed := [word for word in ELSEWHERE if word in command.partition("#")[0]]:
                print(f"-- not run, for {needed[0]}: {command.splitlines()[0]}", flush=True)
                continue
            print(f"-- {command}", flush=True)
            start = [sys.executable, "-c"] if language == "python" else ["bash", "-ec"]
            subprocess.run([*start, command], check=True)
            done += 1
    print(f"{done} of the README's blocks and lines have run")
    if not done:
        sys.exit("the README has nothing to run")


if __name__ == "__main__":
    main()
