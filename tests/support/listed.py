import json
from pathlib import Path

from simcse_jax.config.fields import default_config
from simcse_jax.config.recorded import to_record
from simcse_jax.runs.run_files import FORMAT
from simcse_jax.runs.workdir import versions


def record(config, **changes) -> dict:
    """The contents of the `run.json` of a run with this config."""
    device = {"kind": "cpu", "platform": "cpu", "count": 1}
    run = {"format": FORMAT, "config": to_record(config), "hub": [], "examples": 40, "sha256": {}}
    run |= {"model": {"max_length": 32}}
    return run | {"versions": {"python": "3.12", **versions()}, "device": device} | changes


def write_run(folder: Path, scores: dict[int, float], result: dict | None = None, examples=640, **fields) -> None:
    """A run whose development scores are `scores`, by step; `fields` of its config have __ for a dot."""
    folder.mkdir(parents=True)
    config = default_config()
    config.update_from_flattened_dict({name.replace("__", "."): value for name, value in fields.items()})
    (folder / "run.json").write_text(json.dumps(record(config, examples=examples)))
    lines = [{"step": step, "loss": 1.0} for step in range(1, 4)]
    lines += [{"step": step, "eval/stsb_dev": score} for step, score in scores.items()]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if result:
        (folder / "result.json").write_text(json.dumps(result))


def write_runs(folder: Path) -> Path:
    """Three runs: one finished, one under way, one without scores."""
    result = {"average": 60.25, "best_step": 8}
    write_run(folder / "a", {4: 70.0, 8: 71.5, 10: 71.0}, result, train__learning_rate=1e-5)
    write_run(folder / "more/b", {4: 72.0}, train__log_every=7)
    write_run(folder / "c", {}, train__max_steps=3, eval__tasks=("STS12", "STS13"))
    return folder
