"""Commands that are killed at random places, given again, and then have the result of an undisturbed one.

Most are killed before a call that changes a file, drawn at random; the first and the last one are among them. The
others are killed at a random time. `KILLS=2` kills each job twice, `SEED=7` draws the places again.
"""

import os
import random
import shutil

import pytest
from support.warm import leftovers

pytestmark = pytest.mark.kills
KILLS = {"training": 20, "encode to .npy": 10, "encode to .parquet": 10}  # others: 5
SEED = int(os.environ.get("SEED") or random.randrange(10**6))
BY_TIME = 4  # every fourth kill


INDEXES, EXPORTS = ("a new index", "an index that grows"), ("a new export", "an export that is replaced")


@pytest.mark.parametrize("name", [*KILLS, "a prepared corpus", *INDEXES, *EXPORTS, "a sweep"])
def test_a_killed_job_is_finished_by_the_same_command(name, jobs, warm, tmp_path, capsys):
    job, count = jobs[name], int(os.environ.get("KILLS") or KILLS.get(name, 5))
    generator = random.Random(f"{SEED} {name}")
    straight = tmp_path / "straight"
    straight.mkdir()
    job.prepare(straight)
    before = job.states and job.states(straight)
    done = warm.run(job.args(straight), straight)
    assert done.code == 0 and not leftovers(straight), done.err
    expected, after = job.result(straight), job.states and job.states(straight)
    places, seconds = [], done.seconds  # the first one compiles, so the others are quicker
    for number in range(count):
        folder, last = tmp_path / str(number), done.events
        for _ in range(5):  # the number of changes varies a little, so a job may end before it is killed
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            job.prepare(folder)
            how = {"kill_at": {0: 1, 1: last}.get(number) or generator.randint(1, last)}
            if number > 1 and number % BY_TIME == 0:
                how = {"kill_after": generator.uniform(0, seconds)}
            killed = warm.run(job.args(folder), folder, **how)
            if killed.code:
                break
            last = min(last - 1, killed.events)
        where = f"seed {SEED}, {name}, kill {number}: {how}\n"
        assert killed.code == -9, where + killed.err
        places.append(f"{killed.events}")
        if job.states:
            assert job.states(folder) in (before, after), where
        again = warm.run(job.args(folder), folder)
        assert again.code == 0, where + again.err
        # A lock stays if all was done before the kill, for the next job that writes there.
        left = [path for path in leftovers(folder) if not path.name.endswith(".lock")]
        assert job.result(folder) == expected and not left, where + str(left)
    with capsys.disabled():
        print(f"\n{name}: {count} kills, seed {SEED}, at changes {', '.join(places)} of {done.events}", flush=True)
