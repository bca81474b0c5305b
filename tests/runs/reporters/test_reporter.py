from simcse_jax.runs.reporters.reporter import grouped, numbers_in


def test_names_are_in_groups():
    line = {"loss": 0.5, "eval/dev": 70.0, "analysis": {"anisotropy": 0.25}}
    assert grouped(line) == {"train/loss": 0.5, "eval/dev": 70.0, "analysis/anisotropy": 0.25}


def test_only_the_numbers_of_a_result_are_reported():
    result = {"dev": {"spearman": 70.5, "mean": {"pearson": 3}}, "transfer_protocol": "sklearn", "average": None}
    assert numbers_in(result, "result/") == {"result/dev/spearman": 70.5, "result/dev/mean/pearson": 3}
