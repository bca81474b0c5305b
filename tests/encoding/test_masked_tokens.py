import jax
import numpy as np
import pytest
from support import sentences

from simcse_jax.encoding.embedder import Embedder
from simcse_jax.encoding.masked_tokens import content_keys, masked_token_accuracy
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.models.language_model import shapes
from simcse_jax.models.masking import mask_tokens
from simcse_jax.models.parameters import LANGUAGE_MODEL
from simcse_jax.models.sentence_encoder import build
from simcse_jax.runs.loading import load_model

WORD = "the"


def test_the_share_of_masked_tokens_that_are_guessed(tiny_bert):
    """By a model whose head guesses the same word everywhere."""
    model = load_model(str(tiny_bert))
    tokenizer = Tokenizer(model.folder, model.config)
    first, word, last = tokenizer.tokenize([WORD], 16)[0][0].tolist()
    head = {name: np.zeros(shape, np.float32) for name, shape in shapes(model.config).items()}
    head["bias"][word] = 1.0
    params = model.params | {LANGUAGE_MODEL + name: value for name, value in head.items()}
    embedder = Embedder(build(model.config, with_head=model.has_head)[0], params, "avg", False, tokenizer, 16)
    some, own = [f"the {sentence} the" for sentence in sentences(40)], {"special_ids": (first, last), "mask_id": word}
    ids, mask = tokenizer.pad(tokenizer.tokenize(some, 16)[0], 21)  # with other padding than in batches
    options = own | {"vocab_size": len(params["encoder.embeddings.word.embedding"])}
    _, selected = jax.jit(lambda ids, mask: mask_tokens(content_keys(ids, mask), ids, mask, **options))(ids, mask)
    expected = ids[np.asarray(selected)].tolist()
    assert len(expected) > 20 and 0 < expected.count(word) < len(expected)
    for each in (some, some[::-1]):  # in other batches the same
        found = masked_token_accuracy(embedder, each, **own)
        assert found == pytest.approx(100 * expected.count(word) / len(expected))
    assert np.isnan(masked_token_accuracy(embedder, [""], **own))  # nothing is masked
