import pytest
from support import train_args

from simcse_jax.commands.train import train
from simcse_jax.errors import UserError
from simcse_jax.training.dry_run import format_duration


def tried(args, capsys):
    train([*args, "--dry-run"])
    return capsys.readouterr().out.splitlines()


@pytest.mark.slow
def test_a_dry_run_says_what_a_run_takes_and_writes_nothing(tiny_bert, corpus, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fields = "--config.train.max_steps=1000", "--config.train.batch_size=8", "--config.eval.every=50"
    args = train_args(tiny_bert, corpus["txt"], corpus["dev"], "out/run", *fields)
    said = tried([arg for arg in args if "workdir" not in arg and arg != "out/run"], capsys)
    assert list(tmp_path.iterdir()) == []
    rows = len(corpus["txt"].read_text().splitlines())
    assert f"{corpus['txt']}: {rows} sentences" in said
    shown = f"1,000 steps of 8 examples, {8000 / rows:.3g} epochs, scored every 50 steps, on 1 device"
    assert shown in said
    assert any(line.startswith("memory: 0.") and line.endswith("GiB on each device") for line in said)
    assert any(line.startswith("a step takes ") and "all of them" in line for line in said)
    assert said[-1] == "nothing was written"
    assert tried(args, capsys)[-1] == "nothing was written" and list(tmp_path.iterdir()) == []


def test_a_dry_run_refuses_what_a_run_does(tiny_bert, corpus, tmp_path, capsys):
    args = train_args(tiny_bert, corpus["txt"], "", tmp_path / "run")
    with pytest.raises(UserError, match=r"train\.batch_size"):
        tried([*args, "--config.train.batch_size=41"], capsys)
    with pytest.raises(UserError, match=r"^--dry-run: .*--profile"):
        train([*args, "--dry-run", "--profile", str(tmp_path / "trace")])


@pytest.mark.parametrize("steps", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_without_steps_there_is_nothing_to_try_and_the_only_one_has_no_speed(steps, tiny_bert, corpus, capsys):
    fields = "--config.train.epochs=0", f"--config.train.max_steps={steps}"
    said = tried(train_args(tiny_bert, corpus["txt"], "", "unused", *fields), capsys)
    assert said[-1].startswith("nothing is trained") == (steps == 0)
    assert not any(line.startswith("a step takes") for line in said)  # it was compiled


@pytest.mark.parametrize(("seconds", "text"), [(3.4, "3 s"), (99, "99 s"), (1234, "21 min"), (9000, "2.5 h")])
def test_durations_are_for_people(seconds, text):
    assert format_duration(seconds) == text
