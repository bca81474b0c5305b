import pytest
from support.costs import tiny_config

from simcse_jax.errors import UserError
from simcse_jax.training.costs.sizes import choose_batch, guess_columns, padded_length
from simcse_jax.training.setup import data_spec

COLUMNS = [
    ({"data.train": "wiki.txt"}, 1),
    ({"data.train": "nli.csv"}, 3),
    ({"data.train": "sts:folder,wiki.txt"}, 1),
    ({"data.train": "wiki.txt", "objective.contrastive_tension.weight": 1.0}, 2),
    ({"data.train": "documents.txt", "data.positives": "spans", "data.spans.positives": 3}, 4),
    ({"data.train": "wiki.txt", "data.augment.name": "crop"}, 2),
    ({"data.train": "books.txt", "data.positives": "next_sentence"}, 2),
    ({"data.train": "nli.csv", "data.positives": "entailment"}, 2),
    ({"data.train": "nli.csv", "objective.softmax_nli.weight": 1.0}, 2),
    ({"data.train": "topics.csv", "objective.supcon.weight": 1.0}, 1),
    ({"data.train": "pairs.csv", "objective.cosent.weight": 1.0}, 2),
    ({"data.train": "sts:folder:STS12"}, 2),
    ({"data.train": "nli.csv", "data.columns.anchor": "a", "data.columns.positive": "b"}, 2),
]


def test_the_columns_of_a_config_the_batch_and_fine_lengths():
    for fields, columns in COLUMNS:
        assert guess_columns(data_spec(tiny_config(**fields))) == columns, fields
    assert choose_batch(64, None, 256, 8) == 2048
    assert choose_batch(32, 5, 256, 8) == 1280
    assert choose_batch(64, None, 16, 8, "strong") == 64
    with pytest.raises(UserError, match="batch_size=64 is not divisible by 12 devices"):
        choose_batch(64, None, 12, 8, "strong")
    with pytest.raises(UserError, match="batch_size=63 is not divisible by 8 devices"):
        choose_batch(63, None, 8, 8)
    for tokens, most, length in ((22, 32, 24), (29.5, 30, 30), (3, 32, 8), (600, 1024, 1024)):
        assert padded_length(tokens, most) == length
