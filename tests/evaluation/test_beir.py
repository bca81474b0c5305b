import dataclasses
import json

import numpy as np
import pytest
from support.beir import write_beir
from support.data import raises

from simcse_jax.evaluation import beir


def test_documents_fall_by_id_have_their_gains_and_a_sample_all_judged_ones(tmp_path):
    folder = write_beir(tmp_path / "tiny")
    found, dev = beir.read(str(folder)), beir.read(str(folder), "dev")
    assert found.query_ids == [f"q{number}" for number in range(6)]
    assert found.ids == sorted((f"d{number}" for number in range(40)), reverse=True)
    record = json.loads((folder / "corpus.jsonl").read_text().splitlines()[3])
    assert record["title"] and found.second[found.ids.index("d3")] == f"{record['title']} {record['text']}"
    record = json.loads((folder / "corpus.jsonl").read_text().splitlines()[2])
    assert found.second[found.ids.index("d2")] == record["text"]
    assert dev.query_ids == ["q6", "q7", "q8"]
    assert [*map(id, found.second)] == [*map(id, dev.second)]  # two splits share their texts
    found = beir.read(str(folder))
    rows = np.array([[found.ids.index(name) for name in ("d7", "d5", "d0", "d6")] + [-1]] * 6)
    assert found.gains(rows)[:2].tolist() == [[0, 0, 2, 0, 0], [0, 2, 0, 1, 0]]
    assert found.ideal(9)[0].tolist() == [2, 1, 0] and found.ideal(1).tolist() == [[2]] * 6
    assert found.relevant.tolist() == [2] * 6
    texts = {"query_ids": ["a"], "first": ["x\ny"], "ids": ["b"], "second": ["z"]}
    moved = texts | {"first": ["x"], "ids": ["y\nb"]}  # a fingerprint knows where a text ends
    one, other = (dataclasses.replace(found, **each).fingerprint for each in (texts, moved))
    assert one != other == dataclasses.replace(found, **moved).fingerprint
    judged = {f"d{5 * row + place}" for row in range(6) for place in range(3)}
    found = beir.read(str(folder), documents=25, seed=1)
    assert (len(found.ids), found.total) == (25, 40) and judged <= set(found.ids)
    assert found.ids == sorted(found.ids, reverse=True)
    shuffled = write_beir(tmp_path / "shuffled")
    lines = (shuffled / "corpus.jsonl").read_text().splitlines()
    (shuffled / "corpus.jsonl").write_text("\n".join(reversed(lines)) + "\n")
    assert beir.read(str(shuffled), documents=25, seed=1).fingerprint == found.fingerprint
    assert beir.read(str(folder), documents=25, seed=2).ids != found.ids
    assert set(beir.read(str(folder), documents=3).ids) == judged
    assert beir.read(str(folder), documents=41).fingerprint == beir.read(str(folder)).fingerprint != found.fingerprint
    copy = write_beir(tmp_path / "copy")
    with (copy / "corpus.jsonl").open("a") as file:
        file.write('{"_id": "q0", "text": "the cat"}\n{"_id": "q2", "title": null, "text": "a dog"}\n')
    with (copy / "qrels" / "test.tsv").open("a") as file:
        file.write("q2\tq2\t1\n")
    found = beir.read(str(copy))
    assert found.same_ids.tolist() == [found.ids.index("q0"), -1, -1, -1, -1, -1]


def test_what_is_judged_and_not_there_is_counted_and_scored_as_by_trec_eval(tmp_path):
    copy = write_beir(tmp_path / "copy")
    with (copy / "qrels" / "test.tsv").open("a") as file:
        file.write("q0\tx\t3\nq0\ty\t1\nq1\tx\t0\nq2\tz\t-1\nunasked\tw\t1\nunasked\td0\t1\n")
    with pytest.warns(UserWarning) as warned:
        found = beir.read(str(copy))
    assert [str(each.message).removeprefix(f"{copy / 'qrels' / 'test.tsv'}: judges ") for each in warned] == [
        "queries that are not in queries.jsonl (1 of 7); as in trec_eval, they are left out",
        "documents that are not in corpus.jsonl (3 of 21); as in trec_eval, they count as not found",
    ]
    assert (found.query_ids, len(found.ids)) == ([f"q{number}" for number in range(6)], 40)
    assert found.relevant.tolist() == [4, 2, 2, 2, 2, 2] and found.ideal(9)[0].tolist() == [3, 2, 1, 1, 0]
    rows = np.tile([0, len(found.ids) - 1, -1], (6, 1))  # the first, the last, and none: not one that is elsewhere
    assert found.gains(rows).tolist() == [[0, 2, 0], *[[0, 0, 0]] * 5]
    with pytest.warns(UserWarning):
        assert len(beir.read(str(copy), documents=19).ids) == 19  # 18 are judged and there
    with pytest.warns(UserWarning):
        assert beir.read(str(copy), documents=3).ids == beir.read(str(copy), documents=18).ids


QUERY, DOCUMENT = '{"_id": "q0", "text": "a"}\n', '{"_id": "d0", "text": "b"}\n'
HEAD = "query-id\tcorpus-id\tscore\n"


@pytest.mark.parametrize(
    "files, split, message",
    [
        ({"corpus.jsonl": None}, "test", "no corpus.jsonl there; expected BEIR's layout, with corpus.jsonl, queries"),
        ({}, "dev", "qrels/dev.tsv: not found; there are test"),
        ({"corpus.jsonl": ""}, "test", "none of its relevant documents"),
        ({"corpus.jsonl": "[]\n"}, "test", "corpus.jsonl: line 1: not a JSON object"),
        ({"corpus.jsonl": DOCUMENT * 2}, "test", "corpus.jsonl: line 2: the _id 'd0' is given twice"),
        ({"corpus.jsonl": '{"_id": 0, "text": "b"}\n'}, "test", "line 1: _id is 0, not text in quotes"),
        ({"queries.jsonl": '{"_id": "q0"}\n'}, "test", "queries.jsonl: line 1: text is None, not text in quotes"),
        ({"qrels/test.tsv": "q0\td0\t1\n"}, "test", "test.tsv: line 1 must be the header query-id, corpus-id, score"),
        ({"qrels/test.tsv": HEAD + "q0 0 d0 1\n"}, "test", "test.tsv: line 2 is 'q0 0 d0 1', not two ids"),
        ({"qrels/test.tsv": HEAD + "q0\td0\t0.5\n"}, "test", "and a whole number such as 0, 1 or 2"),
        ({"qrels/test.tsv": HEAD + "q1\td0\t1\n"}, "test", "or none of its queries in queries.jsonl; take"),
        ({"qrels/test.tsv": HEAD + "q0\td0\t0\nq0\td9\t1\nq1\td0\t1\n"}, "test", "none of its relevant documents"),
        ({"qrels/test.tsv": HEAD + "q0\td0\t1\n" * 2}, "test", "line 3 judges the document 'd0' again"),
        ({"qrels/test.tsv": HEAD + "q0\td0\t0\n"}, "test", "none of its relevant documents"),
    ],
)
def test_what_is_wrong_is_named(files, split, message, tmp_path):
    whole = {"corpus.jsonl": DOCUMENT, "queries.jsonl": QUERY, "qrels/test.tsv": HEAD + "q0\td0\t1\n"}
    (tmp_path / "qrels").mkdir()
    for name, text in (whole | files).items():
        if text is not None:
            (tmp_path / name).write_text(text)
    raises(message, beir.read, str(tmp_path), split)
