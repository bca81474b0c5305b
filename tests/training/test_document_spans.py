"""DeCLUTR's step and runs: anchors with masked tokens, each with the mean of several positives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import random_model, sentences, write_model
from support.models import add_mask_token
from support.resuming import trained_and_resumed
from support.steps import BATCH, batch, recipe, settings, term

from simcse_jax.config.checks import validate
from simcse_jax.config.fields import default_config
from simcse_jax.devices.mesh import data_mesh
from simcse_jax.errors import UserError
from simcse_jax.models import parameters
from simcse_jax.models.language_model import fresh_head, logits
from simcse_jax.models.masking import Masking, mask_tokens
from simcse_jax.models.pooling import mean
from simcse_jax.objectives.rows import dropout_keys
from simcse_jax.objectives.views import MASKING, SPREAD
from simcse_jax.training.inputs import read_inputs
from simcse_jax.training.loss import make_loss

MASKED = Masking(mask_id=3, special_ids=(0, 1, 2, 3))
NT_XENT = term("info_nce", (("similarity", "cosine"), ("symmetric", True), ("negatives", "both")))
NUMBERS = {"info_nce": {"weight": 1.0, "temperature": 0.05, "hard_negative_weight": 1.0}, "mlm": {"weight": 1.0}}


@functools.cache
def small():
    graph, params, config = random_model(num_layers=1, with_head=False)
    head = fresh_head(config, jax.random.key(5))
    return graph, params | {parameters.LANGUAGE_MODEL + name: value for name, value in head.items()}, config


def gradient(devices=1, **changes):
    graph, params, _ = small()
    terms, spans = (NT_XENT, term("mlm")), {"positives": 2, "changed": {"anchor_change": "masked"}}
    chosen = recipe(3, objectives=terms, pooler="avg", use_head=False, masking=MASKED, **spans)
    function = jax.jit(make_loss(graph, chosen._replace(**changes), data_mesh(jax.devices()[:devices])))
    (loss, _), values = function(params, jnp.int32(0), batch(3), settings(objective=NUMBERS))
    return float(loss), {name: np.asarray(value) for name, value in values.items()}


def assert_same(found, expected):
    assert found[0] == pytest.approx(expected[0], rel=1e-5)
    for name, value in expected[1].items():
        assert np.abs(found[1][name] - value).max() <= 1e-5 * max(np.abs(value).max(), 1e-3), name


def test_one_pass_makes_the_anchors_and_guesses_their_masked_tokens():
    """Written down as in PyTorch Metric Learning's NTXentLoss: 2N rows, each against all others but itself."""
    graph, params, config = small()
    data = batch(3)

    def direct(params):
        encoder = parameters.merge(graph, parameters.sentence_encoder(params)).encoder

        def key(number):
            return dropout_keys(3, 0, jnp.arange(BATCH), [number])[0]

        ids, mask = data["input_ids"], data["attention_mask"]
        vocabulary = params[parameters.WORD_EMBEDDING]
        shown, selected = mask_tokens(
            key(MASKING), ids[:, 0], mask[:, 0], vocab_size=len(vocabulary), **MASKED._asdict()
        )
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
        words = logits(hidden, head, vocabulary, config)
        guesses = jnp.take_along_axis(jax.nn.log_softmax(words), ids[:, 0, :, None], axis=2)[:, :, 0]
        return contrast - jnp.sum(jnp.where(selected, guesses, 0.0)) / jnp.sum(selected)

    loss, values = jax.jit(jax.value_and_grad(direct))(params)
    expected = float(loss), {name: np.asarray(value) for name, value in values.items()}
    assert_same(gradient(), expected)
    lengths = batch(3)["attention_mask"].sum(axis=2)
    together = np.add.reduceat(lengths, [0, 2, 4, 6]).max(axis=0)  # on 2 devices, 2 examples at a time
    assert_same(gradient(2, chunk_size=2, most_tokens=tuple(together.tolist())), expected)


