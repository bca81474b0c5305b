import numpy as np
from support.recorded import recorded

from simcse_jax.data.batches import Batches, Corpus
from simcse_jax.data.pairing import Pairing

RELEASED, PAPER = Pairing(7, fresh=True), Pairing(7, fresh=False)


def corpus(sentences, pairing):
    """Sentence n is the token n, in one to four places of 16."""
    ids = np.repeat(np.arange(sentences, dtype=np.int32)[:, None, None], 16, axis=2)
    return Corpus(ids, (np.arange(16) < 1 + ids[..., :1] % 4).astype(np.int8), pairing=pairing)


def epoch(pairing, sentences=100, batch=16, seed=3):
    """(steps, batch, 2) sentences of the first epoch."""
    batches = Batches(corpus(sentences, pairing), batch, seed)
    return np.array([batches[step]["input_ids"][..., 0] for step in range(pairing.count(sentences) // batch)])


def of_sentence_transformers():
    from sentence_transformers.sentence_transformer.losses.contrastive_tension import ContrastiveTensionDataLoader

    sentences = [str(number) for number in range(100)]
    batches = list(ContrastiveTensionDataLoader(sentences, batch_size=16, pos_neg_ratio=8))  # shuffles the list
    return {"order": np.int32(sentences), "pairs": np.int32([[pair.texts for pair in batch] for batch in batches])}


def test_pairs_are_those_of_sentence_transformers_by_seed_and_step_and_programs_have_places_for_all():
    theirs = recorded("contrastive_tension_pairs", of_sentence_transformers, "sentence-transformers")
    ours = RELEASED.pairs(theirs["order"])
    np.testing.assert_array_equal(ours[: 16 * 3].reshape(3, 16, 2), theirs["pairs"])
    assert RELEASED.count(100) // 16 == 3
    batches, later = Batches(corpus(100, RELEASED), 16, 3), epoch(RELEASED)
    for step in (2, 0, 4, 1):
        whole, part = batches[step], batches.rows(step, slice(5, 9))
        for name in whole:
            np.testing.assert_array_equal(part[name], whole[name][5:9])
        if step < 3:
            np.testing.assert_array_equal(whole["input_ids"][..., 0], later[step])
        np.testing.assert_array_equal(whole["attention_mask"].sum(axis=2), 1 + whole["input_ids"][..., 0] % 4)
    assert (epoch(RELEASED, seed=4) != later).any()
    for pairing in (RELEASED, PAPER):
        found = epoch(pairing).reshape(-1, 8, 2)
        assert len(found) == {RELEASED: 6, PAPER: 12}[pairing]
        assert (found[:, 0, 0] == found[:, 0, 1]).all() and (found[:, 1:, 0] != found[:, 1:, 1]).all()
        if pairing.fresh:
            read = np.concatenate([found[:, 0, 0], found[:, 1:].ravel()])
            assert len(read) == 6 * 15
        else:
            assert (found[..., 0] == found[:, :1, 0]).all()
            read = found[..., 1].ravel()
        assert len(set(read.tolist())) == len(read)
    for pairing in (RELEASED, PAPER):
        batches = Batches(corpus(1000, pairing), 16, seed=5)
        programs = batches.sizes(100, devices=2, chunk_size=3)
        (size,) = programs.tokens
        assert len(size) == 2 and not any(map(programs.of, range(100)))
        for step in range(100):
            lengths = batches[step]["attention_mask"].sum(axis=2)
            assert (np.add.reduceat(lengths, [0, 3, 6, 8, 11, 14]) <= size).all()
