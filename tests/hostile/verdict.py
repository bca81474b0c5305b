"""Whether a command ended well."""

import hashlib
import os
import stat
from fnmatch import fnmatch
from pathlib import Path

from hostile.case import CODES, COMPARED, KEPT, Case, contents, equal
from hostile.zygote import HUNG, Done

TRACES = ("Traceback (most recent call last)", "panicked at", "Fatal Python error", "Exception ignored")
EMPTY = "an empty folder"
LONGEST = 2000  # characters of an error


def listing(folder: Path) -> dict[str, str]:
    """Every path below a folder, and what it is: a file by its digest, a link by its target."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            what = f"link to {path.readlink()}"
        elif stat.S_ISREG(mode):
            what = hashlib.sha256(path.read_bytes()).hexdigest()
        elif stat.S_ISDIR(mode):
            what = EMPTY if os.access(path, os.R_OK) and not os.listdir(path) else "folder"
        else:
            what = oct(stat.S_IFMT(mode))
        found[str(path.relative_to(folder))] = what
    return found


def problem(case: Case, done: Done, folder: Path, before: dict[str, str], reference: object = None) -> str:
    """What went wrong, in a few words; empty if nothing did.

    `before` is the listing of `folder` before the command, `reference` the output of undamaged inputs.
    """
    codes = CODES[case.end]
    if done.code == HUNG:
        return f"no answer within {done.seconds:.0f} s"
    if isinstance(done.code, int) and done.code < 0:
        return f"crash by signal {-done.code}"
    if trace := next((trace for trace in TRACES if trace in done.err + done.out), None):
        return f"{trace}: {last_line(done.err)}"
    if done.code not in codes:
        return f"exit code {done.code}, not one of {codes}: {last_line(done.err) or last_line(done.out)}"
    after = listing(folder)
    if ran := next((path for path in after if path.endswith("pwned") and path not in before), None):
        return f"ran code from a file, which made {ran}"
    if done.code == 2:
        found = _problem_of_refusal(case, done, before, after)
        return found if found or case.end != KEPT else _problem_of_output(case, folder, reference)
    changed = [path for path, what in before.items() if after.get(path) != what and what != EMPTY]
    if changed := [path for path in changed if not _is_output(case, path) and not _allowed(case, path)]:
        return f"changed its input {changed[0]}"
    if left := [path for path in after if path not in before and path.endswith((".tmp", ".partial", ".state.json"))]:
        return f"left {left[0]}"
    if case.output and done.code == 0:
        return _problem_of_output(case, folder, reference)
    return ""


def _problem_of_refusal(case: Case, done: Done, before: dict[str, str], after: dict[str, str]) -> str:
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    if len(errors) != 1:
        return f"{len(errors)} lines with an error: {done.err[-200:]!r}"
    if len(errors[0]) > LONGEST:
        return f"an error of {len(errors[0])} characters"
    if case.names and case.names not in errors[0]:
        return f"does not name {case.names}: {errors[0]}"
    changed = [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
    harmless = set() if case.end != KEPT else {path for path in changed if _is_output(case, path)}
    harmless |= {path for path in changed if after.get(path) == EMPTY}
    if changed := sorted(path for path in changed if path not in harmless and not _allowed(case, path)):
        return f"refused, and left or changed {', '.join(changed[:3])}"[:300]
    return ""


def _problem_of_output(case: Case, folder: Path, reference: object) -> str:
    try:
        found = contents(folder / case.output)
    except (OSError, ValueError) as error:
        return f"exit code 0, and the output is wrong: {error}"
    if case.end in COMPARED and not equal(found, reference):
        return "exit code 0, and another output than that of the undamaged input"
    return ""


def _is_output(case: Case, path: str) -> bool:
    return bool(case.output) and (path == case.output or path.startswith(f"{case.output}/"))


def _allowed(case: Case, path: str) -> bool:
    return any(fnmatch(path, pattern) for pattern in case.leaves)


def last_line(text: str) -> str:
    """The last line that is not empty, cut short."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")[:300]
