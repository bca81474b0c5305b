import json
import os

import pytest
from support import call, refused

from simcse_jax.data.building.builders import BUILDERS
from simcse_jax.data.examples import read_examples

PAIRS = [("A man eats.", "He eats.", "entailment"), ("A man eats.", 'He "sleeps", or so.', "contradiction")]
PAIRS += [("A man eats.", "He is hungry.", "neutral")]


@pytest.fixture
def snli(tmp_path):
    lines = [json.dumps({"sentence1": a, "sentence2": b, "gold_label": label}) for a, b, label in PAIRS]
    (tmp_path / "snli").mkdir()
    (tmp_path / "snli/snli_1.0_train.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path / "snli"


@pytest.mark.filterwarnings("ignore:.*only its columns")
@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("nli", (["A man eats."], ["He eats."], ['He "sleeps", or so.'])),
        ("nli_neutral", (["A man eats."], ["He eats."], ['He "sleeps", or so.'])),
        ("nli_pairs", (["A man eats."] * 3, [row[1] for row in PAIRS])),
        ("nli_sentences", ([text for row in PAIRS for text in row[:2]],)),
    ],
)
def test_what_it_writes_is_what_training_reads(name, columns, snli, tmp_path):
    kind = os.path.splitext(BUILDERS[name].output)[1]
    done = call("build-data", name, "--source", str(snli), "--output", str(tmp_path / f"out{kind}"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("3 pairs read, ") and f"out{kind} (the papers' number: " in done.stdout
    examples = read_examples(str(tmp_path / f"out{kind}"), labels=name == "nli_pairs")
    assert examples.columns == columns
    if name == "nli_neutral":
        assert "1 triplets with a neutral sentence written" in done.stdout
        assert (tmp_path / "out.csv").read_text().startswith("sent0,sent1,hard_neg,neutral\nA man eats.,")
    if name == "nli_pairs":
        assert examples.labels.tolist() == [0, 2, 1]


def test_captions_are_drawn(tmp_path):
    (tmp_path / "results.token").write_text("".join(f"{n}.jpg#0\tA dog {n} .\n" for n in range(9)))
    out = tmp_path / "out.txt"
    arguments = ["flickr_captions", "--source", tmp_path / "results.token", "--output", out]
    done = call("build-data", *arguments, "--count", "4")
    assert done.returncode == 0, done.stderr
    lines = out.read_text().splitlines()
    assert len(lines) == 4 and lines == sorted(lines)
    assert done.stdout.splitlines()[:2] == ["9 captions read, 4 used", "  5 dropped: not drawn"]
    done = call("build-data", *arguments)  # there are not 150,000
    assert len(out.read_text().splitlines()) == 9


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ("nil --source snli", ["no file 'nil'; the nearest one is nli"]),
        ("nli --source snli --split test", ["has no file *_test.jsonl"]),
        ("nli --source snli --output out.txt", ["must be a file that ends in .csv"]),
        ("nli --source snli broken --output out.csv", ["line 1: not JSON"]),
        ("flickr_pairs --source flickr --output flickr/results.csv", ["is the file of --source", "would be lost"]),
        ("nli --source pairs.csv --output pairs.csv", ["the file of --source", "would be lost"]),
        ("qqp --source pairs.csv", ["it must have question1"]),
        ("nli_neutral --source pairs.csv", ["gives no triplets with a neutral sentence"]),
    ],
)
def test_mistakes_leave_what_was_there(given, parts, snli, tmp_path):
    arguments = given.split()
    (tmp_path / "pairs.csv").write_text("sent0,sent1,label\na,b,0\n")
    (tmp_path / "out.csv").write_text("before\n")
    if "--output" not in arguments:
        arguments = [*arguments, "--output", "out.csv"]
    for folder, name, text in (
        ("broken", "snli_1.0_train.jsonl", '{"sentence1": "a", "sente'),
        ("flickr", "results.csv", "image_name| comment_number| comment\n1.jpg| 0| a\n1.jpg| 1| b\n"),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    kept = {"--source", "--output", "--split", "--count", "test", "train"}
    given = [arguments[0], *(each if each in kept else str(tmp_path / each) for each in arguments[1:])]
    refused(call("build-data", *given), *parts)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
