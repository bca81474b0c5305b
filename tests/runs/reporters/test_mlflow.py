import json

import pytest
from support import call, refused
from support.tracked import arguments, expected, killed_stopped_and_resumed

REASON = "MLflow is not installed: pip install mlflow-skinny sqlalchemy alembic"


@pytest.mark.slow
def test_a_run_in_sqlite_is_one_run_after_a_kill_and_a_preemption(tiny_bert, corpus, tmp_path):
    mlflow = pytest.importorskip("mlflow", reason=REASON)
    uri, workdir = f"sqlite:///{tmp_path / 'ml.db'}", tmp_path / "mine"
    env = {"MLFLOW_TRACKING_URI": uri, "MLFLOW_EXPERIMENT_NAME": "sentences"}
    killed_stopped_and_resumed(arguments(tiny_bert, corpus, workdir, "mlflow"), workdir, env)

    client = mlflow.MlflowClient(uri)
    (found,) = client.search_runs([client.get_experiment_by_name("sentences").experiment_id])
    assert (found.info.run_name, found.info.status) == ("mine", "FINISHED")
    params = found.data.params
    assert params["train.batch_size"] == "8" and params["data.local_cache"] == "" and len(params) > 100
    curves = {
        name: [(metric.step, metric.value) for metric in client.get_metric_history(found.info.run_id, name)]
        for name in found.data.metrics
    }
    results = {name: curves.pop(name) for name in list(curves) if name.startswith("result/")}
    for name, values in expected(workdir).items():
        own = curves.pop(name)
        assert [step for step, _ in own] == [step for step, _ in values], name  # none twice, none missing
        if name in ("train/loss", "eval/dev"):
            assert own == values
    assert not curves
    result = json.loads((workdir / "result.json").read_text())
    assert results["result/dev/spearman"] == [(result["best_step"], result["dev"]["spearman"])]


def test_an_address_that_is_none_ends_the_run_at_its_start(tiny_bert, corpus, tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason=REASON)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "ftp://none-such")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    done = call("train", *arguments(tiny_bert, corpus, tmp_path / "run", "mlflow"))
    refused(done, "config.train.report_to=mlflow: ", "ftp://none-such")
