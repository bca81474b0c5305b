import json

import pytest
from support.data import raises

from simcse_jax.data.building.nli import FILES, labelled_pairs, read_pairs, triplets
from simcse_jax.data.building.reading import Tally, resolve

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


def snli(premise, hypothesis, label):
    fields = {"annotator_labels": [], "gold_label": label, "sentence1": premise, "sentence2": hypothesis}
    return json.dumps(fields) + "\n"


@pytest.fixture
def read(tmp_path):
    """Reads the pairs of a split of some of SNLI, MNLI, ANLI and SentEval's SNLI; ROWS are in all or among several."""
    for name in ("snli", "multinli", "anli/R1", "anli/R2", "senteval"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "snli/snli_1.0_train.jsonl").write_text("".join(snli(*row) for row in ROWS[:6]))
    (tmp_path / "multinli/multinli_1.0_train.jsonl").write_text("".join(snli(*row) for row in ROWS[6:]))
    (tmp_path / "multinli/multinli_1.0_dev_matched.jsonl").write_text(snli("D", "d", "neutral"))
    (tmp_path / "multinli/multinli_1.0_dev_mismatched.jsonl").write_text(snli("E", "e", "neutral"))
    for number, (text, label) in enumerate((("b", "e"), ("d", "c")), 1):
        row = {"uid": "x", "context": "A", "hypothesis": text, "label": label, "reason": ""}
        (tmp_path / f"anli/R{number}/train.jsonl").write_text(json.dumps(row) + "\n")
    for name, column in zip(("s1", "s2", "labels"), zip(*ROWS, strict=True), strict=True):
        (tmp_path / f"senteval/{name}.dev").write_text("\n".join(column) + "\n")

    def read(tally, *folders, split="train"):
        return read_pairs(resolve([f"{tmp_path}/{folder}" for folder in folders], FILES, [split]), tally)

    return read


def test_triplets_have_both_hypotheses_pairs_a_label_and_mistakes_name_the_line(read, tmp_path):
    for hypothesis, chosen in (("last", "e2"), ("first", "e1")):
        tally = Tally("pairs")
        found = list(triplets(read(tally, "snli", "multinli"), tally, hypothesis=hypothesis))
        assert found == [("P1", chosen, "c1, or so"), ("P3", "e3", "c3")]
        assert (tally.read, tally.used) == (10, 4)
        assert tally.dropped == {
            "neutral": 2,
            "without a label": 1,
            "with a blank sentence": 1,
            "with another hypothesis of the same premise and label": 1,
            "of a premise without hypotheses of all the labels": 1,
        }
        assert tally.notes == ["3 distinct premises"]
    tally = Tally("pairs")
    found = list(triplets(read(tally, "senteval", split="dev"), tally, neutral=True))
    assert found == [("P1", "e2", "c1, or so", "n1")] and tally.used == 3
    assert list(triplets(read(tally, "anli"), tally)) == [("A", "b", "d")]
    tally = Tally("pairs")
    pairs = list(labelled_pairs(read(tally, "senteval", split="dev"), tally))
    assert pairs == [(p.strip(), h, label) for p, h, label in ROWS if label != "-" and h]
    assert tally.notes == ["3 entailment, 2 neutral, 3 contradiction"] and tally.used == 8
    assert [pair.premise for pair in read(Tally("pairs"), "multinli", split="dev")] == ["D", "E"]  # of two files
    (tmp_path / "snli/snli_1.0_train.jsonl").write_text(snli("a", "b", "maybe"))
    raises("_train.jsonl: line 1: the label holds 'maybe'", lambda: list(read(Tally("pairs"), "snli")))
    (tmp_path / "senteval/labels.dev").write_text("neutral\n")
    raises("labels.dev: ends at line 1", lambda: list(read(Tally("pairs"), "senteval", split="dev")))
