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
        ("nil --source snli", ["invalid choice: 'nil'", "build-data --help"]),
        ("nli --source snli none", ["none: no such file or folder"]),
        ("nli --source snli snli/snli_1.0_train.jsonl", ["snli_1.0_train.jsonl is given twice"]),
        ("nli --source pairs.csv --split train", ["--split: has no effect on", "pairs.csv"]),
        ("nli --source snli --split test", ["has no file *_test.jsonl"]),
        ("nli --source snli --output out.txt", ["must end in .csv"]),
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
        arguments = [*arguments, "--output", "out.txt" if arguments[0] == "flickr_captions" else "out.csv"]
    files = {"snli", "snli/snli_1.0_train.jsonl", "pairs.csv", "out.csv", "out.txt", "none"}
    done = call("build-data", *(str(tmp_path / each) if each in files else each for each in arguments))
    refused(done, *parts)
    assert (tmp_path / "out.csv").read_text() == "before\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "pairs.csv", "snli"]


def test_a_line_that_is_broken_at_the_end_leaves_nothing_half_written(snli, tmp_path):
    with open(snli / "snli_1.0_train.jsonl", "a") as file:
        file.write('{"sentence1": "a", "sente')
    done = call("build-data", "nli_pairs", "--source", str(snli), "--output", str(tmp_path / "out.csv"))
    refused(done, "snli_1.0_train.jsonl: line 4: not JSON")
    assert [path.name for path in tmp_path.iterdir()] == ["snli"]


def test_a_file_of_a_folder_that_is_read_is_not_replaced(tmp_path):
    (tmp_path / "results.csv").write_text("image_name| comment_number| comment\n1.jpg| 0| a\n1.jpg| 1| b\n")
    before = (tmp_path / "results.csv").read_text()
    done = call("build-data", "flickr_pairs", "--source", str(tmp_path), "--output", str(tmp_path / "results.csv"))
    refused(done, "is the file of --source", "would be lost")
    assert (tmp_path / "results.csv").read_text() == before
