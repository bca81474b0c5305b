from support import random_model

from simcse_jax.choices import HEADS, Head
from simcse_jax.models.head import PREFIX, has_head


def test_which_values_have_a_head_in_training_and_at_test_time_and_parameters_that_have_one():
    assert Head(trained=True, scored=False) == HEADS["train"]
    assert Head(trained=True, scored=True) == HEADS["always"]
    assert Head(trained=False, scored=False) == HEADS["none"]
    for with_head in (True, False):
        _, params, _ = random_model(with_head=with_head, num_layers=1)
        assert has_head(params) == with_head == any(name.startswith(PREFIX) for name in params)
