import json
from pathlib import Path
from unittest.mock import ANY, Mock

import pytest
from support import call, refused, train_args

from simcse_jax import errors
from simcse_jax.config.fields import TRACKERS, default_config, flatten
from simcse_jax.errors import UserError
from simcse_jax.runs.metrics_file import Metrics
from simcse_jax.runs.reporters import opening
from simcse_jax.runs.reporters.opening import NEEDED, check_installed, report_to_all, run_name


def test_a_tracker_that_is_not_installed_is_named_before_anything_is_read_or_written(monkeypatch, tmp_path):
    for name in TRACKERS:
        extra, module = NEEDED[name]
        monkeypatch.setattr(errors, "installed", lambda found, module=module: found != module)
        with pytest.raises(UserError, match=rf'^not installed: {module}; run: pip install "simcse_jax\[{extra}\]"$'):
            check_installed((name,))
    check_installed(())
    monkeypatch.setattr(errors, "installed", lambda module: module != "wandb")
    missing = tmp_path / "none-such"
    args = train_args(missing, missing, missing, tmp_path / "run", "--config.train.report_to=tensorboard,wandb")
    refused(call("train", *args), 'not installed: wandb; run: pip install "simcse_jax[wandb]"')
    assert not (tmp_path / "run").exists()


def test_a_run_reports_to_what_is_named_alone_under_the_name_of_its_folder(tmp_path, monkeypatch):
    assert run_name(tmp_path / "runs/mine") == "mine"
    assert run_name(tmp_path / "temperature 0.1/seed42") == "temperature 0.1/seed42"
    assert run_name(tmp_path / "seed words") == "seed words"
    monkeypatch.chdir(tmp_path)
    assert run_name(Path(".")) == tmp_path.name
    opened = {kind: Mock() for kind in ("Wandb", "Mlflow")}
    for kind, opens in opened.items():
        opens.return_value = Mock(id=kind, is_new=True, first_step=0, keeps=True)
        monkeypatch.setattr(opening, f"{kind}Run", opens)
    for names in ((), ("tensorboard",), ("wandb", "mlflow")):
        folder = tmp_path / "-".join(["run", *names])
        folder.mkdir()
        metrics = Metrics(folder, None)
        metrics.write(1, {"loss": 0.5})
        report_to_all(metrics, names, flatten(default_config()), folder, None)
        metrics.write(2, {"loss": 0.5})
        metrics.close()
        assert len((folder / "metrics.jsonl").read_text().splitlines()) == 2
        assert {path.stem for path in folder.iterdir()} - {"metrics"} == {*names}
    assert json.loads((folder / "wandb.json").read_text())["last"] == {"train/loss": 2}
    for kind, rest in (("Wandb", {"folder": folder}), ("Mlflow", {})):
        opened[kind].assert_called_once_with(None, name="run-wandb-mlflow", fields=ANY, **rest)
        assert opened[kind].call_args.kwargs["fields"]["train.batch_size"] == 64
