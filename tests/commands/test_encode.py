import json

import numpy as np
import pyarrow.parquet
import pytest
from support import call, refused, sentences
from support.jobs import another_job

import simcse_jax
from simcse_jax import SimCSE
from simcse_jax.bulk import resumable
from simcse_jax.bulk.embeddings import blocks
from simcse_jax.bulk.resumable import PartialEmbeddings
from simcse_jax.errors import UserError
from simcse_jax.host.locks import held_next_to
from simcse_jax.vectors.parquet import MAKER
from simcse_jax.vectors.quantization import Quantization, quantize, ranges_of, read_ranges

TEXTS = [*sentences(20), "", 'the cat, "a dog"', *sentences(3)]


@pytest.fixture(scope="module")
def expected(tiny_bert):
    return SimCSE(str(tiny_bert)).encode(TEXTS)


def write(folder, texts=TEXTS, name="corpus.txt"):
    path = folder / name
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


def encode(model, source, output, *more):
    return call("encode", "--model", model, "--data", source, "--output", output, *more)


@pytest.mark.parametrize("kind", [".npy", ".parquet"])
def test_a_file_is_encoded_a_part_at_a_time_into_numbers_or_a_table(kind, tiny_bert, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(resumable, "AT_ONCE", 7)
    monkeypatch.setattr("simcse_jax.host.progress.LINE_SECONDS", 0)
    output = tmp_path / f"emb{kind}"
    done = encode(tiny_bert, write(tmp_path), output, "--save-every", 10)
    assert done.returncode == 0 and "25 embeddings of 32 elements, float32" in done.stdout, done.stderr
    if kind == ".npy":
        found = np.load(output)
        assert found.dtype == np.float32
    else:
        table = pyarrow.parquet.read_table(output)
        assert table.column_names == ["sentence", "row", "embedding"]
        assert table["sentence"].to_pylist() == TEXTS and table["row"].to_pylist() == list(range(25))
        assert MAKER in pyarrow.parquet.read_schema(output).metadata  # queries are cut as its sentences are
        found = np.array(table["embedding"].to_pylist())
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.txt", output.name]
    counts = [line.split(" sentences")[0] for line in done.stderr.splitlines()]  # of all parts together
    assert len(counts) >= 4 and counts[-2] == "25 of 25" and counts[-1].startswith("next: ") and "\r" not in done.stderr
    build = counts[-1].partition("search build ")[2].split()
    assert build[-2:] == ["--model", str(tiny_bert)] or kind == ".parquet"  # which names its model itself
    assert call("search", "build", *build).returncode == 0


def test_options_are_those_of_the_class_each_part_has_a_file_and_cut_sentences_are_reported_once(
    tiny_bert, expected, tmp_path, prompted
):
    source = write(tmp_path)
    for part in range(3):
        assert encode(tiny_bert, source, tmp_path / "emb.npy", "--parts", 3, "--part", part).returncode == 0
    parts = sorted(tmp_path.glob("emb*"))
    assert [part.name for part in parts] == [f"emb-0000{part}-of-00003.npy" for part in range(3)]
    found = [np.load(part) for part in parts]
    assert [len(part) for part in found] == [8, 8, 9]
    np.testing.assert_allclose(np.concatenate(found), expected, atol=1e-5)
    texts = ["the cat " * 40, "a dog", "the cat " * 50]
    done = encode(tiny_bert, write(tmp_path, texts), tmp_path / "emb.npy", "--save-every", 1)
    assert done.returncode == 0
    assert done.stderr.count("longer than") == 1 and "2 sentences were longer than 64 tokens" in done.stderr
    source, output = write(tmp_path), tmp_path / "emb.npy"
    more = ("--pooler", "cls", "--normalize", "--max-length", 6, "--output-dtype", "float16", "--num-layers", 1)
    more = (*more, "--prompt", "the ", "--truncate-dim", 5, "--dtype", "bfloat16")
    done = encode(prompted, source, output, *more)
    assert done.returncode == 0 and "of 5 elements" in done.stdout, done.stderr
    assert encode(prompted, source, tmp_path / "emb.parquet", *more).returncode == 0
    assert MAKER not in (pyarrow.parquet.read_schema(tmp_path / "emb.parquet").metadata or {})  # by default others
    with pytest.warns(UserWarning, match="longer than 6 tokens"):
        made = {"pooler": "cls", "num_layers": 1, "truncate_dim": 5}
        asked = {"normalize_to_unit": True, "max_length": 6, "prompt": "the "}
        rounded = SimCSE(prompted, **made, dtype="bfloat16").encode(TEXTS, **asked)
        exact = SimCSE(prompted, **made).encode(TEXTS, **asked)
    found = np.load(output)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, rounded, atol=1e-3)
    assert 1e-3 < np.abs(found - exact).max() < 0.1


