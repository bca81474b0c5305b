import pytest

from simcse_jax.choices import EXTRA, TASKS, TRANSFER
from simcse_jax.choices import MEASURES as RANKINGS
from simcse_jax.config.fields import make_defaults
from simcse_jax.errors import UserError
from simcse_jax.training.sweeps.metrics import HEADINGS, METRICS, WORDS, share_data
from simcse_jax.training.sweeps.variants import FIELDS


def test_every_figure_has_a_name_and_a_heading_and_an_average_its_parts_and_another_name_is_refused():
    headings = {
        "stsb_dev": "STS-B dev", "sts_avg": "STS avg.", "sts_mean_pearson": "STS avg. (mean, Pearson)",
        "sts_wmean": "STS avg. (wmean)", "STS12": "STS12", "STS12_wmean": "STS12 (wmean)",
        "STSBenchmark_pearson": "STS-B (Pearson)", "SICKRelatedness": "SICK-R", "sickr_dev": "SICK-R dev",
        "transfer_avg": "transfer avg.", "transfer_dev_avg": "transfer dev avg.", "SST2": "SST",
        "MRPC_dev": "MRPC dev", "uniformity": "uniformity", "training_minutes": "training, min",
        "best_step": "best step", "retrieval_dev": "retrieval dev", "retrieval_ndcg@10": "nDCG@10",
        "retrieval_recall@100": "Recall@100",
    }  # fmt: skip
    assert headings.items() <= HEADINGS.items()
    assert len(set(HEADINGS.values())) == len(HEADINGS) == 2 + 8 * 6 + 8 * 2 + 6 + 5 + len(RANKINGS)
    named = [word for word in WORDS.replace(",", "").replace(";", "").split() if word in METRICS]
    assert {"stsb_dev", "best_step", "sts_wmean", *TASKS, *TRANSFER} <= set(named)
    assert set(EXTRA) == {metric.extra for metric in METRICS.values() if metric.extra}
    assert METRICS["sts_wmean_pearson"].parts == tuple(f"{task}_wmean_pearson" for task in TASKS)
    assert METRICS["sts_avg"].parts == TASKS
    assert METRICS["transfer_dev_avg"].parts == tuple(f"{task}_dev" for task in TRANSFER)
    assert {part for metric in METRICS.values() for part in metric.parts} <= METRICS.keys()
    assert METRICS["MR"].is_transfer and not METRICS["STS12_mean"].is_transfer and not METRICS["alignment"].is_transfer
    (rule,) = FIELDS["sweep.metrics"].rules
    for name, near in (("STS12_weighted", "STS12_wmean"), ("sts_whole_avg", "sts_avg"), ("uniform", "uniformity")):
        with pytest.raises(UserError, match=f"no metric {name!r}; the nearest one is {near}"):
            rule.check("config.sweep.metrics", ("stsb_dev", name))
    assert make_defaults(FIELDS).sweep.metrics == ()


def test_two_metrics_share_data_where_they_may_be_of_the_same_test_set():
    for first, second, shared in (
        ("STS12", "sts_avg", True), ("STSBenchmark", "stsb_dev", False), ("before", "after", True),
        ("after", "retrieval_ndcg@10", True), ("retrieval_mrr@10", "retrieval_ndcg@10", True),
        ("after", "STSBenchmark", True), ("after", "held_out_dev", False), ("after", "MR", False),
        ("retrieval_ndcg@10", "retrieval_dev", False), ("after", "best_step", False), ("steps", "best_step", False),
    ):  # fmt: skip
        assert share_data(first, second) == share_data(second, first) == shared
        assert share_data(first, first) and share_data(second, second)
