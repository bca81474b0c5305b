import json

import pytest

from simcse_jax.data.building.nli import FILES, labelled_pairs, read_pairs, sentences, triplets
from simcse_jax.data.building.reading import Tally, resolve
from simcse_jax.errors import UserError

ROWS = [  # premise, hypothesis, label
    ("P1", "e1", "entailment"),
    ("P1", "n1", "neutral"),
    ("P1", "c1, or so", "contradiction"),
    ("P1", "e2", "entailment"),
    ("P2", "n2", "neutral"),
    ("P2", "c2", "contradiction"),
    ("P3 ", "c3", "contradiction"),
    ("P3", "x", "-"),
    ("P3", "", "neutral"),
    ("P3", "e3", "entailment"),
]


def snli(premise, hypothesis, label, **more):
    """A line of SNLI's and MNLI's files."""
    return json.dumps(
        {"annotator_labels": [], "gold_label": label, "sentence1": premise, "sentence2": hypothesis} | more
    )


@pytest.fixture
def folders(tmp_path):
    """SNLI, MNLI, ANLI and SentEval's SNLI, with ROWS in all or among several files."""
    for name in ("snli_1.0", "multinli_1.0", "anli_v1.0/R1", "anli_v1.0/R2", "senteval"):
        (tmp_path / name).mkdir(parents=True)
    lines = [snli(*row) for row in ROWS]
    (tmp_path / "snli_1.0/snli_1.0_train.jsonl").write_text("\n".join(lines[:6]) + "\n")
    (tmp_path / "multinli_1.0/multinli_1.0_train.jsonl").write_text("\n".join(lines[6:]) + "\n")
    (tmp_path / "multinli_1.0/multinli_1.0_dev_matched.jsonl").write_text(snli("D", "d", "neutral") + "\n")
    (tmp_path / "multinli_1.0/multinli_1.0_dev_mismatched.jsonl").write_text(snli("E", "e", "neutral") + "\n")
    for number, (premise, text, label) in enumerate((("A", "b", "e"), ("A", "d", "c"))):
        row = {"uid": "x", "context": premise, "hypothesis": text, "label": label, "reason": ""}
        (tmp_path / f"anli_v1.0/R{number + 1}/train.jsonl").write_text(json.dumps(row) + "\n")
    for name, column in zip(("s1", "s2", "labels"), zip(*ROWS, strict=True), strict=True):
        (tmp_path / f"senteval/{name}.dev").write_text("\n".join(column) + "\n")
    return {path.name.split("_")[0]: str(path) for path in tmp_path.iterdir()}


@pytest.mark.parametrize(
    ("hypothesis", "expected"),
    [
        ("last", [("P1", "e2", "c1, or so"), ("P3", "e3", "c3")]),
        ("first", [("P1", "e1", "c1, or so"), ("P3", "e3", "c3")]),
    ],
)
def test_each_premise_with_both_hypotheses_gives_one_triplet(folders, hypothesis, expected):
    tally = Tally("pairs")
    pairs = read_pairs(resolve([folders["snli"], folders["multinli"]], FILES, ["train"]), tally)
    assert list(triplets(pairs, tally, hypothesis=hypothesis)) == expected
    assert (tally.read, tally.used) == (10, 4)
    assert tally.dropped == {
        "neutral": 2,
        "without a label": 1,
        "with a blank sentence": 1,
        "with another hypothesis of the same premise and label": 1,
        "of a premise without hypotheses of all the labels": 1,
    }
    assert tally.notes == ["3 distinct premises"]


def test_neutral_hypotheses_are_a_fourth_column(folders):
    tally = Tally("pairs")
    found = list(triplets(read_pairs(resolve([folders["senteval"]], FILES, ["dev"]), tally), tally, neutral=True))
    assert found == [("P1", "e2", "c1, or so", "n1")] and tally.used == 3


def test_anli_s_rounds_follow_one_another(folders):
    tally = Tally("pairs")
    assert list(triplets(read_pairs(resolve([folders["anli"]], FILES, ["train"]), tally), tally)) == [("A", "b", "d")]


def test_pairs_are_all_that_have_a_label(folders):
    tally = Tally("pairs")
    pairs = list(labelled_pairs(read_pairs(resolve([folders["senteval"]], FILES, ["dev"]), tally), tally))
    assert pairs == [(p.strip(), h, label) for p, h, label in ROWS if label != "-" and h]
    assert tally.notes == ["3 entailment, 2 neutral, 3 contradiction"] and tally.used == 8


def test_sentences_are_of_all_pairs_labelled_or_not(folders):
    tally = Tally("pairs")
    found = list(sentences(read_pairs(resolve([folders["multinli"]], FILES, ["train"]), tally), tally))
    assert found == [("P3",), ("c3",), ("P3",), ("x",), ("P3",), ("e3",)]


def test_a_split_may_have_several_files_and_data_sets_are_read_as_they_are(folders, tmp_path):
    import datasets

    tally = Tally("pairs")
    assert [pair.premise for pair in read_pairs(resolve([folders["multinli"]], FILES, ["dev"]), tally)] == ["D", "E"]
    data = datasets.Dataset.from_dict({"premise": ["a", "b"], "hypothesis": ["c", "d"], "label": [2, -1]})
    data.save_to_disk(tmp_path / "saved")
    pairs = list(read_pairs(resolve([f"hf:{tmp_path}/saved"], FILES, ["train"]), tally))
    assert [tuple(pair) for pair in pairs] == [("a", "c", 2), ("b", "d", None)]


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (snli("a", "b", "maybe"), ["x_train.jsonl: line 1", "'maybe'", "not a label"]),
        (snli("a", "b", "neutral") + "\n{", ["line 2: not JSON"]),
        (snli("a", "b", "neutral") + '\n{"sentence1": "a"}', ["line 2", "is missing"]),
        (snli("a", 3, "neutral"), ["line 1", "holds 3, not text"]),
        (snli("a", "\ud800", "neutral"), ["line 1", "holds a broken character (U+D800 alone); remove or replace it"]),
        ('{"text": "a"}', ["its columns are text", "sentence1, sentence2, gold_label"]),
    ],
)
def test_mistakes_name_the_file_and_the_line(content, parts, tmp_path):
    (tmp_path / "x_train.jsonl").write_text(content + "\n")
    with pytest.raises(UserError) as error:
        list(read_pairs(resolve([str(tmp_path)], FILES, ["train"]), Tally("pairs")))
    assert [part for part in parts if part not in str(error.value)] == []


def test_parallel_files_must_have_the_same_length(folders, tmp_path):
    (tmp_path / "senteval/labels.dev").write_text("neutral\n")
    with pytest.raises(UserError, match=r"labels.dev: ends at line 1, before"):
        list(read_pairs(resolve([folders["senteval"]], FILES, ["dev"]), Tally("pairs")))
