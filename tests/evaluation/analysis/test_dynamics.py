import json
import re

import pytest

from simcse_jax.evaluation.analysis import dynamics

CONFIG = {"objective.info_nce.temperature": 0.05, "train.batch_size": 64, "data.augment.name": "", "model.mlp": "none"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([{}, {"objective.info_nce.temperature": 0.1}], ["temperature 0.05", "temperature 0.1"]),
        (
            [{}, {"train.batch_size": 256}, {"train.batch_size": 16}],
            ["batch size 64", "batch size 256", "batch size 16"],
        ),
        ([{}, {"data.augment.name": "crop"}], ["augment name none", "augment name crop"]),
        ([{}, {"train.batch_size": 16, "model.mlp": "always"}], ["run0", "run1"]),  # two fields
        ([{}, {}], ["run0", "run1"]),  # none
        ([{}, {"train.batch_size": 16}, {"train.batch_size": 16}], ["run0", "run1", "run2"]),  # not told apart
        ([{}], ["run0"]),
    ],
)
def test_runs_are_called_by_what_differs(changes, expected):
    configs = {f"runs/run{number}": CONFIG | change for number, change in enumerate(changes)}
    assert dynamics.labels(configs) == expected


def test_a_field_that_one_run_lacks_differs():
    assert dynamics.labels({"a/x": CONFIG, "b/x": CONFIG | {"seed": 1}}) == ["seed none", "seed 1"]
    assert dynamics.labels({"a/x": CONFIG, "b/x": CONFIG | {"seed": 1, "new": 2}}) == ["a/x", "b/x"]


def point(step: int, value: float, **more: float) -> dict:
    fields = [field for field in dynamics.FIELDS if field != "alignment"]
    return (
        {"step": step, "self_similarity": 0.5, "intra_sentence_similarity": 0.6} | dict.fromkeys(fields, value) | more
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dynamics") / "out"
    runs = {
        "temperature <0.05>": [point(0, 0.9, alignment=0.3), point(10, 0.4, alignment=0.25)],
        "temperature 0.1": [point(0, 0.9), point(20, 0.1)],
    }
    workdirs = {label: f"runs/{number}" for number, label in enumerate(runs)}
    names = dynamics.write(
        runs, folder, data="STS-B test", about={"sentences": 1359}, workdirs=workdirs, versions={"jax": "1"}
    )
    return folder, names, runs


def test_a_picture_a_measure_and_one_page(written):
    folder, names, runs = written
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    assert {name.removesuffix(".png") for name in names if name.endswith(".png")} == set(dynamics.FIELDS)
    assert names[-1] == "report.html"
    found = json.loads((folder / "dynamics.json").read_text())
    assert found["data"] == "STS-B test" and found["about"] == {"sentences": 1359}
    assert found["runs"]["temperature 0.1"] == {"workdir": "runs/1", "points": runs["temperature 0.1"]}


def test_a_run_without_a_measure_is_no_line_of_its_picture(written):
    folder, *_ = written
    assert "temperature &lt;0.05&gt;" in (folder / "alignment.svg").read_text()
    assert "temperature 0.1" not in (folder / "alignment.svg").read_text()
    assert "temperature 0.1" in (folder / "uniformity.svg").read_text()


def test_the_page_has_the_first_and_the_last_step(written):
    folder, *_ = written
    page = (folder / "report.html").read_text()
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', page.split("<h2 id")[7])
    cells = [[name, *re.findall("<td>(.*?)</td>", rest)] for name, rest in rows]
    assert cells[1] == ["temperature &lt;0.05&gt;", "10", "0.400", "0.400", "0.400", "0.400", "0.250", "0.400"]
    assert cells[3] == ["temperature 0.1", "20", "0.100", "0.100", "0.100", "0.100", "–", "0.100"]
    assert "<0.05>" not in page


def test_the_page_begins_with_what_changed(written):
    folder, *_ = written
    first = (folder / "report.html").read_text().split("<section")[0].split('<p class="lead">')[1]
    assert first.startswith("temperature &lt;0.05&gt;, last layer, step 0 → 10: anisotropy 0.900 → 0.400")


def test_runs_without_pairs_have_no_picture_of_alignment(tmp_path):
    runs = {"a": [point(0, 0.5)], "b": [point(0, 0.6)]}
    names = dynamics.write(runs, tmp_path, data="s.txt", about={}, workdirs={"a": "a", "b": "b"}, versions={})
    assert "uniformity.png" in names and "alignment.png" not in names
    assert "Alignment" not in (tmp_path / "report.html").read_text()


def test_one_run_measured_once_is_a_point(tmp_path):
    names = dynamics.write({"a": [point(0, 0.5)]}, tmp_path, data="s.txt", about={}, workdirs={"a": "a"}, versions={})
    assert "anisotropy.png" in names
    page = (tmp_path / "report.html").read_text()
    assert "a, last layer, step 0: anisotropy 0.500, " in page and "<td>0.500</td>" in page
