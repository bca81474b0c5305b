import pytest

from simcse_jax.config.checks import ineffective, validate
from simcse_jax.config.fields import default_config
from simcse_jax.config.matryoshka_fields import read_dimensions, sizes_of, weights_of
from simcse_jax.errors import UserError


def config_of(dimensions=(), weights=(), **fields):
    config = default_config()
    config.matryoshka.dimensions, config.matryoshka.weights = dimensions, weights
    config.update_from_flattened_dict({name.replace("__", "."): value for name, value in fields.items()})
    return config


def test_sizes_fall_and_keep_their_weights():
    assert sizes_of(config_of()) == () and weights_of(config_of()) == []
    found = config_of(("64", "768", "256"), ("0.5", "2", "1"), model__mlp="none")
    validate(found)
    assert sizes_of(found) == (768, 256, 64) and weights_of(found) == [2.0, 1.0, 0.5]
    assert weights_of(config_of(("64", "32"))) == [1.0, 1.0]
    for parts in (("0",), ("8", "8"), ("a",), ("1.5",)):
        with pytest.raises(ValueError):
            read_dimensions(parts)


PROJECTED = {"model__mlp": "none", "projector__widths": "2D,D", "projector__objectives": ("info_nce",)}


@pytest.mark.parametrize(
    ("dimensions", "weights", "fields", "message"),
    [
        (("64", "64"), (), {}, r"matryoshka.dimensions=\('64', '64'\): must be empty, or whole numbers from 1, each"),
        (("64",), ("-1",), {}, r"matryoshka.weights=\('-1',\): must be empty, or numbers of 0 or more"),
        (("64",), ("0",), {}, "one of them above 1e-30"),
        (("64",), ("1e39",), {}, "at most 1e30"),
        (("64",), ("1e-46",), {}, "one of them above 1e-30"),
        (("6_4",), (), {}, "whole numbers from 1"),
        ((64, 32), (), {}, r"matryoshka.dimensions=\(64, 32\): its numbers must be texts, as in \('64', '32'\)"),
        (("64", "32"), ("1",), {}, "matryoshka.weights=1: 1 weights for 2 of matryoshka.dimensions; give one for each"),
        (
            ("64",),
            (),
            {},
            "matryoshka.dimensions: with model.mlp=train the first elements are trained only",
        ),
        ((), ("1",), {}, "matryoshka.weights=1: 1 weights for 0 of matryoshka.dimensions"),
        (("64",), (), PROJECTED, "matryoshka.dimensions: objective.info_nce sees projected embeddings"),
        (
            ("64",),
            (),
            {"objective__info_nce__weight": 0.0, "objective__softmax_nli__weight": 1.0},
            "matryoshka.dimensions: objective.softmax_nli has a classifier of whole embeddings",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(dimensions, weights, fields, message):
    with pytest.raises(UserError, match=f"config.*{message}"):
        validate(config_of(dimensions, weights, **fields))


def test_objectives_of_tokens_alone_have_no_sizes():
    assert not [name for name in ineffective(config_of(("64",))) if "matryoshka" in name]
    tokens = {"objective__info_nce__weight": 0.0, "objective__mlm__weight": 1.0}
    assert "matryoshka.dimensions=('64',)" in ineffective(config_of(("64",), **tokens))
    assert "matryoshka.dimensions=('64',)" in ineffective(config_of(("64",), train__epochs=0))
