from pathlib import Path

import pytest
from support import call, refused, train_args

from simcse_jax import errors
from simcse_jax.config.fields import TRACKERS, default_config
from simcse_jax.errors import UserError
from simcse_jax.runs.reporters.opening import NEEDED, check_installed, run_name


def test_a_run_has_the_name_of_its_folder(tmp_path, monkeypatch):
    assert run_name(tmp_path / "runs/mine") == "mine"
    assert run_name(tmp_path / "temperature 0.1/seed42") == "temperature 0.1/seed42"
    assert run_name(tmp_path / "seed words") == "seed words"
    monkeypatch.chdir(tmp_path)
    assert run_name(Path(".")) == tmp_path.name


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_that_is_not_installed_is_named(name, monkeypatch):
    config = default_config()
    config.train.report_to = (name,)
    extra, module = NEEDED[name]
    monkeypatch.setattr(errors, "installed", lambda found: found != module)
    with pytest.raises(UserError, match=rf'^not installed: {module}; run: pip install "simcse_jax\[{extra}\]"$'):
        check_installed(config)
    config.train.report_to = ()
    check_installed(config)


def test_it_is_named_before_anything_is_read_or_written(tmp_path, monkeypatch):
    monkeypatch.setattr(errors, "installed", lambda module: module != "wandb")
    missing = tmp_path / "none-such"
    args = train_args(missing, missing, missing, tmp_path / "run", "--config.train.report_to=tensorboard,wandb")
    refused(call("train", *args), 'not installed: wandb; run: pip install "simcse_jax[wandb]"')
    assert not (tmp_path / "run").exists()


def test_a_run_that_reports_nowhere_has_its_metrics(trained, tiny_bert, corpus, tmp_path):
    more = ("--config.train.report_to=", "--config.train.max_steps=1")
    args = train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / "run", *more)
    assert call("train", *args).returncode == 0
    assert (tmp_path / "run/metrics.jsonl").read_text() and not (tmp_path / "run/tensorboard").exists()
    done = call("train", *args, "--config.train.report_to=tensorboard")  # changes no result, so it may resume
    assert done.returncode == 0, done.stderr
