import jax
from support import random_model

from simcse_jax.config.fields import default_config
from simcse_jax.objectives.registry import OBJECTIVES, find_temperature, load_loss, needing, trained_objectives
from simcse_jax.runs.state import CONVOLUTION_STREAM, HEAD_STREAM, PROJECTOR_STREAM, SECOND_HEAD_STREAM


def test_the_names_are_those_of_the_config():
    assert set(OBJECTIVES) == set(default_config().objective)
    assert all(name == objective.name and "weight" in objective.fields for name, objective in OBJECTIVES.items())


def test_objectives_with_weight_zero_or_missing_are_off_and_needs_are_those_of_the_others():
    assert trained_objectives({}) == {}
    assert list(trained_objectives({"info_nce": {"weight": 1.0}, "mlm": {"weight": 0.0}})) == ["info_nce"]
    fields = {"mlm": {"weight": 0.1}, "off_dropout": {"weight": 1.0}, "softmax_nli": {"weight": 0.0}}
    needs = ("masks_tokens", "separate_negatives", "labels", "teacher", "replaces_tokens")
    found = {need: [objective.name for objective in needing(fields, need)] for need in needs}
    expected = {"masks_tokens": ["mlm"], "separate_negatives": ["off_dropout"]}
    assert found == {need: [] for need in needs} | expected
    assert not any(needing(default_config().objective, need) for need in needs)


def test_the_temperature_is_that_of_the_trained_contrast():
    """Not of the dimension-wise loss, whose own one divides the similarities of dimensions."""
    fields = default_config().objective
    assert find_temperature(fields) == 0.05
    fields.info_nce.weight, fields.mlm.weight, fields.dimension_wise.weight = 0.0, 1.0, 0.1
    assert find_temperature(fields) is None
    fields.off_dropout.weight, fields.off_dropout.temperature = 1.0, 0.1
    assert find_temperature(fields) == 0.1


def test_no_two_parameters_share_a_stream_or_a_name():
    _, params, encoder = random_model()
    own = [parameters for one in OBJECTIVES.values() if (parameters := load_loss(one).parameters)]
    streams = [HEAD_STREAM, SECOND_HEAD_STREAM, CONVOLUTION_STREAM, PROJECTOR_STREAM, *(each.stream for each in own)]
    assert len(own) == 3 and len(set(streams)) == len(streams)
    names = [*params, *(name for each in own for name in each.fresh(encoder, jax.random.key(0)))]
    assert len(set(names)) == len(names)
