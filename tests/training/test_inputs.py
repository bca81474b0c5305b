from types import SimpleNamespace

import numpy as np
import pytest
from support import call, refused, train_args, write_model

from simcse_jax.config import default_config
from simcse_jax.config.flags import parse
from simcse_jax.data.batches import Corpus
from simcse_jax.errors import UserError
from simcse_jax.runs.state import model_spec
from simcse_jax.training.inputs import Inputs, check_projector
from simcse_jax.training.run import read_inputs, sources


def read(model, train, dev, *fields):
    config, _ = parse([*train_args(model, train, dev, "w"), *(f"--config.{field}" for field in fields)])
    return read_inputs(config)


def test_what_is_wrong_is_refused_before_there_is_a_workdir(tiny_bert, corpus, tmp_path):
    for train, more, parts in (
        (tmp_path / "none.txt", [], ("none.txt", "no such file")),
        (corpus["txt"], ["--config.sede=1"], ("no such field", "seed")),
    ):
        args = train_args(tiny_bert, train, corpus["dev"], tmp_path / "run", *more)
        refused(call("train", *args), *parts)
        assert not (tmp_path / "run").exists()
    (tmp_path / "file").write_text("")
    refused(call("train", *train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / "file")), "is a file")


def test_a_config_that_does_not_fit_names_the_field(tiny_bert, corpus, tmp_path):
    mixed = f"data.train={corpus['csv']},{corpus['txt']}"
    decoder = f"model.init_from={write_model(tmp_path / 'decoder', 'qwen3')}"
    mlm, both_ways = "objective.mlm.weight=0.1", "model.bidirectional=True"
    for fields, named in (
        (["parallel.parts=2"], "parallel.parts=2: must divide 1"),
        (["parallel.devices=9"], "parallel.devices=9: there are 8"),
        (["parallel.devices=3"], "train.batch_size=8 is not divisible by 3"),
        (["train.batch_size=48"], "40 examples, fewer than a batch"),
        (["train.max_steps=0", "train.epochs=999999999999"], "train.epochs=999999999999: gives"),
        (["model.init_from=/no/such"], "no such folder"),
        (["eval.data=/no/such"], "config.eval.data: /no/such"),
        (["data.max_length=65"], "data.max_length=65: .*at most 64"),
        (["model.num_layers=5"], "model.num_layers=5.*2 layers"),
        (["model.dropout=0"], "model.dropout=0.0: .*both views of a sentence would be the same"),
        (["views.positive_template=[X] [MASK]"], "views.positive_template=.*has no template"),
        (["model.mlp=always", "train.max_steps=0", "train.epochs=0"], "model.mlp=always: nothing is trained"),
        (["data.train=a.txt,none.txt"], "a.txt: no such file"),
        ([mixed, "data.mixed=True", "model.dropout=0"], "both views of a sentence would be the same"),
        ([decoder, mlm], "decoder: reads from left to right.*set model.bidirectional=True"),
        ([decoder, mlm, both_ways], "config.objective.mlm.mask_token: .*decoder's tokenizer has no mask token"),
        ([decoder, mlm, both_ways, "objective.mlm.mask_token=_"], "has no token '_'"),
        ([both_ways], "config.model.bidirectional=True: .*is not a decoder"),
        ([decoder, "views.positive_change=shuffled", "model.pooler=last"], "config.views.positive_change=shuffled"),
    ):
        with pytest.raises(UserError, match=named):
            read(tiny_bert, corpus["txt"], corpus["dev"], *fields)


def test_each_source_of_a_list_is_an_input_that_no_output_may_replace():
    config = default_config()
    for train, expected in (("a.txt,b.csv", {"[0]": "a.txt", "[1]": "b.csv"}), ("a.txt", {"": "a.txt"})):
        config.data.train = train
        found = {name: source for name, source in sources(config).items() if "data.train" in name}
        assert found == {f"config.data.train{place}": source for place, source in expected.items()}


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
    check_projector(model_spec(config), encoder)
    config.projector.widths = "2D,64"
    check_projector(model_spec(config), encoder)  # it does not see that one
    config.projector.objectives = ("replaced_token_detection",)
    with pytest.raises(UserError, match=r"gives embeddings of 64 numbers; .* a token, which has 32"):
        check_projector(model_spec(config), encoder)
    config.projector.widths = "2D,D"
    check_projector(model_spec(config), encoder)


def test_a_run_says_what_it_leaves_out_of_a_model_s_files(prompted, corpus, capsys):
    read(prompted, corpus["txt"], corpus["dev"], "model.pooler=avg")
    what = "the prompts query, document, q, the truncation to 8 elements, the similarity euclidean"
    assert f"training uses the encoder only; dropped: {what}\n" in capsys.readouterr().out
