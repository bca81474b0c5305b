import dataclasses
import json
import re

import numpy as np
import pytest
from support import call, refused

import simcse_jax
from simcse_jax.commands.prepare import ROLES, name_options, read_columns
from simcse_jax.config import default_config
from simcse_jax.config.checks import validate
from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import load
from simcse_jax.training.reading import read_corpus
from simcse_jax.training.setup import data_spec


@pytest.fixture
def arguments(tiny_bert, corpus, tmp_path):
    return ["--data", corpus["csv"], "--model", tiny_bert, "--max-length", 16, "--output", tmp_path / "out"]


def test_a_corpus_is_made_completed_and_verified(arguments, tmp_path):
    def verified():
        return call("prepare", "--output", tmp_path / "out", "--verify")

    given = [*arguments, "--keep-text"]
    done = call("prepare", *given)
    assert done.returncode == 0 and "data-00000.arrow: 40 rows" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1].startswith("40 rows, ") and "in 1 files" in done.stdout
    again = call("prepare", *given)
    assert again.returncode == 0 and again.stdout.splitlines() == [done.stdout.splitlines()[-1]]
    refused(call("prepare", *arguments), "is another corpus's", "keep_text was True")
    whole = verified()
    assert whole.returncode == 0 and "as they were written" in whole.stdout, whole.stderr
    path = tmp_path / "out" / "data-00000.arrow"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    refused(verified(), path, "was changed", "remove it and run")
    path.unlink()
    refused(verified(), path, "missing")
    assert "data-00000.arrow: 40 rows" in call("prepare", *given).stdout and verified().stdout == whole.stdout


def test_rows_left_out_are_counted_cut_sentences_told_and_a_run_must_have_the_template_of_its_corpus(
    arguments, corpus, tmp_path, tiny_bert
):
    (tmp_path / "nli.csv").write_text("premise,hypothesis,label\na,b,0\na,c,2\n,x,1\nb,c,-\nb,d,0\n")
    arguments[1] = tmp_path / "nli.csv"
    columns = ["--columns", "anchor=premise", "positive=hypothesis", "label=label"]
    done = call("prepare", *arguments, *columns, "--positives", "entailment")
    assert done.returncode == 0, done.stderr
    assert "left out: 1 blank rows, 1 unlabelled rows, 1 unused rows\n2 rows" in done.stdout
    settings = json.loads((tmp_path / "out" / "corpus.json").read_text())["settings"]
    assert settings["columns"] == {"anchor": "premise", "positive": "hypothesis", "label": "label"}
    arguments[1] = corpus["csv"]
    done = call("prepare", *arguments[:4], "--max-length", 6, "--output", tmp_path / "cut")
    (line,) = [line for line in done.stdout.splitlines() if "that are kept" in line]
    assert line.endswith(" have all 6 tokens that are kept: longer ones were cut") and int(line.split()[0]) > 0
    text, out = "the cat [X] sat on mat", tmp_path / "templated"
    args = ["--data", corpus["txt"], "--model", tiny_bert, "--output", out, "--max-length", "16"]
    refused(call("prepare", *args[:-1], "7", "--template", text), "--max-length 7: the template alone has 7 tokens")
    done = call("prepare", *args, "--template", text)
    assert done.returncode == 0, done.stderr
    config = default_config()
    config.data.train, config.data.max_length, config.model.template = str(out), 16, text
    config.train.batch_size = 32
    model = dataclasses.replace(load(str(tiny_bert)), template=text)
    batch = read_corpus(data_spec(validate(config)), model, model.tokenizer).batches(32, 0)[0]
    ends = np.array(model.tokenizer.template.after)
    for ids, length in zip(batch["input_ids"][:, 0], batch["attention_mask"][:, 0].sum(axis=1), strict=True):
        np.testing.assert_array_equal(ids[length - len(ends) : length], ends)
    config.model.template = ""
    with pytest.raises(UserError, match="was prepared with another tokenizer"):
        read_corpus(data_spec(validate(config)), load(str(tiny_bert)), load(str(tiny_bert)).tokenizer)


MISTAKES = [
    ({"max_length": 2}, "max_length 2: must be one number, or two"),
    ({"max_length": [3, 4, 5]}, "max_length 3 4 5: must be one number, or two"),
    ({"positives": "spans"}, "positives 'spans': must be one of entailment"),
    ({"augment": "synonym"}, "augment_lexicon: must be given for augment synonym"),
    ({"augment": "crop", "augment_percent": 100}, "augment_percent 100: Must be < 100"),
    ({"labels": True, "positives": "neutral"}, "labels: all pairs must be kept"),
    ({"template": "word"}, "template 'word': must be a text around [X]"),
    ({"verify": True}, "verify: reads the corpus in output and nothing else; leave out data"),
]


def test_mistakes_in_options_and_data_are_named_by_the_options_and_can_be_corrected(arguments, tmp_path):
    for options, message in MISTAKES:
        with pytest.raises(UserError, match=f"^{re.escape(message)}"):
            simcse_jax.prepare("d", "m", output="o", **options)
    assert read_columns(["anchor=a=b", "positive=c"], ROLES) == {"anchor": "a=b", "positive": "c"}
    for given, part in ((["anchor"], "ROLE=NAME"), (["x=y"], "ROLE=NAME"), (["positive=p"], "anchor must be")):
        with pytest.raises(UserError, match=rf"^--columns.*{part}"):
            read_columns(given, ROLES)
    for name in ("n", "'my n'"):
        said = f"perhaps scores; if so, set data.columns.score={name} or, x, data.columns.anchor={name} data.columns."
        assert name_options(said + "positive=b") == f"name the pair: --columns anchor={name} positive=b"
        assert name_options(f"set data.columns.anchor={name} if") == "set --columns anchor=NAME if"
    refused(call("prepare", *arguments, "--max-length", 65), "--max-length 65", "at most 64")
    refused(
        call("prepare", *arguments, "--positives", "entailment"), "--positives entailment needs", "--columns label="
    )
    refused(call("prepare", *arguments, "--data", "/no/such.txt"), "--data /no/such.txt: no such file")
    path = arguments[1] = tmp_path / "text.txt"
    path.write_bytes(b"a cat\ncaf\xe9\n")
    refused(call("prepare", *arguments), path, "line 2 is not UTF-8")
    assert not (tmp_path / "out").exists()
    path.write_text("a cat\na bird\n")
    assert call("prepare", *arguments).returncode == 0
