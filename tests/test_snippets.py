"""The code and commands of pages, as they are printed, one after the other in one folder."""

import re
import shlex
import shutil

import pytest
from support import ROOT, call, sentences
from support.cross_encoders import write_cross_encoder

ELSEWHERE = ("jax.distributed.initialize", "pip install")  # blocks for several processes; what is installed already


def blocks(page):
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [(kind, text) for kind, text in found if kind == "python" or re.search("^simcse-jax", text, re.MULTILINE)]


@pytest.mark.docs
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["use", "search"])
def test_the_code_of_a_page_runs(name, trained, minilm, tmp_path, monkeypatch):
    if name == "search":
        pytest.importorskip("lancedb", reason="lancedb is not installed: requirements-dev.txt")
    shutil.copytree(trained, tmp_path / "runs" / "unsup")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "embeddings").mkdir()
    for file in ("corpus.txt", "more.txt", "captions.txt"):
        (tmp_path / file).write_text("\n".join(sentences(120)) + "\n")
    write_cross_encoder(tmp_path / "judge")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("support.ROOT", tmp_path)
    names = {}
    for kind, text in blocks(ROOT / "docs" / "guides" / f"{name}.md"):
        if kind == "python" and not text.count(ELSEWHERE[0]):
            exec(compile(text, f"{name}.md", "exec"), names)
        for command in text.replace("\\\n", " ").splitlines() if kind != "python" else ():
            if not command.startswith(ELSEWHERE):
                program, *arguments = shlex.split(command, comments=True)
                assert program == "simcse-jax"
                done = call(*arguments)
                assert done.returncode == 0, (command, done.stderr)
    assert names["model"].dimension == 32
