import json
import os
import warnings

import numpy as np
import pyarrow.parquet
import pytest
from support import call, sentences

from simcse_jax import SimCSE
from simcse_jax.commands import demo
from simcse_jax.errors import UserError

pytest.importorskip("lancedb", reason="LanceDB is not installed: pip install 'simcse_jax[lance]'")
TEXTS = sentences(30)


@pytest.fixture(scope="module")
def made(tiny_bert, tmp_path_factory):
    """A file, its embeddings in two parts, as .parquet and as .npy, and the index of them."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    encode = ("encode", "--model", tiny_bert, "--input", folder / "texts.txt", "--parts", 2)
    for kind in ("parquet", "npy"):
        (folder / kind).mkdir()
    for part in range(2):
        done = call(*encode, "--part", part, "--output", folder / "parquet" / "emb.parquet")
        assert done.returncode == 0, done.stderr
        table = pyarrow.parquet.read_table(folder / "parquet" / f"emb-0000{part}-of-00002.parquet")
        np.save(folder / "npy" / f"{part}.npy", np.stack(table["embedding"].to_numpy()))
    done = call("search", "build", "--embeddings", folder / "parquet", "--output", folder / "index")
    assert done.returncode == 0, done.stderr
    assert f"{folder / 'index'}: 30 rows added, numbered 0 to 29; 30 in all, of " in done.stdout
    return folder


def test_what_the_class_finds_in_it(made, tiny_bert):
    model = SimCSE(str(tiny_bert))
    model.build_index(TEXTS)
    expected = model.search(["the red cat", "a bird sings"], 5)
    found = model.open_index(made / "index").search(["the red cat", "a bird sings"], 5, refine=20)
    for mine, others in zip(found, expected, strict=True):
        assert [one[:2] for one in mine] == [one[:2] for one in others]
        np.testing.assert_allclose([one.score for one in mine], [one.score for one in others], atol=1e-5)
    assert SimCSE(str(tiny_bert)).open_index(str(made / "index")).search(TEXTS[3], 1)[0].sentence == TEXTS[3]
    for refused, message in (
        (lambda: model.add_to_index(["more"]), "added to from embeddings"),
        (lambda: model.save_index(made / "other"), "is saved already"),
        (lambda: model.search("a", storage="float16"), "storage: is for an index in memory"),
        (lambda: model.search("a", nprobes=0), "nprobes=0: must be a whole number"),
    ):
        with pytest.raises(UserError, match=message):
            refused()


def test_a_command_given_again_adds_nothing(made):
    done = call("search", "build", "--embeddings", made / "parquet", "--output", made / "index")
    assert done.returncode == 0, done.stderr
    assert f"{made / 'index'}: has these 30 rows already; 30 in all, of " in done.stdout


def test_the_search_command_takes_it(made, tiny_bert, tmp_path):
    search = ("search", "--model", tiny_bert, "--index", made / "index", "--query", TEXTS[3], "--top-k", 2)
    done = call(*search, "--nprobes", 5, "--output", tmp_path / "found.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("30 sentences, ") and TEXTS[3] in done.stdout
    query = json.loads((tmp_path / "found.json").read_text())["queries"][0]
    assert query["results"][0][0]["row"] == 3
    for option, message in (
        (("--sentences", made / "texts.txt"), "sentences: is for an index in memory"),
        (("--compare", tiny_bert), "compare: is for an index in memory"),
        (("--backend", "faiss"), "backend: is for an index in memory"),
        (("--refine", "0"), "refine=0: must be a whole number"),
    ):
        done = call(*search, *option)
        assert done.returncode == 2 and message in done.stderr, done.stderr
    done = call("search", "--model", tiny_bert, "--sentences", made / "texts.txt", "--query", "a", "--refine", "5")
    assert done.returncode == 2 and "refine=5: is for an index of LanceDB" in done.stderr


@pytest.mark.parametrize("precision", ["int8", "binary"])
def test_an_index_in_bytes_or_bits_finds_what_one_in_memory_does(made, tiny_bert, tmp_path, precision):
    build = ("search", "build", "--embeddings", made / "parquet", "--output", tmp_path / "index")
    done = call(*build, "--precision", precision)
    assert done.returncode == 0, done.stderr
    assert ("those of 30 embeddings alone" in done.stderr) == (precision == "int8")
    model = SimCSE(str(tiny_bert))
    with warnings.catch_warnings():  # of few sentences
        warnings.simplefilter("ignore")
        model.build_index(TEXTS, precision=precision)
    expected = model.search(TEXTS[3], 5)
    found = model.open_index(tmp_path / "index").search(TEXTS[3], 5)
    assert [one[:2] for one in found] == [one[:2] for one in expected]
    np.testing.assert_allclose([one.score for one in found], [one.score for one in expected], atol=1e-5)
    for option, message in (
        (("--precision", "float32"), f"an index of {precision}, not of float32; choose another folder"),
        (("--codes", "int8"), "not of codes int8"),
        (("--ranges", made / "npy" / "0.npy"), "ranges are numbers of float32, (2, D)"),
    ):
        done = call(*build, *option)
        assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_ranges_are_read_from_a_file(made, tiny_bert, tmp_path):
    ranges = np.tile(np.float32([[-0.6], [0.6]]), SimCSE(str(tiny_bert)).dimension)
    np.save(tmp_path / "ranges.npy", ranges)
    build = ("search", "build", "--embeddings", made / "parquet", "--output", tmp_path / "index")
    done = call(*build, "--ranges", tmp_path / "ranges.npy")
    assert done.returncode == 2 and "ranges: are for an index of int8" in done.stderr
    assert not (tmp_path / "index").exists()
    done = call(*build, "--precision", "int8", "--ranges", tmp_path / "ranges.npy")
    assert done.returncode == 0 and not done.stderr.strip(), done.stderr
    assert json.loads((tmp_path / "index" / "index.json").read_text())["ranges"] == ranges.tolist()


def test_another_model_is_refused(made, tiny_bert):
    pooled = SimCSE(str(tiny_bert), pooler="avg_top2")
    with pytest.raises(UserError, match="pooler avg_top2"):
        pooled.open_index(made / "index")


def test_files_that_do_not_name_their_model(made, tiny_bert, tmp_path):
    build = ("search", "build", "--embeddings", made / "npy", "--output", tmp_path / "index")
    done = call(*build)
    assert done.returncode == 2 and "does not say which model made the embeddings; give --model" in done.stderr
    assert not (tmp_path / "index").exists()
    for pooler in ((), ("--pooler", "avg_top2")):  # the second adds those of another model
        done = call(*build, "--model", tiny_bert, *pooler)
        assert done.returncode == (2 if pooler else 0), done.stderr
    assert "not of " in done.stderr
    found = SimCSE(str(tiny_bert)).open_index(tmp_path / "index").search(TEXTS[3], 1)
    assert [one[:2] for one in found] == [("", 3)]


def test_the_demo_takes_it(made, tiny_bert):
    count, some = demo.open_index(SimCSE(str(tiny_bert)), str(made / "index"))
    assert (count, some[:2]) == (30, TEXTS[:2])
    done = call("demo", "--model", tiny_bert, "--index", made / "index", "--column", "text")
    assert done.returncode == 2 and "--column: is for --sentences" in done.stderr


def test_mistakes_are_reported_in_a_line(made, tmp_path):
    (tmp_path / "thesis.txt").touch()
    build = ("search", "build", "--embeddings", made / "parquet", "--output")
    for arguments, message in (
        ((*build, tmp_path), "holds thesis.txt and is no index"),
        ((*build, made / "parquet"), "is the folder of the embeddings"),
        ((*build, tmp_path / "x", "--pooler", "avg"), "--pooler: is for --model, which is not given"),
        ((*build, tmp_path / "x", "--truncate-dim", 8), "--truncate-dim: is for --model, which is not given"),
        ((*build, tmp_path / "x", "--dtype", "bfloat16"), "--dtype: is for --model, which is not given"),
        ((*build, tmp_path / "x", "--backend", "faiss"), "--backend"),
    ):
        done = call(*arguments)
        assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert os.listdir(tmp_path) == ["thesis.txt"]
