from support.configs import config_of

from simcse_jax.training.setup import data_spec


def test_lengths_are_by_column_where_one_is_set():
    alike = data_spec(config_of())
    assert alike.lengths == (32, 32) and alike.longest == ("data.max_length", 32) and alike.column_lengths(3) == ()
    queries = data_spec(config_of(data__lengths__anchor=16, data__max_length=256))
    assert queries.lengths == (16, 256) and queries.longest == ("data.max_length", 256)
    both = data_spec(config_of(data__lengths__anchor=16, data__lengths__positive=64, data__max_length=256))
    assert both.lengths == (16, 64) and both.longest == ("data.lengths.positive", 64)
    assert both.column_lengths(3) == (16, 64, 64) and both.column_lengths(1) == ()