def test_without_masked_anchors_the_tokens_of_all_columns_are_guessed():
    graph, params, _ = small()
    changes = {"pooler": "avg", "use_head": False, "masking": MASKED}
    alone = recipe(3, objectives=(term("mlm"),), positives=2, **changes)
    function = jax.jit(make_loss(graph, alone, data_mesh(jax.devices()[:1])))

    def loss(column):
        """With other words in one of the columns."""
        data = batch(3)
        ids = data["input_ids"].copy()
        ids[:, column] = np.where(data["attention_mask"][:, column] > 0, (ids[:, column] - 4 + 7) % 36 + 4, 0)
        return float(function(params, jnp.int32(0), data | {"input_ids": ids}, settings(objective=NUMBERS))[0][0])

    losses = {float(function(params, jnp.int32(0), batch(3), settings(objective=NUMBERS))[0][0]), *map(loss, range(3))}
    assert len(losses) == 4


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 4, 8])
def test_the_gradient_is_the_same_on_any_number_of_devices(devices):
    assert_same(gradient(devices), gradient())


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    path = tmp_path_factory.mktemp("documents") / "documents.txt"
    path.write_text("\n\n".join("\n".join(sentences(20, seed)) for seed in range(8)) + "\n")
    return path


def make_config(model, data, dev, **fields):
    config = default_config()
    chosen = {"model.init_from": str(model), "data.train": str(data), "data.max_length": 16, "eval.data": str(dev)}
    chosen |= {"train.batch_size": 8, "train.max_steps": 4, "train.log_every": 1, "train.learning_rate": 1e-3}
    chosen |= {"eval.every": 2, "parallel.devices": 2, "model.pooler": "avg", "model.mlp": "none"}
    chosen |= {"model.num_layers": 1}
    chosen |= {"data.positives": "spans", "data.spans.longest": 8, "data.spans.shortest": 2, "data.spans.tokens": 32}
    chosen |= {"views.anchor_change": "masked", "objective.mlm.weight": 1.0}
    chosen |= {"objective.info_nce.symmetric": True, "objective.info_nce.negatives": "both"}
    config.update_from_flattened_dict(chosen | {name.replace("__", "."): value for name, value in fields.items()})
    validate(config)
    return config


def test_spans_that_are_cut_are_told(masked_bert, documents, corpus, capsys):
    config = make_config(masked_bert, documents, corpus["dev"], data__max_length=4)
    cut = read_inputs(config).corpus.cut
    assert 0 < cut < 48 and f"{cut} of 48 sentences have more than 4 tokens and are cut" in capsys.readouterr().out


def test_a_run_resumes_bit_for_bit(masked_bert, documents, corpus, tmp_path, capsys):
    config = make_config(masked_bert, documents, corpus["dev"])
    trained_and_resumed(config, tmp_path)
    assert "documents.txt: 8 documents, 2 anchors each, 2 positives an anchor\n" in capsys.readouterr().out


def test_spans_are_words_of_their_document_for_every_kind_of_tokenizer(documents, corpus, tmp_path):
    model = write_model(tmp_path / "roberta", "roberta")
    config = make_config(add_mask_token(model, "<mask>"), documents, corpus["dev"])
    found = read_inputs(config).corpus
    assert found.input_ids.shape[:2] == (16, 3) and found.group == 2
    lengths = found.attention_mask.sum(2) - 2
    assert lengths.min() >= 2 and lengths.max() <= 8


def test_combinations_that_make_no_sense_are_refused(masked_bert, documents, corpus):
    cases = [
        ({"data__spans__shortest": 9}, "config.data.spans.shortest=9: is above data.spans.longest=8"),
        ({"data__spans__tokens": 31}, "config.data.spans.tokens=31: must be 32 or more"),
        ({"train__batch_size": 7}, "config.train.batch_size=7: counts anchors, so it must be divisible by"),
        ({"objective__replaced_token_detection__weight": 1.0}, "config.data.spans.positives=2: .* one sentence"),
        ({"data__spans__tokens": 5000}, "8 of 8 documents have fewer than 5000 word pieces"),
        ({"objective__mlm__weight": 0.0}, "config.views.anchor_change='masked': needs objective.mlm.weight"),
        ({"data__train": str(corpus["csv"])}, r"train.csv: data.positives=spans needs a .txt file"),
        ({"objective__info_nce__hard_negative_weight": 0.5}, "has no column of hard negatives"),
        ({"data__positives": "", "data__train": str(corpus["csv"])}, "negatives=both: .* has hard negatives"),
    ]
    for fields, message in cases:
        with pytest.raises(UserError, match=message) as caught:
            read_inputs(make_config(masked_bert, documents, corpus["dev"], **fields))
        assert "\n" not in str(caught.value)
