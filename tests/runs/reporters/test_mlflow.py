import pytest

from simcse_jax.config.fields import default_config, flatten
from simcse_jax.runs.metrics_file import Metrics
from simcse_jax.runs.reporters.opening import report_to_all

REASON = "MLflow is not installed: pip install mlflow-skinny sqlalchemy alembic"


@pytest.mark.slow
def test_a_run_is_one_run_after_a_kill_and_a_stop(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason=REASON)
    uri, workdir, fields = f"sqlite:///{tmp_path / 'ml.db'}", tmp_path / "mine", flatten(default_config())
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "sentences")
    workdir.mkdir()
    client = mlflow.MlflowClient(uri)

    def start(step, lines):
        metrics = Metrics(workdir, step)
        report_to_all(metrics, ("mlflow",), fields, workdir, step)
        for each in lines:
            metrics.write(each, {"loss": each / 2})
        metrics.flush()
        return metrics

    def found():
        (run,) = client.search_runs([client.get_experiment_by_name("sentences").experiment_id])
        return run

    start(None, (1, 2))  # and is killed
    start(1, (2, 3)).close()
    assert found().info.status == "KILLED"  # stopped
    metrics = start(3, (4,))
    metrics.write(4, {"eval/dev": 50.0})
    metrics.finish({"best_step": 3, "dev": {"spearman": 50.0}})
    metrics.close()
    assert (found().info.run_name, found().info.status) == ("mine", "FINISHED")
    params = found().data.params
    assert params["train.batch_size"] == "64" and params["data.local_cache"] == "" and len(params) > 100
    curves = {
        name: [(metric.step, metric.value) for metric in client.get_metric_history(found().info.run_id, name)]
        for name in found().data.metrics
    }
    losses = [(1, 0.5), (2, 1.0), (3, 1.5), (4, 2.0)]  # none twice, none missing
    results = {"result/best_step": [(3, 3.0)], "result/dev/spearman": [(3, 50.0)]}
    assert curves == {"train/loss": losses, "eval/dev": [(4, 50.0)]} | results
