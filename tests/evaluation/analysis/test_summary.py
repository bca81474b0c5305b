import pytest

from simcse_jax.evaluation.analysis import summary

BEFORE = {"anisotropy": 0.47, "adjusted_self_similarity": 0.6, "adjusted_intra_sentence_similarity": 0.3}
AFTER = {"anisotropy": 0.1204, "adjusted_self_similarity": 0.6001, "adjusted_intra_sentence_similarity": 0.45}


def test_two_models_are_compared_in_numbers():
    assert summary.of_two_models("bert", "simcse", BEFORE, AFTER) == (
        "In the last layer, from bert to simcse, anisotropy fell from 0.470 to 0.120, adjusted self-similarity stayed "
        "at 0.600 and adjusted intra-sentence similarity rose from 0.300 to 0.450."
    )


def test_two_models_that_do_not_differ_are_said_not_to():
    assert summary.of_two_models("a", "b", BEFORE, BEFORE | {"anisotropy": 0.47004}) == (
        "From a to b nothing changed in these measures of the last layer: anisotropy 0.470, adjusted self-similarity "
        "0.600 and adjusted intra-sentence similarity 0.300."
    )


def layers(*anisotropies: float) -> list[dict]:
    return [{"layer": layer, "anisotropy": value} for layer, value in enumerate(anisotropies)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0.1, 0.3, 0.2), "In the last layer of m, anisotropy is 0.200; anisotropy is highest in layer 1, 0.300."),
        ((0.1, 0.2, 0.3), "In the last layer of m, anisotropy is 0.300; no layer has a higher anisotropy."),
        ((0.3, 0.3), "In the last layer of m, anisotropy is 0.300; no layer has a higher anisotropy."),
        ((0.0,), "In the last layer of m, anisotropy is 0.000; no layer has a higher anisotropy."),
    ],
)
def test_of_a_single_model_the_last_layer_is_given(values, expected):
    assert summary.of_a_model("m", layers(*values)) == expected


def test_runs_are_compared_from_their_first_step_to_their_last():
    points = [
        {"step": 0, "anisotropy": 0.165, "alignment": 0.128, "uniformity": -1.765},
        {"step": 50, "anisotropy": 0.9, "alignment": 0.9, "uniformity": -0.9},
        {"step": 91, "anisotropy": 0.076, "alignment": 0.184, "uniformity": -2.713},
    ]
    assert summary.of_runs({"temperature 0.05": points}) == (
        "temperature 0.05, last layer, from step 0 to step 91: anisotropy fell from 0.165 to 0.076, alignment rose "
        "from 0.128 to 0.184 and uniformity fell from -1.765 to -2.713."
    )
    once = summary.of_runs({"a": points[:1], "b": points[:2]})
    assert once.startswith("a was measured once, at step 0: anisotropy 0.165, alignment 0.128 and uniformity -1.765")
    assert "b, last layer, from step 0 to step 50" in once
    many = summary.of_runs({str(number): points for number in range(6)})
    assert many.count("from step 0") == 4 and many.endswith("The table below has 2 more runs.")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (0.47, 0.12, "fell from 0.470 to 0.120"),
        (-2.0, -1.5, "rose from -2.000 to -1.500"),
        (0.0001, -0.0001, "stayed at 0.000"),
    ],
)
def test_a_change_in_words(before, after, expected):
    assert summary.change(before, after) == expected
