import io
import json
import sys

import numpy as np
import pytest
from support import call, refused, sentences, write_model
from support.cross_encoders import write_cross_encoder
from support.jobs import another_job

import simcse_jax
from simcse_jax import CrossEncoder, SimCSE
from simcse_jax.errors import UserError
from simcse_jax.evaluation import sts
from simcse_jax.host.locks import held
from simcse_jax.index.index import Index
from simcse_jax.index.results_table import WIDTH

TEXTS = [*sentences(30), "", sentences(30)[4]]  # the last one is a duplicate
QUERIES = ["the red cat", "a bird sings"]


@pytest.fixture
def model(tiny_bert):
    return SimCSE(str(tiny_bert))


@pytest.fixture
def files(tmp_path):
    (tmp_path / "sentences.txt").write_text("\n".join(TEXTS) + "\n")
    (tmp_path / "queries.txt").write_text("\n".join(QUERIES) + "\n")
    return tmp_path


def nearest(model, query: str, count: int = 5, texts=TEXTS) -> list[tuple[str, int]]:
    cosines = sts.cosine(model.encode(texts).astype(np.float64), model.encode([query] * len(texts)))
    return [(texts[row], row) for row in np.argsort(-cosines, kind="stable")[:count]]


def test_an_index_is_built_of_a_file_and_grows_and_an_interrupted_call_adds_nothing(model, files, monkeypatch):
    model.add_to_index(files / "sentences.txt")
    assert model.index.sentences == TEXTS
    model.add_to_index(["one more cat"])
    model.add_to_index(str(files / "queries.txt"))
    assert model.index.sentences == [*TEXTS, "one more cat", *QUERIES]
    assert model.search(QUERIES[1], 1)[0][:2] == (QUERIES[1], len(TEXTS) + 2)
    model.build_index(["only this"])
    assert model.search("the cat", 5, -1)[0][:2] == ("only this", 0)
    monkeypatch.setattr("simcse_jax.simcse.INDEXED_AT_ONCE", 2)
    model.build_index(["the cat"])
    encode, calls = model.encode_counted, []

    def interrupted(*args, **kwargs):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return encode(*args, **kwargs)

    monkeypatch.setattr(model, "encode_counted", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.add_to_index(["the dog", "a bird", "he sat"])
    assert model.index.sentences == ["the cat"]
    monkeypatch.setattr(model, "encode_counted", encode)
    model.add_to_index(["the dog", "a bird", "he sat"])
    assert [len(model.index), len(list(model.index.embeddings())[-1])] == [4, 4]


@pytest.mark.slow
def test_sentences_are_encoded_a_part_at_a_time_with_one_warning_of_cut_ones(model, monkeypatch):
    texts = [*TEXTS[:-1], "the cat " * 40, "a dog " * 50]
    with pytest.warns(UserWarning, match="2 sentences were longer than 64 tokens and cut there") as warned:
        model.build_index(texts)
    whole = model.search(QUERIES[0], 5, -1)
    monkeypatch.setattr("simcse_jax.simcse.INDEXED_AT_ONCE", 10)
    with pytest.warns(UserWarning, match="2 sentences were longer") as warned_of_parts:
        model.build_index(texts)
    assert (len(warned), len(warned_of_parts), warned[0].filename) == (1, 1, __file__)
    in_parts = model.search(QUERIES[0], 5, -1)
    assert [result[:2] for result in in_parts] == [result[:2] for result in whole]
    np.testing.assert_allclose([r.score for r in in_parts], [r.score for r in whole], atol=1e-5)


def test_search_gives_each_query_the_nearest_also_after_a_mistake_and_nothing_of_an_empty_index(model, tmp_path, files):
    with pytest.raises(UserError, match="call build_index, load_index or open_index first"):
        model.search("the cat")
    with pytest.raises(UserError, match="there is no index to save"):
        model.save_index(tmp_path / "index")
    model.build_index(["the cat"])
    for wrong, message in (
        (lambda: model.build_index(["the dog", 3]), "sentence 1 is 3, not a string"),
        (lambda: model.search(["the dog", 3]), "query 1 is 3, not a string"),
        (lambda: model.load_index(tmp_path / "index"), "no index there"),
    ):
        with pytest.raises(UserError, match=message):
            wrong()
    assert model.index.sentences == ["the cat"]
    model.build_index([])
    assert model.search("the cat") == []
    model.save_index(tmp_path / "index")
    model.load_index(tmp_path / "index")
    assert model.search(QUERIES) == [[], []]
    model.add_to_index(["the cat"])
    assert model.search("the cat")[0].row == 0
    model.build_index(TEXTS)
    together = model.search(QUERIES, 5, -1)
    for query, results in zip(QUERIES, together, strict=True):
        alone = model.search(query, top_k=5, threshold=-1)
        assert [result[:2] for result in alone] == [result[:2] for result in results] == nearest(model, query)
        cosine = sts.cosine(model.encode([query]), model.encode([results[0].sentence]))[0]
        assert results[0].score == pytest.approx(float(cosine), abs=1e-5)
        assert [type(value) for value in results[0]] == [str, int, float]
    assert model.search(files / "queries.txt", 5, -1) == together
    assert model.search([], 5) == [] and len(model.search(QUERIES[0], 99, -1)) == len(TEXTS)
    twice = model.search(TEXTS[4], 2)  # which is there twice
    assert [result[:2] for result in twice] == [(TEXTS[4], 4), (TEXTS[4], 31)]
    assert twice[0].score == twice[1].score == pytest.approx(1, abs=1e-6) and model.search("", 1)[0].row == 30
    assert all(result for result in model.search(TEXTS, 1, 1.0))  # each finds itself, at a threshold of 1, too


def searched(*args) -> str:
    done = call("search", *args)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_results_are_printed_and_written_from_a_threshold_also_of_queries_that_are_typed(
    model, tiny_bert, files, monkeypatch
):
    output = files / "results.json"
    printed = searched(
        *("--model", tiny_bert, "--data", files / "sentences.txt", "--queries", files / "queries.txt"),
        *("--top-k", 3, "--output", output),
    )
    written = json.loads(output.read_text())
    assert [query["query"] for query in written["queries"]] == QUERIES
    model.build_index(TEXTS)
    for query in written["queries"]:
        (results,) = query["results"]
        assert [(result["sentence"], result["row"]) for result in results] == nearest(model, query["query"], 3)
        scores = [result.score for result in model.search(query["query"], 3, -1)]
        assert [result["score"] for result in results] == pytest.approx(scores, abs=1e-6)
        for place, result in enumerate(results, 1):
            line = f"#{place}  {result['score']:6.3f}  {result['row']:>3}  {result['sentence']}".rstrip()
            assert line in printed.splitlines()
    assert written["models"] == [{"name": str(tiny_bert), "pooler": model.pooler, "head": model.use_head}]
    args = ("--model", tiny_bert, "--data", files / "sentences.txt", "--query", TEXTS[4], "--threshold")
    printed = searched(*args, "0.99999")
    assert printed.count(TEXTS[4]) == 3 and "#3" not in printed
    assert "no sentence reaches the threshold" in searched(*args, "1.5")
    (files / "long.txt").write_text("the cat " * 40 + "\na dog\n")
    done = call("search", "--model", tiny_bert, "--data", files / "long.txt", "--query", "a dog")
    assert (done.returncode, done.stderr) == (0, "warning: 1 sentence was longer than 64 tokens and cut there\n")

    class Keyboard(io.BytesIO):
        def readline(self, size=-1):
            if line := super().readline(size):
                return line
            raise KeyboardInterrupt  # which ends like the end of input

    args = ("--model", tiny_bert, "--data", files / "sentences.txt")
    expected = searched(*args, "--queries", files / "queries.txt")
    one, two = QUERIES
    for typed in (f"{one}\n\n{two}\n", f"{one}\r\n{two}", f"\ufeff{one}\n{two}\n\n"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed.encode())))
        assert searched(*args) == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Keyboard(f"{one}\n{two}\n".encode())))
    searched(*args, "--output", files / "results.json")
    assert [query["query"] for query in json.loads((files / "results.json").read_text())["queries"]] == QUERIES