class Killed(BaseException):  # nothing after it is done
    pass


def stop_at(monkeypatch, number):
    """The `number`-th write of embeddings ends in the middle, as a kill would end it."""
    append, calls = PartialEmbeddings.append, []

    def interrupted(self, embeddings, cut):
        calls.append(1)
        if len(calls) == number:
            append(self, embeddings[: len(embeddings) // 2] * 0, cut)
            state = json.loads(self.state.read_text())
            state["done"] -= len(embeddings) // 2
            self.state.write_text(json.dumps(state))
            raise Killed
        append(self, embeddings, cut)

    monkeypatch.setattr(PartialEmbeddings, "append", interrupted)


@pytest.mark.parametrize("kind", [".npy", ".parquet", "int8.npy"])
def test_encoding_resumes_after_a_kill_in_bytes_with_the_same_ranges(kind, tiny_bert, tmp_path, monkeypatch):
    source, output, whole = write(tmp_path), tmp_path / f"emb{kind}", tmp_path / f"whole{kind}"
    more = ("--save-every", 6, *(("--output-dtype", "int8") if kind == "int8.npy" else ()))
    assert encode(tiny_bert, source, whole, *more).returncode == 0
    with monkeypatch.context() as patch:
        stop_at(patch, 3)
        with pytest.raises(Killed):
            encode(tiny_bert, source, output, *more)
    assert not output.exists()
    if kind == "int8.npy":
        state = json.loads((tmp_path / ".embint8.npy.state.json").read_text())
        assert state["done"] == 12 and state["quantization"]["precision"] == "int8"
    done = encode(tiny_bert, source, output, *more)
    assert done.returncode == 0 and "resuming after row 12 of 25" in done.stdout
    assert output.read_bytes() == whole.read_bytes()
    assert len(list(tmp_path.iterdir())) == (5 if kind == "int8.npy" else 3)  # with their ranges


MISTAKES = [
    ("gs://bucket/emb.npy", {}, "name a folder: gs://bucket/emb.npy/"),
    ("o.npy", {"parts": 2}, "part: must be the one to encode, from 0 to 1"),
    ("o.npy", {"parts": 2, "part": 2}, "part: must be the one to encode, from 0 to 1"),
    ("o.npy", {"output_dtype": "int8", "parts": 2, "part": 0}, "parts: all need the same ranges of int8"),
    ("o.npy", {"engine": "ray"}, "engine ray: o.npy is a file"),
    ("o.parquet", {"tokens": True, "output_dtype": "int8"}, "tokens: goes with neither normalize, truncate_dim, bytes"),
    ("o.parquet", {"tokens": True, "normalize": False}, "tokens: goes with neither normalize, truncate_dim, bytes"),
    ("o.npy", {"tokens": True}, "tokens: writes .parquet"),
]


def test_mistakes_are_found_first_one_job_writes_an_output_and_no_other_input_or_option_resumes(
    tmp_path, tiny_bert, monkeypatch, capsys
):
    good, other = write(tmp_path), tmp_path / "other"
    other.mkdir()
    (other / "emb.npy").touch()
    output = tmp_path / "emb.npy"
    refused(encode("none", good, other), "has other files (emb.npy) and no plan")
    refused(encode("none", good, f"{tmp_path}/"), f"is the folder of --data {good}")
    refused(encode("none", good, tmp_path / "emb.csv"), "must be a file that ends in .npy or .parquet")
    table = tmp_path / "corpus.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": TEXTS}), table)
    refused(encode("none", table, table), "is the file of --data")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.parquet", "corpus.txt", "other"]
    refused(encode("none", good, output, "--parts", 26, "--part", 0), "corpus.txt has only 25 rows")
    with another_job(held_next_to(output)):
        refused(encode(tiny_bert, good, output), f"{output}: another job")
    assert not output.exists()
    source, output = write(tmp_path), tmp_path / "emb.npy"
    with monkeypatch.context() as patch:
        stop_at(patch, 2)
        with pytest.raises(Killed):
            encode(tiny_bert, source, output, "--save-every", 6)
    begun = ".emb.npy.partial: begun with another"
    refused(encode(tiny_bert, source, output, "--save-every", 6, "--pooler", "avg"), f"{begun} --pooler;")
    write(tmp_path, [*TEXTS[:-1], "a river"])
    refused(encode(tiny_bert, source, output, "--save-every", 6), f"{begun} --data;")
    write(tmp_path)
    done = encode(tiny_bert, source, output, "--save-every", 6)
    assert done.returncode == 0 and "resuming after row" in done.stdout, done.stderr
    for name, options, message in MISTAKES:
        with pytest.raises(UserError, match=f"^{message}" if options else message):
            simcse_jax.encode("m", "a.txt", name, **options)


