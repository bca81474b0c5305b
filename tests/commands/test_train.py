import pytest
from support import train_args

from simcse_jax.commands.train import train
from simcse_jax.errors import UserError


def test_data_of_a_config_file_that_are_not_there_are_left_out(tiny_bert, corpus, tmp_path, capsys):
    args = train_args(tiny_bert, corpus["txt"], "no/such/folder", tmp_path / "run", "--config.train.max_steps=2")
    with pytest.raises(UserError, match=r"config\.eval\.data: no/such/folder"):
        train(args)
    assert not (tmp_path / "run").exists()
    train([arg for arg in args if "eval.data" not in arg])
    said = capsys.readouterr()
    assert "data/SentEval/data/downstream is not there, so nothing is scored" in said.err
    assert "the last checkpoint (step 2)" in said.out and not (tmp_path / "run" / "result.json").exists()
