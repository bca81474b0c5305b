import shlex

import pytest
import yaml
from support import ROOT

from simcse_jax.commands import verbs

MANIFESTS = sorted((ROOT / "launch" / "ray").glob("*.yaml"))


@pytest.fixture(params=MANIFESTS, ids=lambda path: path.name)
def job(request):
    return yaml.safe_load(request.param.read_text().replace("IMAGE", "image:1"))


def test_its_command_has_options_that_go_together_and_its_pods_all_of_a_host_s_accelerators(job):
    program, *arguments = shlex.split(job["spec"]["entrypoint"])
    assert (program, arguments[0]) == ("simcse-jax", "encode")
    _, bound = verbs.parse("encode", arguments[1:])
    options = bound.arguments
    assert (options["engine"], options["address"]) == ("ray", "auto") and options["data"].endswith("/*.parquet")
    assert options["output"].startswith("gs://")
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    (workers,) = cluster["workerGroupSpecs"]
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"] and workers["numOfHosts"] == 1
    assert cluster["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0"}
    for group in (cluster["headGroupSpec"], workers):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": group["template"]["spec"]}
        kubernetes_validate.validate(pod, "1.31", strict=True)
    limits = workers["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert [limits[name] for name in ("nvidia.com/gpu", "google.com/tpu") if name in limits] == ["8"]
