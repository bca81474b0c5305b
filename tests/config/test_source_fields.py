import pytest
from support.configs import config_of

from simcse_jax.config.checks import validate
from simcse_jax.config.source_fields import read_prompts, read_range, read_weights
from simcse_jax.errors import UserError

TWO = {"data__train": "a.csv,b.csv"}


def test_a_prompt_is_for_all_sources_or_for_each():
    assert read_prompts(config_of(**TWO)) == []
    assert read_prompts(config_of(**TWO, data__prompts__anchor="q: ")) == [["q: "] * 2, [""] * 2]
    listed = config_of(**TWO, data__prompts__anchor="q: ,", data__prompts__positive='"a, b: ","say ""it"": "')
    assert read_prompts(listed) == [["q: ", ""], ["a, b: ", 'say "it": ']]
    lines = config_of(**TWO, data__prompts__anchor="Instruct: find\nQuery: ")
    assert read_prompts(lines)[0][1] == "Instruct: find\nQuery: "
    one = config_of(data__train="a.csv", data__prompts__anchor='Instruct: for this, find\nQuery: "')
    assert read_prompts(one) == [['Instruct: for this, find\nQuery: "'], [""]]
    one.data.prompts.anchor = '"with, quotes: "'
    assert read_prompts(one) == [["with, quotes: "], [""]]


def test_weights_and_the_range_of_scores_are_numbers_that_fit_float32():
    assert read_range(()) is None and read_range(("-1", "1")) == (-1.0, 1.0)
    for parts in (("1",), ("0", "1", "2"), ("5", "0"), ("1", "1"), ("a", "b"), ("0", "nan"), ("0", "inf")):
        with pytest.raises(ValueError):
            read_range(parts)
    assert read_weights(("1", "1e30", "1e-30")) == (1.0, 1e30, 1e-30)
    for weight in ("0", "-1", "nan", "inf", "1e31", "1e-31", "a", ""):
        with pytest.raises(ValueError):
            read_weights(("1", weight))


PAIRED = {"objective__contrastive_tension__weight": 1.0, "objective__info_nce__weight": 0.0}  # makes its own pairs


def test_what_does_not_fit_the_sources_is_refused():
    weights, spans, apart = {"data__weights": ("1", "2")}, {"data__positives": "spans"}, {"data__no_duplicates": True}
    for fields, named in (
        *(({"data__weights": weights}, "weights") for weights in (("1", "0"), ("1", "nan"), (1, 2))),
        *(({"data__prompts__anchor": prompt}, "prompts.anchor") for prompt in ("a,b,c", '"a')),
        ({"data__weights": ("1",)}, "weights=.*1 weights for 2 source"),
        ({**weights, **spans}, "weights=.*: spans"),
        ({**weights, **PAIRED}, "weights=.*: objective.contrastive_tension"),
        ({**apart, **spans}, "no_duplicates=True: spans"),
        ({**apart, **PAIRED}, "no_duplicates=True: objective.contrastive_tension"),
    ):
        with pytest.raises(UserError, match=f"^config.data.{named}"):
            validate(config_of(**TWO, **fields))