def test_embeddings_that_are_not_finite_and_mistakes_in_the_input_leave_nothing(nan_bert, tmp_path, tiny_bert):
    done = encode(nan_bert, write(tmp_path), tmp_path / "emb.npy")
    assert done.returncode == 2 and "embeddings are not finite, that of '" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.txt"]
    with pytest.raises(UserError, match="embeddings are not finite"):
        SimCSE(str(nan_bert)).encode("the cat")
    (tmp_path / "float16").mkdir()
    partial = PartialEmbeddings(tmp_path / "float16" / "emb.npy", 2, np.float16, {})
    with pytest.raises(UserError, match=r"emb\.npy: an embedding has an element beyond float16; write float32"):
        partial.append(np.full((2, 3), 70_000, np.float32), 0)
    assert list((tmp_path / "float16").iterdir()) == []
    good, bad = write(tmp_path), tmp_path / "bad.txt"
    for content, message in ((b"a cat\n\xff\n", "line 2 is not UTF-8"), (b"a cat\n", "26 embeddings")):
        bad.write_bytes(content)
        done = encode(tiny_bert, f"{bad},{good}", f"{tmp_path / 'out'}/", "--block-rows", 8)
        assert message in done.stdout + done.stderr, done.stderr
        assert (tmp_path / "out").exists() == (done.returncode == 0)


