"""A run in MLflow."""

import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from simcse_jax.runs.reporters.tracker import StepNumbers

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT = "simcse_jax"  # if MLFLOW_EXPERIMENT_NAME names none
MOST_METRICS, MOST_PARAMS, LONGEST_PARAM = 1000, 100, 6000  # that MLflow takes at a time
REFUSED = re.compile(r"[^/\w.\- ]")  # characters of a metric's name
RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"

T = TypeVar("T")


class MlflowRun:
    """Its numbers are sent at once, to what MLFLOW_TRACKING_URI names."""

    keeps, first_step = True, 0

    def __init__(self, run_id: str | None, name: str, fields: Mapping[str, Any]):
        """Opens the run `run_id`, an id; None makes a new one, and so does one that the tracker does not have."""
        os.environ.setdefault(RETRIES, "3")  # for 14 seconds, and not for 4 minutes
        from mlflow import MlflowClient
        from mlflow.entities import Param
        from mlflow.exceptions import MlflowException

        for logger in ("mlflow", "urllib3.connectionpool"):  # they also raise their errors, and we report those
            logging.getLogger(logger).setLevel(logging.CRITICAL)
        self._client = MlflowClient()
        self.id, self.is_new = run_id or "", not run_id
        if run_id:
            try:
                self._client.update_run(run_id, status="RUNNING")
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise
                self.is_new = True
        if self.is_new:
            self.id = self._client.create_run(_experiment(self._client), run_name=name).info.run_id
            params = [Param(field, str(value)[:LONGEST_PARAM]) for field, value in fields.items()]
            for some in _batches(params, MOST_PARAMS):
                self._client.log_batch(self.id, params=some)

    def send(self, rows: Sequence[StepNumbers]) -> None:
        """Adds numbers."""
        from mlflow.entities import Metric

        metrics = [
            Metric(REFUSED.sub("_", name), value, round(row.seconds * 1000), row.step)
            for row in rows
            for name, value in row.values.items()
        ]
        for some in _batches(metrics, MOST_METRICS):
            self._client.log_batch(self.id, metrics=some)

    def summarize(self, step: int, result: Mapping[str, float]) -> None:
        """Adds scores as metrics of their checkpoint's step."""
        self.send([StepNumbers(step, time.time(), result)])

    def close(self, ended: bool) -> None:
        """Sets the run's status."""
        self._client.set_terminated(self.id, "FINISHED" if ended else "KILLED")


def _experiment(client: "MlflowClient") -> str:
    """The id of the experiment, which is created if it is not there."""
    from mlflow.exceptions import MlflowException

    if number := os.environ.get("MLFLOW_EXPERIMENT_ID"):
        return number
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
    if (experiment := client.get_experiment_by_name(name)) is None:
        try:
            return client.create_experiment(name)
        except MlflowException:
            if (experiment := client.get_experiment_by_name(name)) is None:  # another job may have created it just now
                raise
    return experiment.experiment_id


def _batches(things: list[T], size: int) -> Iterator[list[T]]:
    return (things[start : start + size] for start in range(0, len(things), size))
