from collections import Counter

import jax
import numpy as np
import pytest
from support import CONFIGS, WORDS, sentences, write_model
from support.data import change, raises
from support.models import add_mask_token, edit_tensors

from simcse_jax.huggingface.load import load
from simcse_jax.huggingface.weight_names import BERT_HEAD
from simcse_jax.models import parameters
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.language_model import logits, shapes
from simcse_jax.models.sentence_encoder import build

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *dict.fromkeys(WORDS), "."]
MASK = len(VOCABULARY)


def write_language_model(folder, head=True, mask=True):
    """A random BERT with its language-model head and rows for 40 words, the last of them unused."""
    write_model(folder, "bert")
    generator, own = np.random.default_rng(3), shapes(EncoderConfig.from_hugging_face(CONFIGS["bert"], "test"))
    added = {BERT_HEAD[name]: generator.normal(0, 0.5, shape).astype(np.float32) for name, shape in own.items()}
    added["cls.predictions.bias"][:4] = added["cls.predictions.bias"][MASK:] = 100  # specials, unused rows
    if head:
        edit_tensors(folder, lambda tensors: tensors | added)
    return add_mask_token(folder) if mask else folder


@pytest.fixture(scope="module")
def masked_model(tmp_path_factory):
    return write_language_model(tmp_path_factory.mktemp("masked") / "model")


def differing(before, after):
    before, after = before.split(), after.split()
    assert len(before) == len(after)
    return [place for place, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]


def test_words_become_the_best_other_ones_by_seed_row_and_column(masked_model, tmp_path):
    # Compared with the encoder and the head applied to one sentence at a time.
    texts = [*sentences(66, seed=4), "zebra the cat"]  # more than a batch; an unknown word
    replaced = change(texts, "mlm", 30, mlm_model=masked_model)
    model = load(str(masked_model))
    graph, _ = build(model.config, with_head=False)
    encode = jax.jit(lambda ids, mask: parameters.merge(graph, model.params).encoder(ids, mask)[-1][0])
    texts[-1] = "[UNK] the cat"  # as decoded
    seen = Counter()
    for row, (before, after) in enumerate(zip(texts, replaced, strict=True)):
        places = differing(before, after)
        words = [word for word in before.split() if word != "[UNK]"]
        assert len(places) == max(1, int(len(words) * 0.3 + 0.5))
        seen.update(places)
        if row % 8 and row != len(texts) - 1:
            continue
        ids = np.array([2, *map(VOCABULARY.index, before.split()), 3])
        length, ids = len(ids), np.pad(ids, (0, 12 - len(ids)))
        masked = ids.copy()
        masked[[place + 1 for place in places]] = MASK
        hidden = encode(masked[None], (np.arange(12) < length)[None].astype(int))
        table = model.params["encoder.embeddings.word.embedding"]
        scores = np.array(logits(hidden, model.language_model, table, model.config))
        scores[:, :4] = scores[:, len(VOCABULARY) :] = -np.inf
        for place in places:
            scores[place + 1, ids[place + 1]] = -np.inf
            assert after.split()[place] == VOCABULARY[scores[place + 1].argmax()]
    assert set(seen) >= set(range(7))  # any place can be chosen
    texts = ["the cat sat on the mat in the park"] * 12
    once = change(texts, "mlm", 15, mlm_model=masked_model)
    assert all(len(differing(*pair)) == 1 for pair in zip(texts, once, strict=True)) and len(set(once)) > 3
    assert once[:3] == change(texts[:3], "mlm", 15, mlm_model=masked_model)
    assert once != change(texts, "mlm", 15, mlm_model=masked_model, seed=2)
    assert once != change(texts, "mlm", 15, mlm_model=masked_model, column=0)
    longer = " ".join(["cat", "dog"] * 60)  # the model takes 64 tokens
    nothing, one, unknown, many = change(["", "cat", "zebra", longer], "mlm", 50, mlm_model=masked_model)
    assert nothing == "" and unknown == "[UNK]" and one in WORDS and one != "cat"
    places = differing(longer, many)
    assert max(places) < 63 and len(places) == 32  # 63 words are seen
    headless = write_language_model(tmp_path / "headless", head=False)
    raises("headless: has no masked-language-model head", change, ["cat"], "mlm", mlm_model=headless)
    maskless = write_language_model(tmp_path / "maskless", mask=False)
    raises("maskless: its tokenizer has no mask token", change, ["cat"], "mlm", mlm_model=maskless)
