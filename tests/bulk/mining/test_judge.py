import numpy as np
import pytest
from support.cross_encoders import write_cross_encoder
from support.data import raises
from support.mined import Fixed, corpus_of, pairs_of

from simcse_jax import CrossEncoder
from simcse_jax.bulk.mining.judge import EncoderJudge, open_judge
from simcse_jax.bulk.mining.miner import Miner
from simcse_jax.bulk.mining.pairs import Positives
from simcse_jax.bulk.mining.selection import Choice

TEXTS = [f"text {number}" for number in range(20)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(write_cross_encoder(tmp_path_factory.mktemp("judge") / "model"))


def test_an_encoder_and_a_cross_encoder_score_each_query_with_its_documents(tmp_path, tiny_bert, folder):
    model = Fixed()
    documents = [TEXTS[:3], TEXTS[2:4], TEXTS[:1]]
    found = EncoderJudge(model).score_of_each(["a", "b", "a"], documents)
    for query, own, scores in zip("aba", documents, found, strict=True):
        np.testing.assert_allclose(scores, model.encode_document(own) @ model.encode_query([query])[0], atol=1e-6)
    judge, about = open_judge(str(tiny_bert), 8, "float32")
    assert isinstance(judge, EncoderJudge) and list(about) == ["judge's prompts", "--judge"]
    two = write_cross_encoder(tmp_path / "two", labels=2)
    raises("two: has 2 labels", open_judge, str(two), 8, "float32")
    model, pairs = Fixed(), pairs_of(4, TEXTS)
    judge, about = open_judge(folder, 8, "float32")
    assert isinstance(judge, CrossEncoder) and about == {"--judge": CrossEncoder(folder).identity()}
    choice = Choice(3, 0, 12, relative_margin=0.02)
    records, left_out = Miner(model, corpus_of(TEXTS, model), Positives(iter(pairs)), choice, judge).mine(pairs)
    assert left_out["relative_margin"]
    for record in records:
        asked = [record["positive"], *record["negative"]]
        scores = judge.predict([(record["anchor"], text) for text in asked])
        np.testing.assert_allclose([record["positive_judged"], *record["negative_judged"]], scores, atol=1e-6)
        assert all(score <= scores[0] * 0.98 for score in scores[1:])
