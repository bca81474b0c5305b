import numpy as np
from support.fake_server import Sentence, Shape

from simcse_jax.serving.batcher import Done, PieceBatch
from simcse_jax.serving.prometheus import Metrics


def test_each_server_counts_its_own():
    first, second = Metrics(), Metrics()
    first.watch(lambda: True, lambda: 5)
    first.count_request("/v1/embeddings", 200, 0.02)
    first.count_batch("texts", Done(PieceBatch([Sentence("abc", np.arange(3), 0)], Shape(8, 16, 128), 0), 0.004, 0.2))
    lines = first.text().decode().splitlines()
    assert "simcse_waiting_texts 5.0" in lines and 'simcse_computed_tokens_total{kind="texts"} 128.0' in lines
    assert 'simcse_batch_texts_bucket{kind="texts",le="1.0"} 1.0' in lines
    assert 'simcse_queue_seconds_bucket{kind="texts",le="0.1"} 0.0' in lines
    assert "kind=" not in second.text().decode() and "text/plain" in Metrics.content_type
