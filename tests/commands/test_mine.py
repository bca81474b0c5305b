import contextlib
import itertools
import json
import shutil

import pytest
from support import PROMPTS, call, refused, sentences
from support.models import edit_json

from simcse_jax.bulk.mining import miner
from simcse_jax.data.examples import read_examples

TEXTS = list(dict.fromkeys(sentences(60)))[:30]


@pytest.fixture
def arguments(tiny_bert, tmp_path):
    (tmp_path / "corpus.txt").write_text("\n".join(TEXTS) + "\n")
    rows = [f"{anchor},{positive}" for anchor, positive in zip(TEXTS[:20], TEXTS[10:], strict=True)]
    (tmp_path / "pairs.csv").write_text("\n".join(["sent0,sent1", *rows[:12], ",", *rows[12:]]) + "\n")
    inputs = ["--model", tiny_bert, "--pairs", tmp_path / "pairs.csv", "--corpus", tmp_path / "corpus.txt"]
    return [*inputs, "--block-rows", 6]


def mined(folder, *arguments, name="mined.jsonl"):
    done = call("mine", *arguments, "--output", folder / name)
    assert done.returncode == 0, done.stderr
    return done.stdout, (folder / name).read_bytes()


@contextlib.contextmanager
def killed_at(number, monkeypatch):
    mine, blocks = miner.Miner.mine, itertools.count(1)

    def killed(self, pairs):
        if next(blocks) == number:
            raise KeyboardInterrupt
        return mine(self, pairs)

    with monkeypatch.context() as patch:
        patch.setattr(miner.Miner, "mine", killed)
        yield


def test_what_is_mined_is_read_as_training_reads_it(arguments, tmp_path):
    out, content = mined(tmp_path, *arguments)
    assert out.endswith("20 pairs with 60 hard negatives\n         1  blank rows left out\n")
    records = [json.loads(line) for line in content.splitlines()]
    assert [record["row"] for record in records] == [*range(12), *range(13, 21)]
    for record in records:
        assert record["negative"] == [TEXTS[row] for row in record["negative_rows"]]
        assert not {record["anchor"], record["positive"]} & set(record["negative"])
    limits = ["--relative-margin", 0.0, "--num-negatives", 4, "--range-max", 12]
    parquet, _ = mined(tmp_path, *arguments, *limits, name="mined.parquet")
    assert "  candidates left out by --relative-margin\n" in parquet and "with fewer than asked for" in parquet
    found = read_examples(str(tmp_path / "mined.parquet"))
    assert len(found.columns) > 2 and set(found.columns[0]) <= set(TEXTS[:20])  # anchors, positives and negatives


def test_a_killed_one_that_is_given_again_has_the_same_bytes(arguments, tmp_path, monkeypatch):
    options = [*arguments, "--judge", arguments[1], "--relative-margin", 0.0]
    options += ["--sampling", "random", "--range-max", 20]
    (tmp_path / "whole").mkdir()
    report, whole = mined(tmp_path / "whole", *options)
    with killed_at(3, monkeypatch):
        assert call("mine", *options, "--output", tmp_path / "mined.jsonl").returncode == 130
    assert not (tmp_path / "mined.jsonl").exists()
    with monkeypatch.context() as patch:  # before any model is opened
        patch.setattr("simcse_jax.simcse.SimCSE", None)
        refused(call("mine", *options, "--output", tmp_path / "mined.jsonl", "--seed", 1), "begun with another --seed")
    out, again = mined(tmp_path, *options)
    assert again == whole and out.startswith(f"{tmp_path / 'mined.jsonl'}: resuming after row 12 of 21\n")
    assert out.splitlines()[2:] == report.splitlines()[1:]
    assert sorted(path.name for path in (tmp_path / "whole").iterdir()) == ["mined.jsonl"]


MISTAKES = [
    ("--max-score=nan", ['"nan" for --max-score', "Must be finite"]),
    ("--columns negative=x", ["--columns negative=x", "roles are anchor, positive"]),
    ("--columns positive=x", ["anchor must be"]),
]


def test_mistakes_and_a_judge_whose_prompts_were_changed_are_named(arguments, prompted, tmp_path, monkeypatch):
    for options, parts in MISTAKES:
        given = ("--model=m", "--pairs=p.csv", "--corpus=c.txt", "--output=o.jsonl", *options.split())
        refused(call("mine", *given), *parts)
    judge = shutil.copytree(prompted, tmp_path / "judge")
    options = [*arguments, "--judge", judge, "--relative-margin", 0.0, "--output", tmp_path / "mined.jsonl"]
    with killed_at(2, monkeypatch):
        assert call("mine", *options).returncode == 130
    edit_json(judge / "config_sentence_transformers.json", prompts=PROMPTS | {"query": "of "})
    refused(call("mine", *options), "begun with another judge's prompts")
    before = set(tmp_path.iterdir())
    none = call("mine", *arguments, "--output", tmp_path / "out.jsonl", "--max-score", -2.0)
    refused(none, "no pair has a hard negative", "relax them")
    (tmp_path / "pairs.csv").write_text("w,x,y,z\n1,2,3,4\n")
    refused(call("mine", *arguments, "--output", tmp_path / "out.jsonl"), "--pairs", "set --columns anchor=NAME")
    assert set(tmp_path.iterdir()) == before