def test_an_index_folder_is_made_once_read_then_and_added_to_by_one_job_at_a_time(tiny_bert, files, monkeypatch):
    encoded, add = [], Index.add
    monkeypatch.setattr(Index, "add", lambda self, texts, rows: (encoded.append(len(texts)), add(self, texts, rows)))
    base = ("--model", tiny_bert, "--index", files / "index", "--query", QUERIES[0])
    made, more = (*base, "--data", files / "sentences.txt"), (*base, "--data", files / "more.txt")
    (files / "more.txt").write_text("\n".join([*TEXTS, QUERIES[0]]) + "\n")
    other = f"{files / 'index'}: another job"
    with another_job(held(files / "index")), monkeypatch.context() as patch:
        patch.setattr(SimCSE, "encode_counted", None)  # it ends before that
        refused(call("search", *made), other)
    first = searched(*made)
    with another_job(held(files / "index")):
        assert searched(*base) == searched(*made) == first
        refused(call("search", *more), other)
    assert encoded == [len(TEXTS)]
    for args in (more, base):
        assert f"#1   1.000  {len(TEXTS):>3}  {QUERIES[0]}" in searched(*args)
    assert encoded == [len(TEXTS), 1]


@pytest.mark.slow
def test_two_models_stand_side_by_side(tiny_bert, files):
    other = write_model(files / "other", "roberta")
    base = ("--model", tiny_bert, "--query", QUERIES[0], "--query", QUERIES[1], "--index", files / "one")
    base = (*base, "--compare", other, "--compare-pooler", "avg")
    printed = searched(*base, "--data", files / "sentences.txt")
    output = files / "results.json"
    assert searched(*base, "--compare-index", files / "two", "--output", output) == printed
    assert (files / "two" / "index.json").is_file()
    written = json.loads(output.read_text())
    assert [model["pooler"] for model in written["models"]] == ["cls", "avg"]
    assert max(map(len, printed.splitlines())) <= WIDTH and printed.count(" | ") >= 10
    for side, (name, pooler) in enumerate(((tiny_bert, "cls"), (other, "avg"))):
        model = SimCSE(str(name), pooler=pooler)
        for query in written["queries"]:
            results = query["results"][side]
            assert [(result["sentence"], result["row"]) for result in results] == nearest(model, query["query"])
            assert all(f"{result['score']:.3f}" in printed for result in results)


