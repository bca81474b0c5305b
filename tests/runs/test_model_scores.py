import pytest

from simcse_jax.runs.model_scores import chosen_on, is_test, scores

FOUND = {"ndcg@10": 31.25, "recall@100": 60.0, "queries": 300, "documents": 5183, "corpus": 5183, "sha256": "0"}


def run(**fields):
    return {"config": {"eval": fields}}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "the development set of STS-B"),
        ({"data": "SentEval", "development": "sickr"}, "the development set of SICK-R"),
        ({"data": "dev.tsv"}, "a file of graded pairs"),
        ({"data": "dev.tsv", "development": "retrieval"}, "the judgements `dev` of retrieval"),
        ({"development": "retrieval", "retrieval": {"development": "train"}}, "the judgements `train` of retrieval"),
    ],
)
def test_what_chose_the_checkpoint(fields, words):
    assert chosen_on(run(**fields)["config"]) == words
    assert f"the checkpoint was chosen on {words}." in scores(
        run(**fields), {"retrieval": {"scifact": FOUND}, "retrieval_average": {}}
    )


@pytest.mark.parametrize(("data", "of_test"), [("data/senteval-1.0", True), ("a.b/SentEval", True), ("dev.tsv", False)])
def test_a_folder_s_name_may_have_a_dot(data, of_test):
    config = {"eval": {"data": data, "tasks": ["STSBenchmark"]}}
    assert is_test(config, "STSBenchmark") is of_test


def test_retrieval_has_a_table_of_its_own():
    found = {"scifact": FOUND, "other": FOUND | {"ndcg@10": 1.0, "documents": 900}}
    result = {"retrieval": found, "retrieval_average": {"ndcg@10": 16.1}}
    text = scores(run(development="retrieval"), result)
    assert text.splitlines()[2] == "| data | nDCG@10 | Recall@100 | queries | documents |"
    assert text.splitlines()[-2:] == [
        "| scifact | 31.25 | 60.00 | 300 | 5183 |",
        "| other | 1.00 | 60.00 | 300 | 900 of 5183 |",
    ]
    both = scores(run(data="dev.tsv", development="retrieval"), {"dev": {"spearman": 70.0, "pairs": 9}} | result)
    assert "No published test set; the checkpoint was chosen on the judgements `dev` of retrieval." in both
    assert both.index("| dev | 70.00 | 9 |") < both.index("| scifact |")
    own = {"split": "dev", "development": "dev", "storage": "bfloat16"}
    text = scores(run(development="retrieval", retrieval=own), result)
    assert "on the judgements `dev`, with documents' embeddings in bfloat16. These are the judgements that the" in text
    assert "not a test set" in text and "not a test set" not in scores(run(retrieval=own), result)
    pairs = scores(run(data="retrieval.tsv"), {"retrieval": {"spearman": 70.0, "pairs": 9}})
    assert "| retrieval | 70.00 | 9 |" in pairs and "trec_eval" not in pairs
    assert "has no scores" in scores(run(), None)
