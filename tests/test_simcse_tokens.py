import numpy as np
import pytest
from support import sentences, write_vectors

from simcse_jax import SimCSE
from simcse_jax.errors import UserError
from simcse_jax.huggingface.resolve import resolve
from simcse_jax.simcse import TokenEmbeddings


@pytest.fixture(scope="module")
def model(tiny_bert):
    return SimCSE(str(tiny_bert))


TEXTS = [*sentences(5), "", "the cat sings", *sentences(2)]


def test_each_sentence_has_its_tokens_without_padding_with_the_options_of_encode(model, tmp_path):
    found = model.encode_tokens(TEXTS, with_tokens=True)
    assert [len(each.tokens) for each in found] == [len(ids) for ids in model._embedder.tokenizer(TEXTS, 32)]
    assert found[6].tokens == ["[CLS]", "the", "cat", "sings", "[SEP]"] and found[5].tokens == ["[CLS]", "[SEP]"]
    for each in found:
        assert each.embeddings.shape == (len(each.tokens), 32) and each.embeddings.dtype == np.float32
        assert each.embeddings.base is None  # which would keep the padding in memory
    plain = model.encode_tokens(TEXTS)
    for one, other in zip(plain, found, strict=True):
        np.testing.assert_array_equal(one, other.embeddings)
    averages = np.stack([each.mean(axis=0) for each in plain])
    np.testing.assert_allclose(averages, model.encode(TEXTS, pooler="avg"), atol=1e-5)
    assert isinstance(model.encode_tokens(TEXTS[0], with_tokens=True), TokenEmbeddings)
    np.testing.assert_allclose(model.encode_tokens(TEXTS[0]), model.encode_tokens(TEXTS[:1])[0], atol=1e-6)
    assert model.encode_tokens([]) == []
    with pytest.warns(UserWarning, match="1 sentence was longer than 4 tokens"):
        assert model.encode_tokens(["the cat sings", "cat"], max_length=4)[0].shape == (4, 32)
    prompted = model.encode_tokens("cat", prompt="the ", with_tokens=True)
    assert prompted.tokens == ["[CLS]", "the", "cat", "[SEP]"]
    np.testing.assert_allclose(model.encode_tokens(TEXTS, batch_size=1)[0], model.encode_tokens(TEXTS)[0], atol=1e-5)
    done = []
    assert model.encode_tokens_counted(TEXTS, max_length=4, advance=done.append).cut > 0 and sum(done) == len(TEXTS)
    for given, options, message in ((["a", 3], {}, "sentence 1 is 3"), (["a"], {"max_length": 2}, "max_length 2")):
        with pytest.raises(UserError, match=message):
            model.encode_tokens(given, **options)
    with pytest.raises(UserError):
        SimCSE(f"glove:{write_vectors(tmp_path / 'vectors.txt')}").encode_tokens(["the cat"])


@pytest.mark.optimized
@pytest.mark.slow
def test_they_are_those_of_sentence_transformers(minilm):
    theirs = pytest.importorskip("sentence_transformers").SentenceTransformer(str(resolve(minilm)), device="cpu")
    texts = ["A man rides a boat.", "Boats", "The dog is asleep in the warm kitchen of my aunt."]
    expected = theirs.encode(texts, output_value="token_embeddings")
    for one, other in zip(SimCSE(str(minilm)).encode_tokens(texts), expected, strict=True):
        np.testing.assert_allclose(one, other.cpu().numpy(), atol=1e-5)
