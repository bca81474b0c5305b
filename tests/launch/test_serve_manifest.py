import json
import re
import shlex
import tomllib

import pytest
import yaml
from support import ROOT

from simcse_jax.commands import verbs
from simcse_jax.commands.serve import KEY

DOCKERFILE = (ROOT / "launch" / "Dockerfile.serve").read_text()
WRITTEN = (ROOT / "launch" / "serve.yaml").read_text().replace("IMAGE", "image:1")
MANIFESTS = {each["kind"]: each for each in yaml.safe_load_all(WRITTEN)}


def test_the_image_has_what_it_copies_the_pods_command_options_that_exist_and_the_manifests_are_valid():
    copied = [name for line in re.findall("^COPY (.*)$", DOCKERFILE, re.MULTILINE) for name in line.split()[:-1]]
    assert {"simcse_jax", "configs", "pyproject.toml"} <= set(copied) and all((ROOT / name).exists() for name in copied)
    (extra,) = re.findall(r"'\.\[(\w+)\]'", DOCKERFILE)
    assert extra in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert re.search("^USER 10001$", DOCKERFILE, re.MULTILINE)
    pod = MANIFESTS["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    entry = json.loads(re.search("^ENTRYPOINT (.*)$", DOCKERFILE, re.MULTILINE)[1])
    assert entry[:2] == ["simcse-jax", "serve"]
    _, bound = verbs.parse("serve", [*entry[2:], *container["args"]])
    bound.apply_defaults()
    options, (port,) = bound.arguments, container["ports"]
    assert (options["host"], options["port"]) == ("0.0.0.0", port["containerPort"])
    assert [each["name"] for each in container["env"]] == [KEY]  # others cannot reach it without
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > pause + options["timeout"]
    paths = {container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")}
    assert paths == {"/ready", "/health"} and pod["securityContext"]["runAsUser"] == 10001
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    for manifest in MANIFESTS.values():
        kubernetes_validate.validate(manifest, "1.31", strict=True)
    assert {each["metadata"]["name"] for each in MANIFESTS.values()} == {"simcse-serve"}
    labels = MANIFESTS["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert MANIFESTS["Service"]["spec"]["selector"] == labels
    assert MANIFESTS["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    scaled = MANIFESTS["HorizontalPodAutoscaler"]["spec"]
    assert scaled["scaleTargetRef"]["name"] == MANIFESTS["Deployment"]["metadata"]["name"]
    example = re.search("^#   docker run .* (--model .*)$", DOCKERFILE, re.MULTILINE)[1]
    assert shlex.split(example) == ["--model", "/model"]
