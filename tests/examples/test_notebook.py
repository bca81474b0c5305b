import json
import re

import pytest
from support import ROOT

NOTEBOOK = ROOT / "examples" / "simcse_jax.ipynb"


def test_it_is_saved_with_outputs_without_places_or_noise_and_needs_no_files_but_the_first_win_s():
    text = NOTEBOOK.read_text(encoding="utf-8")
    saved = json.loads(text)
    cells = [cell for cell in saved["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} == {"stream", "display_data"}
    assert all(output["name"] == "stdout" for output in outputs if output["output_type"] == "stream")
    pictures = [output["data"]["image/png"] for output in outputs if output["output_type"] == "display_data"]
    assert len(pictures) == 3 and saved["metadata"]["kernelspec"]["name"] == "python3" and len(text) < 400_000
    for picture in pictures:
        text = text.replace(picture, "")
    assert not re.search(r"(?<![\w.:/])/(tmp|home|root|work|Users|opt)\b", text)
    code = "\n".join("".join(cell["source"]) for cell in cells)
    named = set(re.findall(r"\bPath\(\"([^\"]+)\"\)", code)) | set(re.findall(r"\"(first_win/.+?)\"", code))
    assert named == {"my-model", *(f"first_win/{name}" for name in ("pairs.csv", "new.csv", "log.txt"))}


def test_a_cell_completes_the_methods_of_the_class():
    completer = pytest.importorskip("IPython.core.completer", reason="ipykernel is not installed: requirements-dev.txt")
    import simcse_jax

    found = completer.IPCompleter(namespace={"SimCSE": simcse_jax.SimCSE, "simcse_jax": simcse_jax}, use_jedi=False)
    with completer.provisionalcompleter():
        names = {one.text.lstrip(".") for one in found.completions("SimCSE.", len("SimCSE."))}
        assert {"encode", "similarity", "build_index", "search", "save_index", "load_index"} <= names
        assert "SimCSE" in {one.text.lstrip(".") for one in found.completions("simcse_jax.", len("simcse_jax."))}


@pytest.mark.slow
def test_it_runs_from_top_to_bottom(minilm, tmp_path, monkeypatch):
    for name in ("nbclient", "ipykernel", "matplotlib"):
        pytest.importorskip(name, reason=f"{name} is not installed: requirements-dev.txt")
    from support.notebook import execute, streams

    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "0")  # as users train
    notebook = execute(tmp_path)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in cells)
    printed = streams(notebook)
    before, after = map(int, re.search(r"right entry first: (\d+)% before, (\d+)% after", printed).groups())
    assert after > before + 30
    steps = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    measured = [line["analysis"] for line in steps if "analysis" in line]
    for name in ("anisotropy", "uniformity"):
        assert measured[-1][name] < measured[0][name]
    assert (tmp_path / "my-model" / "model.safetensors").is_file()
    found = re.search(r"largest difference to ours: (.+)|PyTorch is not installed", printed)
    assert found[1] is None or float(found[1]) < 1e-5
