"""DeCLUTR's step and runs: anchors with masked tokens, each with the mean of several positives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import random_model, sentences, write_model
from support.gradients import assert_same, compiled, computed
from support.models import add_mask_token
from support.run_configs import short_run
from support.steps import BATCH, batch, recipe, settings, term

from simcse_jax.errors import UserError
from simcse_jax.models import parameters
from simcse_jax.models.language_model import fresh_head, logits
from simcse_jax.models.masking import Masking, mask_tokens
from simcse_jax.models.pooling import mean
from simcse_jax.objectives.rows import dropout_keys
from simcse_jax.objectives.views import MASKING, SPREAD
from simcse_jax.training.run import read_inputs

MASKED = Masking(mask_id=3, special_ids=(0, 1, 2, 3))
NT_XENT = term("info_nce", (("similarity", "cosine"), ("symmetric", True), ("negatives", "both")))
TERMS = (NT_XENT, term("mlm"))
NUMBERS = {"info_nce": {"weight": 1.0, "temperature": 0.05, "hard_negative_weight": 1.0}, "mlm": {"weight": 1.0}}


@functools.cache
def small():
    graph, params, config = random_model(num_layers=1, with_head=False)
    head = fresh_head(config, jax.random.key(5))
    return graph, params | {parameters.LANGUAGE_MODEL + name: value for name, value in head.items()}, config


def gradient(devices=1, terms=TERMS, anchor="masked", gradient=True, **changes):
    graph, params, _ = small()
    spans = {"positives": 2, "changed": {"anchor_change": anchor}}
    chosen = recipe(3, objectives=terms, pooler="avg", use_head=False, masking=MASKED, **spans, **changes)
    function = compiled(graph, chosen, devices, gradient=gradient)
    return lambda data: computed(function, params, data, settings(objective=NUMBERS))


@pytest.mark.slow
def test_one_pass_makes_the_anchors_and_guesses_their_masked_tokens():
    """Written down as in PyTorch Metric Learning's NTXentLoss: 2N rows, each against all others but itself."""
    graph, params, config = small()
    data = batch(3)

    def direct(params):
        encoder = parameters.merge(graph, parameters.sentence_encoder(params)).encoder

        def key(number):
            return dropout_keys(3, 0, jnp.arange(BATCH), [number])[0]

        ids, mask = data["input_ids"], data["attention_mask"]
        table = params[parameters.WORD_EMBEDDING]
        shown, selected = mask_tokens(key(MASKING), ids[:, 0], mask[:, 0], vocab_size=len(table), **MASKED._asdict())
        hidden = encoder(shown, mask[:, 0], dropout_keys=key(0))[-1]
        numbers = ((1, 1), (2, 1 + SPREAD))  # of each positive's masks
        positives = [
            mean(encoder(ids[:, column], mask[:, column], dropout_keys=key(number))[-1], mask[:, column])
            for column, number in numbers
        ]
        rows = jnp.concatenate([mean(hidden, mask[:, 0]), (positives[0] + positives[1]) / 2])
        rows = rows / jnp.linalg.norm(rows, axis=1, keepdims=True)
        scores = jnp.where(jnp.eye(2 * BATCH, dtype=bool), -jnp.inf, rows @ rows.T / 0.05)
        partner = jnp.roll(jnp.arange(2 * BATCH), BATCH)
        contrast = -jnp.mean(jax.nn.log_softmax(scores)[jnp.arange(2 * BATCH), partner])
        head = parameters.subset(params, parameters.LANGUAGE_MODEL)
        words = logits(hidden, head, table, config)
        guesses = jnp.take_along_axis(jax.nn.log_softmax(words), ids[:, 0, :, None], axis=2)[:, :, 0]
        return contrast - jnp.sum(jnp.where(selected, guesses, 0.0)) / jnp.sum(selected)

    lengths = data["attention_mask"].sum(axis=2)
    together = np.add.reduceat(lengths, [0, 2, 4, 6]).max(axis=0)  # on 2 devices, 2 examples at a time
    several = gradient(2, gradient=False, chunk_size=2, most_tokens=tuple(together.tolist()))
    assert several(data)[0] == pytest.approx(float(jax.jit(direct)(params)), rel=1e-5)


@pytest.mark.slow
def test_devices_and_chunks_change_nothing_of_the_gradient():
    assert_same(gradient(2, chunk_size=2)(batch(3)), gradient()(batch(3)))


def test_without_masked_anchors_the_tokens_of_all_columns_are_guessed():
    compute = gradient(1, (term("mlm"),), "none", gradient=False)

    def loss(column):
        data = batch(3)
        ids = data["input_ids"].copy()
        ids[:, column] = np.where(data["attention_mask"][:, column] > 0, (ids[:, column] - 4 + 7) % 36 + 4, 0)
        return compute(data | {"input_ids": ids})[0]

    assert len({compute(batch(3))[0], *map(loss, range(3))}) == 4


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    path = tmp_path_factory.mktemp("documents") / "documents.txt"
    path.write_text("\n\n".join("\n".join(sentences(20, seed)) for seed in range(8)) + "\n")
    return path


def make_config(model, data, dev, **fields):
    chosen = {"model__pooler": "avg", "model__mlp": "none", "model__num_layers": 1, "data__positives": "spans"}
    chosen |= {"data__spans__longest": 8, "data__spans__shortest": 2, "data__spans__tokens": 32}
    chosen |= {"views__anchor_change": "masked", "objective__mlm__weight": 1.0}
    chosen |= {"objective__info_nce__symmetric": True, "objective__info_nce__negatives": "both"}
    return short_run(model, data, dev, **chosen | fields)


def test_spans_are_words_of_their_document_and_those_that_are_cut_are_told(documents, corpus, tmp_path, capsys):
    model = add_mask_token(write_model(tmp_path / "roberta", "roberta"), "<mask>")
    cut = read_inputs(make_config(model, documents, corpus["dev"], data__max_length=4)).corpus.cut
    said = capsys.readouterr().out
    assert 0 < cut < 48 and f"{cut} of 48 sentences have more than 4 tokens and are cut" in said
    assert "documents.txt: 8 documents, 2 anchors each, 2 positives an anchor\n" in said
    found = read_inputs(make_config(model, documents, corpus["dev"])).corpus
    assert found.input_ids.shape[:2] == (16, 3) and found.group == 2
    lengths = found.attention_mask.sum(2) - 2
    assert lengths.min() >= 2 and lengths.max() <= 8


def test_combinations_that_make_no_sense_are_refused(masked_bert, documents, corpus):
    for fields, named in (
        ({"data__spans__shortest": 9}, "config.data.spans.shortest=9: is above data.spans.longest=8"),
        ({"train__batch_size": 7}, "config.train.batch_size=7: counts anchors"),
        ({"objective__replaced_token_detection__weight": 1.0}, "config.data.spans.positives=2: .* one sentence"),
        ({"objective__mlm__weight": 0.0}, "config.views.anchor_change='masked': needs objective.mlm.weight"),
    ):
        with pytest.raises(UserError, match=named):
            read_inputs(make_config(masked_bert, documents, corpus["dev"], **fields))
