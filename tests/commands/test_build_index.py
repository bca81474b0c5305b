import json

import numpy as np
import pyarrow.parquet
import pytest
from support import call, refused, sentences
from support.later import needs

import simcse_jax
from simcse_jax import SimCSE
from simcse_jax.commands import demo
from simcse_jax.errors import UserError

needs("lancedb", "LanceDB is not installed: pip install 'simcse_jax[lance]'")
SENTENCES = sentences(30)


@pytest.fixture(scope="module")
def made(tiny_bert, tmp_path_factory):
    """A file, its embeddings in two parts, as .parquet and as .npy, and the index of them."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "texts.txt").write_text("\n".join(SENTENCES) + "\n")
    encode = ("encode", "--model", tiny_bert, "--data", folder / "texts.txt", "--parts", 2)
    for kind in ("parquet", "npy"):
        (folder / kind).mkdir()
    for part in range(2):
        done = call(*encode, "--part", part, "--output", folder / "parquet" / "emb.parquet")
        assert done.returncode == 0, done.stderr
        table = pyarrow.parquet.read_table(folder / "parquet" / f"emb-0000{part}-of-00002.parquet")
        np.save(folder / "npy" / f"{part}.npy", np.stack(table["embedding"].to_numpy()))
    for said in ("30 rows added, numbered 0 to 29; 30 in all, of ", "has these 30 rows already; 30 in all, of "):
        done = call("search", "build", "--embeddings", folder / "parquet", "--output", folder / "index")
        assert done.returncode == 0 and f"{folder / 'index'}: {said}" in done.stdout, done.stderr
    return folder


def test_class_and_command_search_an_index_on_disk_which_takes_ranges_and_the_models_name(made, tiny_bert, tmp_path):
    model = SimCSE(str(tiny_bert))
    model.build_index(SENTENCES)
    expected = model.search(["the red cat", "a bird sings"], 5)
    found = model.open_index(made / "index").search(["the red cat", "a bird sings"], 5, refine=20)
    for mine, others in zip(found, expected, strict=True):
        assert [one[:2] for one in mine] == [one[:2] for one in others]
        np.testing.assert_allclose([one.score for one in mine], [one.score for one in others], atol=1e-5)
    assert SimCSE(str(tiny_bert)).open_index(str(made / "index")).search(SENTENCES[3], 1)[0].sentence == SENTENCES[3]
    for wrong, message in (
        (lambda: model.add_to_index(["more"]), "added to from embeddings"),
        (lambda: model.save_index(made / "other"), "is saved already"),
        (lambda: SimCSE(str(tiny_bert), pooler="avg_top2").open_index(made / "index"), "'avg_top2'"),
    ):
        with pytest.raises(UserError, match=message):
            wrong()
    search = ("search", "--model", tiny_bert, "--index", made / "index", "--query", SENTENCES[3], "--top-k", 2)
    done = call(*search, "--nprobes", 5, "--output", tmp_path / "found.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("30 sentences, ") and SENTENCES[3] in done.stdout
    assert json.loads((tmp_path / "found.json").read_text())["queries"][0]["results"][0][0]["row"] == 3
    refused(call(*search, "--data", made / "none.txt"), "is an index on disk, which has its sentences")
    count, some = demo.open_index(SimCSE(str(tiny_bert)), str(made / "index"))  # and the page of the demo
    assert (count, some[:2]) == (30, SENTENCES[:2])
    ranges = np.tile(np.float32([[-0.6], [0.6]]), SimCSE(str(tiny_bert)).dimension)
    np.save(tmp_path / "ranges.npy", ranges)
    given = ("--precision", "int8", "--ranges", tmp_path / "ranges.npy", "--output", tmp_path / "index")
    done = call("search", "build", "--embeddings", made / "parquet", *given)
    assert done.returncode == 0 and not done.stderr.strip(), done.stderr
    assert json.loads((tmp_path / "index" / "index.json").read_text())["ranges"] == ranges.tolist()
    given = ("--precision", "float32", "--output", tmp_path / "index")
    refused(call("search", "build", "--embeddings", made / "parquet", *given), "an index of int8, not of float32")
    index = tmp_path / "other"
    build = ("search", "build", "--embeddings", made / "npy", "--output", index)
    refused(call(*build), "does not say which model made the embeddings; give --model")
    for options, message in (
        ({"output": made / "parquet"}, "is the folder of the embeddings"),
        ({"output": "x", "ranges": made / "npy" / "0.npy"}, "the embeddings need \\(2, "),
    ):
        with pytest.raises(UserError, match=message):
            simcse_jax.build_index(made / "parquet", **options)
    assert not index.exists() and call(*build, "--model", tiny_bert).returncode == 0
    refused(call(*build, "--model", tiny_bert, "--pooler", "avg_top2"), "not of ")
    found = SimCSE(str(tiny_bert)).open_index(index).search(SENTENCES[3], 1)
    assert [one[:2] for one in found] == [("", 3)]