def test_an_output_in_bytes_keeps_its_ranges_which_later_ones_take_and_one_in_bits(tiny_bert, expected, tmp_path):
    source, first = write(tmp_path), tmp_path / "first.npy"
    done = encode(tiny_bert, source, first, "--output-dtype", "int8", "--save-every", 10)
    assert done.returncode == 0 and "25 embeddings of 32 elements, int8" in done.stdout, done.stderr
    assert "resuming" not in done.stdout and not list(tmp_path.glob(".*.state.json"))
    beside = tmp_path / "first.npy.quantization.json"
    described = Quantization.from_content(json.loads(beside.read_text()), "x")
    np.testing.assert_allclose(described.ranges, ranges_of(expected), atol=1e-5)
    found = np.load(first)
    assert found.dtype == np.int8 and np.abs(found.astype(int) - quantize(expected, "int8")).max() <= 1
    few = tmp_path / "few.txt"
    few.write_text(f"{TEXTS[3]}\n")
    done = encode(tiny_bert, few, tmp_path / "few.parquet", "--output-dtype", "uint8", "--ranges", first)
    assert done.returncode == 0, done.stderr
    (row,) = pyarrow.parquet.read_table(tmp_path / "few.parquet")["embedding"].to_pylist()
    assert np.abs(np.array(row) - 128 - found[3]).max() <= 1
    np.testing.assert_array_equal(read_ranges(str(tmp_path / "few.parquet")), described.ranges)
    np.save(tmp_path / "floats.npy", expected)
    given = ("--output-dtype", "int8", "--calibration", tmp_path / "floats.npy")
    assert encode(tiny_bert, few, tmp_path / "x.npy", *given).returncode == 0
    np.testing.assert_array_equal(read_ranges(str(tmp_path / "x.npy")), ranges_of(expected))
    done = encode(tiny_bert, source, first)  # an output of numbers has no ranges
    assert done.returncode == 0 and not beside.exists(), done.stderr
    done = encode(tiny_bert, source, tmp_path / "emb.npy", "--output-dtype", "ubinary")
    assert done.returncode == 0, done.stderr
    found, near = np.load(tmp_path / "emb.npy"), np.abs(expected) < 1e-4
    assert found.shape == (25, 4) and found.dtype == np.uint8
    assert (near | (np.unpackbits(found, axis=1) == (expected > 0))).all()
    refused(encode(tiny_bert, few, tmp_path / "one.npy", "--output-dtype", "int8"), "in a single embedding")


def test_tokens_are_written_as_lists_and_a_folder_of_files_into_a_folder_that_is_made(tiny_bert, tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "TOKEN_ROWS", 10)
    source, output = write(tmp_path), tmp_path / "tokens.parquet"
    done = encode(tiny_bert, source, output, "--tokens", "--max-length", 6)
    assert done.returncode == 0 and "the tokens of 25 sentences, 32 elements each, float32" in done.stdout, done.stderr
    assert "longer than 6 tokens and cut there" in done.stderr
    expected = SimCSE(str(tiny_bert)).encode_tokens_counted(TEXTS, max_length=6).sentences
    found = pyarrow.parquet.read_table(output).to_pylist()
    assert [row["sentence"] for row in found] == TEXTS
    for row, (tokens, embeddings) in zip(found, expected, strict=True):
        assert row["tokens"] == tokens
        np.testing.assert_allclose(row["token_embeddings"], embeddings, atol=1e-5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.txt", "tokens.parquet"]
    (tmp_path / "folder").mkdir()
    done = encode(tiny_bert, source, tmp_path / "folder", "--tokens")
    assert done.returncode == 0 and "the tokens of 25 sentences" in done.stdout, done.stderr
    (tmp_path / "my").mkdir()
    write(tmp_path / "my", TEXTS[:3], "second.txt")
    write(tmp_path / "my", TEXTS[3:], "first.txt")
    output = tmp_path / "a" / "b" / "emb.npy"
    for name in (tmp_path / "my", tmp_path / "my" / "*"):
        done = encode(tiny_bert, name, output)
        assert done.returncode == 0, done.stderr
        expected = SimCSE(str(tiny_bert)).encode([*TEXTS[3:], *TEXTS[:3]])
        np.testing.assert_allclose(np.load(output), expected, atol=1e-6)
    build = f"--embeddings {output} --output {output.with_suffix('.lance')}"
    assert done.stderr.endswith(f"{build} --model {tiny_bert}\n")
    (tmp_path / "my" / "more.parquet").write_bytes(b"")
    done = encode(tiny_bert, tmp_path / "my" / "*", tmp_path / "my" / "more.parquet")
    refused(done, "which would be lost")
