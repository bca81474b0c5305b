import dataclasses

import jax
import numpy as np
import pytest
from support import sentences, write_model

from simcse_jax.encoding.embedder import make_hidden_states
from simcse_jax.models import parameters
from simcse_jax.models.sentence_encoder import build
from simcse_jax.runs.loading import load_model
from simcse_jax.simcse import SimCSE


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    return SimCSE(str(tiny_bert)).token_encoder()


@pytest.mark.parametrize("kind", ["bert", "mpnet"])
def test_hidden_states_are_those_of_every_layer_in_any_batch(kind, tmp_path):
    folder = write_model(tmp_path / kind, kind)
    encoder = SimCSE(str(folder), pooler="avg").token_encoder()
    some = [*sentences(40), "the cat", "", "the cat"]
    tokens, cut = encoder.tokenize(some)
    model = load_model(str(folder))
    graph, _ = build(model.config, with_head=False)
    params = {name: value for name, value in model.params.items() if name.startswith("encoder.")}
    ids, mask = encoder.tokenizer.pad([ids for ids, _ in tokens], 11)
    expected = np.stack(jax.jit(lambda params: parameters.merge(graph, params).encoder(ids, mask))(params), axis=1)
    found = dict(encoder.hidden_states(some))
    assert sorted(found) == list(range(len(some))) and cut == 0
    for row, (ids, _) in enumerate(tokens):
        assert found[row].dtype == np.float32 and len(found[row]) == 3
        assert np.allclose(found[row][:, : len(ids)], expected[row, :, : len(ids)], atol=1e-5)
    means = [found[row][-1, : len(ids)].mean(axis=0) for row, (ids, _) in enumerate(tokens)]
    assert np.allclose(means, SimCSE(str(folder), pooler="avg").encode(some), atol=1e-5)  # as a sentence is embedded


def test_tokens_know_their_words_are_cut_and_counted_and_other_parameters_do_not_compile(encoder, tiny_bert):
    [(ids, words)], _ = encoder.tokenize(["The cat sat ."])
    assert words.tolist() == [-1, 0, 1, 2, 3, -1]
    assert [encoder.token(number) for number in ids.tolist()][1:-1] == ["the", "cat", "sat", "."]
    encoder = SimCSE(str(tiny_bert)).token_encoder(max_length=8)
    some = ["the cat", "the " * 30, "a " * 6, "a " * 7]
    tokens, cut = encoder.tokenize(some)
    assert ([len(ids) for ids, _ in tokens], cut) == ([4, 8, 8, 8], 2)
    assert {states.shape[1] for _, states in encoder.hidden_states(some)} == {8}
    some = sentences(20, seed=3)
    first = dict(encoder.hidden_states(some))
    compiled = make_hidden_states(encoder.graph, encoder.sharding, False, encoder.by_rows)
    programs = compiled._cache_size()
    params = jax.tree.map(lambda value: value * 1.1, encoder.params)
    other = dict(dataclasses.replace(encoder, params=params).hidden_states(some))
    assert compiled._cache_size() == programs > 0
    assert all(np.abs(first[row] - other[row]).max() > 1e-3 for row in first)


@pytest.mark.slow
def test_pieces_of_a_word_have_its_number(minilm):
    encoder = SimCSE(minilm).token_encoder()
    [(ids, words)], _ = encoder.tokenize(["unaffable, isn't it"])
    texts = ["[CLS]", "una", "##ffa", "##ble", ",", "isn", "'", "t", "it", "[SEP]"]
    assert [encoder.token(number) for number in ids.tolist()] == texts
    assert words.tolist() == [-1, 0, 0, 0, 1, 2, 3, 4, 5, -1]
