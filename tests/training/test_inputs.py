from types import SimpleNamespace

import numpy as np
import pytest
from support import call, refused, train_args, write_model

from simcse_jax.config import default_config
from simcse_jax.data.batches import Corpus
from simcse_jax.errors import UserError
from simcse_jax.training.inputs import Inputs, check_projector, sources

BAD_DATA = {
    "missing": (None, "no such file"),
    "empty": (b"", "holds no sentences"),
    "blank": (b"\n \n", "only 2 blank rows"),
    "latin1": ("a cat\nGr\u00fc\u00dfe\n".encode("latin-1"), "line 2 is not UTF-8"),
    "one": (b"a cat\n", "one example; training needs two or more"),
    "few": (b"a cat\na dog\n", "2 examples are fewer than one batch"),
}


@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_training_data_leaves_no_workdir(name, tiny_bert, corpus, tmp_path):
    content, message = BAD_DATA[name]
    if content is not None:
        (tmp_path / "train.txt").write_bytes(content)
    done = call("train", *train_args(tiny_bert, tmp_path / "train.txt", corpus["dev"], tmp_path / "run"))
    refused(done, tmp_path / "train.txt", message)
    assert not (tmp_path / "run").exists()


def test_other_mistakes_leave_no_workdir_either(tiny_bert, corpus, tmp_path):
    (tmp_path / "short.csv").write_text("sent0,sent1\na cat,a dog\nalone\n")
    cases = {
        "--config.sede=1": ("no such field", "seed"),
        "--config.parallel.parts=2": ("parallel.parts=2: must divide 1, the number of devices",),
        "--config.model.init_from=/no/such": ("/no/such", "no such folder"),
        f"--config.data.train={tmp_path}/short.csv": ("short.csv: line 3", "1 columns"),
        "--config.eval.data=/no/such": ("config.eval.data", "/no/such"),
        "--config.data.max_length=65": ("data.max_length=65", "at most 64"),
        "--config.objective.info_nce.hard_negative_weight=2": (
            "hard_negative_weight=2.0",
            "no column of hard negatives",
        ),
        "--config.model.num_layers=5": ("model.num_layers=5", "2 layers"),
        "--config.model.dropout=0": ("model.dropout=0.0", "all dropout rates are 0", "views.positive=off"),
    }
    for argument, parts in cases.items():
        refused(call("train", *train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / "run"), argument), *parts)
        assert not (tmp_path / "run").exists()
    (tmp_path / "file").write_text("")
    refused(call("train", *train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / "file")), "is a file")
    arguments = train_args(tiny_bert, corpus["csv"], corpus["dev"], tmp_path / "run", "--config.model.dropout=0")
    mixed = [f"--config.data.train={corpus['csv']},{corpus['txt']}", "--config.data.mixed=True"]
    refused(call("train", *arguments, *mixed), "all dropout rates are 0")


def test_a_decoder_has_no_masked_words_to_guess(corpus, tmp_path):
    folder, run = write_model(tmp_path / "decoder", "qwen3"), tmp_path / "run"
    args = train_args(folder, corpus["txt"], corpus["dev"], run, "--config.objective.mlm.weight=0.1")
    refused(call("train", *args), str(folder), "a model of the type qwen3 guesses no masked words")
    assert not run.exists()


def test_a_shuffled_text_has_no_last_token_for_a_decoder(corpus, tmp_path):
    folder, run = write_model(tmp_path / "decoder", "qwen3"), tmp_path / "run"
    shuffled = ["--config.views.positive_change=shuffled", "--config.model.pooler=last"]
    refused(
        call("train", *train_args(folder, corpus["txt"], corpus["dev"], run, *shuffled)),
        "config.views.positive_change=shuffled",
        "the pooler last does not",
    )
    assert not run.exists()


def test_a_batch_that_does_not_divide_names_the_nearest_that_do(tiny_bert, corpus, tmp_path):
    args = train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / "run", "--config.parallel.devices=3")
    refused(call("train", *args), "train.batch_size=8", "6 and 9")
    refused(call("train", *args, "--config.parallel.devices=9"), "parallel.devices=9", "there are 8")


def test_a_run_says_what_it_leaves_out_of_a_model_s_files(prompted, corpus, tmp_path):
    args = train_args(prompted, corpus["txt"], corpus["dev"], tmp_path / "run")
    done = call("train", *args, "--config.train.max_steps=0", "--config.train.epochs=0", "--config.model.pooler=avg")
    assert done.returncode == 0, done.stderr
    what = "the prompts query, document, q, the truncation to 8 elements, the similarity euclidean"
    assert f"training uses the encoder only; dropped: {what}\n" in done.stdout


def test_each_source_of_a_list_is_an_input_that_no_output_may_replace(tiny_bert, corpus, tmp_path):
    config = default_config()
    config.data.train = "a.txt,b.csv"
    found = sources(config)
    assert {name: found[name] for name in found if "data.train" in name} == {
        "config.data.train[0]": "a.txt",
        "config.data.train[1]": "b.csv",
    }
    config.data.train = "a.txt"
    assert [name for name in sources(config) if "data.train" in name] == ["config.data.train"]
    args = train_args(tiny_bert, f"{corpus['txt']},{tmp_path}/none.txt", corpus["dev"], tmp_path / "run")
    refused(call("train", *args), "none.txt: no such file")
    assert not (tmp_path / "run").exists()


def test_what_is_missing_is_a_part_of_the_data_s_fingerprint():
    ids = np.ones((2, 3, 4), np.int32)

    def fingerprint(present):
        corpus = Corpus(ids, ids, present=present)
        model = SimpleNamespace(params={})
        return Inputs([], None, model, None, corpus, None, None, 1).fingerprints["data.train"]

    there = np.ones((2, 3), bool)
    some = there & [[True, True, True], [True, True, False]]
    assert len({fingerprint(None), fingerprint(there), fingerprint(some)}) == 3


def test_an_embedding_in_the_place_of_a_token_has_its_size():
    config = default_config()
    config.objective.replaced_token_detection.weight = 0.1
    encoder = SimpleNamespace(sentence_size=32, hidden_size=32)
    check_projector(config, encoder)
    config.projector.widths = "2D,64"
    check_projector(config, encoder)  # it does not see that one
    config.projector.objectives = ("replaced_token_detection",)
    with pytest.raises(UserError, match=r"gives embeddings of 64 numbers; .* a token, which has 32"):
        check_projector(config, encoder)
    config.projector.widths = "2D,D"
    check_projector(config, encoder)
