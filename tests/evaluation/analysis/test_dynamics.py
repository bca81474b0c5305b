import json

from simcse_jax.evaluation.analysis import dynamics

DRAWS, DRAWN = ("alignment", "uniformity"), {"png": b"", "svg": b"<svg/>"}


def point(step: int, value: float, **more: float) -> dict:
    fields = [field for field in dynamics.FIELDS if field != "alignment"]
    similar = {"self_similarity": 0.5, "intra_sentence_similarity": 0.6}
    return {"step": step} | similar | dict.fromkeys(fields, value) | more


def test_the_files_and_the_page_have_all_numbers_of_runs_or_of_one_measured_once(tmp_path, monkeypatch):
    folder = tmp_path / "out"
    runs = {
        "temperature <0.05>": [point(0, 0.9, alignment=0.3), point(10, 0.4, alignment=0.25)],
        "temperature 0.1": [point(0, 0.9), point(20, 0.1)],
    }
    workdirs = {label: f"runs/{number}" for number, label in enumerate(runs)}
    about = {"data": "STS-B test", "about": {"sentences": 1359}, "versions": {"jax": "1"}}
    draw = dynamics.pictures.over_steps
    over_steps = lambda found, field, data: draw(found, field, data) if field in DRAWS else DRAWN  # noqa: E731
    monkeypatch.setattr(dynamics.pictures, "over_steps", over_steps)  # two pictures are drawn
    names = dynamics.write(runs, folder, workdirs=workdirs, **about)
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    assert {name.removesuffix(".png") for name in names if name.endswith(".png")} == set(dynamics.FIELDS)
    assert names[-1] == "report.html"
    found = json.loads((folder / "dynamics.json").read_text())
    assert found["data"] == "STS-B test" and found["about"] == {"sentences": 1359}
    assert found["runs"]["temperature 0.1"] == {"workdir": "runs/1", "points": runs["temperature 0.1"]}
    # A run without a measure is no line of its picture.
    assert "temperature &lt;0.05&gt;" in (folder / "alignment.svg").read_text()
    assert "temperature 0.1" not in (folder / "alignment.svg").read_text()
    assert "temperature 0.1" in (folder / "uniformity.svg").read_text()
    page = (folder / "report.html").read_text()
    assert "<0.05>" not in page
    first = page.split("<section")[0].split('<p class="lead">')[1]
    assert first.startswith("temperature &lt;0.05&gt;, last layer, step 0 → 10: anisotropy 0.900 → 0.400")
    monkeypatch.setattr(dynamics.pictures, "over_steps", lambda *_: DRAWN)
    names = dynamics.write({"a": [point(0, 0.5)]}, tmp_path, data="s.txt", about={}, workdirs={"a": "a"}, versions={})
    assert "anisotropy.png" in names and "alignment.png" not in names
    page = (tmp_path / "report.html").read_text()
    assert "a, last layer, step 0: anisotropy 0.500, " in page
    assert "Alignment" not in page
