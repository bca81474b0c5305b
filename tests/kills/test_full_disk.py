"""Commands on a full disk: one line says so, and the same command goes on when there is room again."""

import os
import subprocess
from pathlib import Path

import pytest
from support.warm import leftovers

pytestmark = pytest.mark.kills
SIZE = 32 << 20


@pytest.fixture
def disk(tmp_path):
    """A small disk of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def fill(disk: Path, free: int) -> Path:
    """Leaves so many bytes."""
    filler = disk / "filler"
    with open(filler, "wb") as file:
        block = b"\0" * 4096
        while room(disk) > free:
            file.write(block)
            file.flush()
    return filler


def room(disk: Path) -> int:
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


NAMES = ("training", "encode to .npy", "encode to .parquet", "an index that grows", "an export that is replaced")


@pytest.mark.parametrize("part", [0.0, 0.2, 0.6, 0.9])
@pytest.mark.parametrize("name", NAMES)
def test_a_full_disk(name, part, jobs, warm, disk):
    job = jobs[name]
    straight, folder = disk / "straight", disk / "folder"
    for each in (straight, folder):
        each.mkdir()
        job.prepare(each)
    before = job.states and job.states(straight)
    free = room(disk)
    done = warm.run(job.args(straight), straight)
    assert done.code == 0, done.err
    expected, after = job.result(straight), job.states and job.states(straight)
    filler = fill(disk, int(part * (free - room(disk))))
    full = warm.run(job.args(folder), folder)
    errors = full.err.splitlines()
    assert full.code == 2 and sum(line.startswith("error: ") for line in errors) == 1, full
    assert "No space left on device" in full.err and "Traceback" not in full.err, full.err
    if job.states:
        assert job.states(folder) in (before, after)
    filler.unlink()
    again = warm.run(job.args(folder), folder)
    assert again.code == 0, again.err
    assert job.result(folder) == expected and not leftovers(folder), leftovers(folder)