MISTAKES = [
    ({"data": None}, "nothing to search in; give data FILE, or index FOLDER that"),
    ({"data": None, "index": "no/such"}, "index no/such: no index there; give data"),
    ({"index": "tests"}, "index tests: exists and is not an index"),
    ({"index": "a", "compare": "b", "compare_index": "./a"}, "compare_index: the same folder as index"),
    ({"queries": "q.txt"}, "query: does not go with queries"),
    ({"output": "{data}"}, "is the file of data"),
]


def test_a_mistake_is_named_before_the_model_is_loaded(files):
    for changes, part in MISTAKES:
        options = {"data": "{data}", "query": "the cat"} | changes
        data = files / "sentences.txt"
        given = {name: value.format(data=data) if isinstance(value, str) else value for name, value in options.items()}
        with pytest.raises(UserError) as error:
            simcse_jax.search("no/such/model", **given)
        assert part in str(error.value)


def test_the_command_reads_an_index_in_bytes_and_one_of_other_sentences_or_models_is_refused(tiny_bert, files):
    args = ("--model", tiny_bert, "--index", files / "index", "--query", "the cat")
    searched(*args, "--data", files / "sentences.txt")
    refused(call("search", *args, "--data", files / "queries.txt"), "other sentences (row 0 differs)")
    (files / "fewer.txt").write_text("\n".join(TEXTS[:7]) + "\n")
    refused(call("search", *args, "--data", files / "fewer.txt"), "other sentences (it has 32, 7 were given)")
    refused(call("search", *args, "--pooler", "avg"), "an index of", "(pooler 'cls', not 'avg'")
    index, output = files / "bytes", files / "results.json"
    command = ("--model", tiny_bert, "--index", index, "--query", "the red cat", "--output", output)
    done = call("search", *command, "--data", files / "sentences.txt", "--precision", "int8")
    assert done.returncode == 0 and done.stderr.count("those of 32 embeddings alone; give ranges of more") == 1
    made = json.loads(output.read_text())["queries"]
    assert json.loads((index / "index.json").read_text())["precision"] == "int8"
    searched(*command)
    searched(*command, "--precision", "int8", "--data", files / "sentences.txt")
    assert json.loads(output.read_text())["queries"] == made
    refused(call("search", *command, "--precision", "binary"), "an index of int8, not of binary")
    np.save(files / "ranges.npy", np.stack([np.full(32, -1, np.float32), np.ones(32, np.float32)]))
    given = ("--precision", "int8", "--ranges", files / "ranges.npy")
    refused(call("search", *command, *given), "an index of other ranges than")
    whole = ("--model", tiny_bert, "--data", files / "sentences.txt", "--query", "the red cat")
    searched(*whole, "--storage", "binary", "--rescore", 8, "--output", output)
    exact = files / "exact.json"
    searched(*whole, "--output", exact)
    found, expected = (json.loads(each.read_text())["queries"][0]["results"][0] for each in (output, exact))
    assert [one["row"] for one in found] == [one["row"] for one in expected]
    np.testing.assert_allclose([one["score"] for one in found], [one["score"] for one in expected], atol=1e-6)


@pytest.mark.slow
def test_what_is_found_is_reranked_by_a_cross_encoder(tiny_bert, files):
    judge = write_cross_encoder(files / "judge")
    asked = ["--model", tiny_bert, "--data", files / "sentences.txt", "--queries", files / "queries.txt"]
    options = ["--rerank", judge, "--candidates", 8, "--top-k", 3, "--output", files / "out.json"]
    done = call("search", *asked, *options)
    assert done.returncode == 0 and f"reranked by {judge}" in done.stdout.splitlines()[0], done.stderr
    written = json.loads((files / "out.json").read_text())
    assert written["reranked_by"] == str(judge)
    model, cross = SimCSE(str(tiny_bert)), CrossEncoder(judge)
    model.build_index(TEXTS)
    for query, found in zip(QUERIES, written["queries"], strict=True):
        candidates = model.search(query, 8)
        scores = cross.predict([(query, one.sentence) for one in candidates])
        best = np.argsort(-scores, kind="stable")[:3].tolist()
        assert [one["row"] for one in found["results"][0]] == [candidates[place].row for place in best]
        np.testing.assert_allclose([one["score"] for one in found["results"][0]], scores[best], atol=1e-5)
    refused(call("search", *asked, "--rerank", tiny_bert), "--rerank ", "is not a cross-encoder")
