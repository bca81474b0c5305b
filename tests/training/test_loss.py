import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import assert_arrays, random_model
from support.checks import random
from support.equations import assert_is_equation
from support.gradients import assert_same, compiled, computed
from support.steps import BATCH, INFO_NCE, alone, batch, mixed_batch, recipe, replaced_tokens_step, settings, term

from simcse_jax.devices.mesh import AXIS
from simcse_jax.models import parameters
from simcse_jax.models.changes import DRAWN
from simcse_jax.models.masking import Masking
from simcse_jax.objectives.info_nce import info_nce
from simcse_jax.objectives.objective import Objective, Term
from simcse_jax.objectives.rows import Rows, dropout_keys, encode_views
from simcse_jax.objectives.views import CHANGE
from simcse_jax.runs.state import ModelSpec, split_shapes
from simcse_jax.training import gathering
from simcse_jax.training.loss import make_embedded, make_networks, total

pytestmark = pytest.mark.exact
MASKING = Masking(mask_id=3, special_ids=(0, 1, 2, 3))
BOTH = (term("info_nce", (("similarity", "cosine"), ("symmetric", True), ("negatives", "both"))),)
CHANGES = ("anchor_change", "cutoff"), ("positive_change", "shuffled")
CONSERT = {"positive": "off", "objectives": BOTH, "changed": CHANGES}  # no masks, and yet keys
RATES = {"changed": (("positive_rate", True), *CHANGES)}
OTHER_ENCODERS = [(kind, jnp.float32) for kind in ("mpnet", "albert")]
OTHER_ENCODERS += [(kind, jnp.bfloat16) for kind in ("electra", "qwen3")]
IN_FLOAT32 = {"exp", "log", "rsqrt", "erf", "tanh", "reduce_sum", "div", "psum_invariant", "reduce_scatter"}


def rows_of(data, column):
    return data["input_ids"][:, column], data["attention_mask"][:, column]


def loss_function(devices=1, columns=1, dtype=jnp.float32, model_type="bert", **changes):
    """The jitted loss and gradient, and the arguments to try it on."""
    # One layer compiles in half the time of two, which ALBERT's share; the second one of ModernBERT is local.
    num_layers = 2 if model_type in ("albert", "modernbert") else 1
    graph, params, _ = random_model(model_type, dtype=dtype, num_layers=num_layers)
    return compiled(graph, recipe(columns, **changes), devices), (params, jnp.int32(0), batch(columns), settings())


@functools.cache
def gradient(*args, **kwargs):
    function, (params, _, *others) = loss_function(*args, **kwargs)
    return computed(function, params, *others)


@pytest.mark.slow
def test_the_gradient_before_clipping_is_the_same_on_any_number_of_devices_and_in_chunks_of_any_size():
    expected = gradient(1, 3)
    assert_same(gradient(1, 3, chunk_size=3), expected)  # 3, 3 and 2 examples
    for devices in (4, 8):
        assert_same(gradient(devices, 3), expected)


def with_rows(monkeypatch):
    """Rows of word embeddings are exchanged however few words there are."""
    monkeypatch.setattr(gathering, "is_exchange_cheaper", lambda rows, split, tokens, devices: AXIS in split)


def of_words(devices, columns=3, chunk_size=0):
    """As `gradient`, with a word more than the 40 of the tiny model, so that its table is split by columns."""
    function, (params, *others) = loss_function(devices, columns, chunk_size=chunk_size)
    table = np.concatenate([params[parameters.WORD_EMBEDDING], np.ones((1, 32), np.float32)])
    params = params | {parameters.WORD_EMBEDDING: table}
    assert ("all_to_all" in str(jax.make_jaxpr(function)(params, *others))) == (devices > 1)
    return computed(function, params, *others[1:])


@pytest.mark.slow
@pytest.mark.parametrize("words", [40, 41])
def test_the_gradient_is_the_same_if_devices_exchange_the_rows_of_their_tokens(words, monkeypatch):
    """40 words are split by rows, 41 by columns; one of the two without padding."""
    expected = gradient(1, 3)
    assert np.abs(expected[1][parameters.WORD_EMBEDDING]).max() > 1e-2
    with_rows(monkeypatch)
    without_padding = {"most_tokens": (60, 60, 60)}
    loss, values = of_words(4, chunk_size=1) if words == 41 else gradient.__wrapped__(2, 3, **without_padding)
    assert words == 40 or not values[parameters.WORD_EMBEDDING][40].any()
    assert_same((loss, values | {parameters.WORD_EMBEDDING: values[parameters.WORD_EMBEDDING][:40]}), expected)


def test_a_head_of_masked_words_reads_the_whole_table(monkeypatch):
    """And the words of a generator are others than the batch's."""
    with_rows(monkeypatch)
    chosen = []
    monkeypatch.setattr("simcse_jax.training.loss.make_gathering", lambda *args: chosen.append(args[-2]) or 1 / 0)
    replaced = {"masking": MASKING, "networks": replaced_tokens_step()[-1].networks}
    for changes in ({}, {"masking": MASKING}, replaced):
        function, arguments = loss_function(2, 1, **changes)
        with pytest.raises(ZeroDivisionError):
            jax.make_jaxpr(function)(*arguments)
    assert chosen == [BATCH // 2 * 16, 0, 0]


@pytest.mark.slow
def test_attention_s_own_rate_reaches_every_pass():
    """Another rate shows in the loss; the same rate as elsewhere changes nothing, bit for bit."""
    graph, params, _ = random_model(num_layers=1)
    function = compiled(graph, recipe(1), gradient=False)

    def loss(**rates):
        return computed(function, params, batch(1), settings(**rates), None)[0]

    assert loss() == loss(attention_dropout=0.1) != loss(attention_dropout=0.4)
    assert loss(dropout=0.4, attention_dropout=0.1) != loss(dropout=0.4)


def test_one_device_alone_has_nothing_to_gather_or_to_sum():
    """Its gradients would be copied for it: a tenth of a gigabyte at MiniLM's size."""
    texts = [function.lower(*arguments).as_text() for function, arguments in (loss_function(1), loss_function(2))]
    assert ["stablehlo.all_" in text for text in texts] == [False, True]


@pytest.mark.slow
@pytest.mark.parametrize(("model_type", "changes"), [("bert", CONSERT), ("roberta", RATES)])
def test_changes_and_rates_are_the_same_on_two_devices_in_chunks_and_without_padding(changes, model_type):
    lengths = batch(1)["attention_mask"][:, 0].sum(axis=1)
    together = int(np.add.reduceat(lengths, [0, 3, 4, 7]).max())  # on 2 devices, 3 examples at a time
    assert together < 0.95 * 3 * 16
    expected = gradient(1, model_type=model_type, **changes)
    assert_same(gradient(2, model_type=model_type, chunk_size=3, most_tokens=(together,), **changes), expected)


def test_a_change_is_drawn_for_its_row_and_member_and_the_rate_is_the_positive_s():
    graph, params, config = random_model(num_layers=1)
    data, numbers = batch(1), settings()
    keys = dropout_keys(3, 0, jnp.arange(BATCH), [0, 1, CHANGE, CHANGE + 1])
    ids, mask = rows_of(data, 0)

    def view(member, name, rate):
        change = DRAWN[name](keys[2 + member], mask, config.hidden_size, 0.2)
        options = {"dropout_keys": keys[member], "dropout_rate": rate, "change": change}
        return parameters.merge(graph, params)(ids, mask, pooler="cls", use_head=True, **options)

    rows = Rows(data, jnp.int32(0), numbers, ())
    chosen = recipe(1, changed={"anchor_change": "cutoff", "positive_change": "shuffled", "positive_rate": True})
    towers = make_networks(graph, chosen, params, {}, 8).towers
    found = jax.jit(lambda: encode_views(towers, rows, chosen.views)[0])()
    expected = jax.jit(lambda: (view(0, "cutoff", 0.1), view(1, "shuffled", 0.3)))()
    np.testing.assert_allclose(np.moveaxis(found, 1, 0), expected, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("model_type, dtype", OTHER_ENCODERS)
def test_other_encoders_gradients_are_the_same_on_several_devices_and_in_chunks(model_type, dtype):
    """All layers, rows and views share MPNet's table of relative positions, and ALBERT's layers their weights."""
    tolerance = 1e-5 if dtype == jnp.float32 else 1e-2  # a sum in another order may round a factor to its neighbour
    expected = gradient(1, 2, model_type=model_type, dtype=dtype)
    used = {"mpnet": "relative_bias", "electra": "embeddings.projection.kernel"}
    if model_type in used:
        assert np.abs(expected[1][f"encoder.{used[model_type]}"]).max() > 1e-4
    assert_same(gradient(4, 2, model_type=model_type, chunk_size=1, dtype=dtype), expected, tolerance)


def primitives(jaxpr, inside=()):
    """(equation, names of the primitives that it stands in), all the way down."""
    for equation in jaxpr.eqns:
        yield equation, inside
        for part in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            part = getattr(part, "jaxpr", part)
            if hasattr(part, "eqns"):
                yield from primitives(part, (*inside, equation.primitive.name))


def equations(jaxpr, name=None):
    return [equation for equation, _ in primitives(jaxpr) if name in (None, equation.primitive.name)]


def other_terms(columns, positive, negative, two_towers, numbers, **more):
    options = {"info_nce": (("similarity", "dot"), ("symmetric", True)), "barlow_twins": (("artificial", 3),)}
    options |= {"dimension_wise": (("reading", "paper"),)}
    changes = {"objectives": tuple(term(name, options.get(name, ())) for name in numbers), "masking": MASKING}
    changes |= {"positive": positive, "negative": negative, "two_towers": two_towers} | more
    graph, params = with_own_parameters(two_towers)
    data = batch(columns) | {"label": np.arange(BATCH, dtype=np.int32) % 3}
    data |= {"score": np.float32([0, 0.25, 0.25, 1, 0.8, 0.1, 0.5, 0.8])}
    chosen_settings = settings(objective=numbers, size_weights=np.float32([1, 0.5]))

    def compute(devices, chunk_size, most_tokens=()):
        chosen = recipe(columns, chunk_size=chunk_size, most_tokens=most_tokens, **changes)
        return computed(compiled(graph, chosen, devices), params, data, chosen_settings)

    return compute


def with_own_parameters(two_towers=False):
    graph, params, config = random_model(num_layers=1)
    objective = {"mlm": {"weight": 1.0}, "softmax_nli": {"weight": 1.0}}
    shapes = split_shapes(config, ModelSpec(dual_encoder=two_towers, objectives=objective))[0]
    generator = np.random.default_rng(0)
    drawn = {name: generator.normal(0, 0.1, shape.shape).astype(np.float32) for name, shape in shapes.items()}
    return graph, drawn | params


PLUS_PLUS = {
    "off_dropout": {"weight": 1.0, "temperature": 0.05, "m": 0.9},
    "info_nce": {"weight": 0.01, "temperature": 1.0, "hard_negative_weight": 2.0},
    "dimension_wise": {"weight": 0.1, "temperature": 5.0},
    "barlow_twins": {"weight": 0.1, "off_diagonal_weight": 0.005},
    "mlm": {"weight": 0.5},
}
NOISE_STUDY = {"off_dropout": {"weight": 1.0, "temperature": 0.05, "m": 1.0}, "softmax_nli": {"weight": 1.0}}
GRADED = {name: {"weight": 1.0, "temperature": 0.05} for name in ("cosent", "angle")} | {"cosine_mse": {"weight": 1.0}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "more", "trained"),
    [
        pytest.param((3, "independent", "off", False, PLUS_PLUS), {}, {"language_model"}, marks=pytest.mark.optimized),
        ((2, "noisy", "mean", True, NOISE_STUDY), {}, {"second", "softmax_nli"}),
        ((2, "independent", "off", False, GRADED), {"sizes": (32, 8)}, set()),
    ],
    ids=["plus_plus", "noise_study", "graded_at_several_sizes"],
)
def test_all_objectives_and_views_are_the_same_on_two_devices_and_in_chunks(given, more, trained):
    compute, columns = other_terms(*given, **more), given[0]
    expected = compute(1, 0)
    lengths = batch(columns)["attention_mask"].sum(axis=2)
    together = np.add.reduceat(lengths, [0, 3, 4, 7]).max(axis=0)  # on 2 devices, 3 examples at a time
    assert np.sum(together) < 0.95 * 3 * columns * 16
    assert_same(compute(2, 3, tuple(together.tolist())), expected)
    found = {name.split(".")[0] for name, value in expected[1].items() if np.abs(value).max() > 1e-6}
    assert found == {"encoder", "head", *trained}


@pytest.mark.slow
def test_chunks_save_memory_and_sum_the_gradient_over_devices_once():
    def temporaries(size):
        function, arguments = loss_function(2, chunk_size=size)
        big = {name: np.concatenate([x] * 16) for name, x in arguments[2].items()} | {"index": np.arange(128)}
        return function.lower(*arguments[:2], big, arguments[3]).compile().memory_analysis().temp_size_in_bytes

    assert temporaries(4) < temporaries(0) / 3
    function, arguments = loss_function(2, chunk_size=1)
    found = list(primitives(jax.make_jaxpr(function)(*arguments).jaxpr))
    sums = [inside for equation, inside in found if equation.primitive.name.startswith("psum")]
    assert sums and not any("scan" in inside for inside in sums)
    assert any("scan" in inside for equation, inside in found if equation.primitive.name == "dot_general")


def test_every_float32_product_has_the_precision_of_the_config():
    for name in ("highest", "default"):
        function, arguments = loss_function(matmul_precision=name)
        products = [each.params for each in equations(jax.make_jaxpr(function)(*arguments).jaxpr, "dot_general")]
        precision = jax.lax.Precision[name.upper()]
        assert len(products) > 20 and all(set(params["precision"]) == {precision} for params in products)


def test_bfloat16_is_of_the_encoder_s_products_alone():
    function, arguments = loss_function(2, 3, dtype=jnp.bfloat16)  # of one device there is no psum
    found = set()
    for equation in equations(jax.make_jaxpr(function)(*arguments).jaxpr):
        found.add(equation.primitive.name)
        if equation.primitive.name in IN_FLOAT32:
            assert all(variable.aval.dtype != jnp.bfloat16 for variable in [*equation.invars, *equation.outvars])
        if equation.primitive.name == "dot_general":
            found.add(equation.invars[0].aval.dtype.name)
    assert found >= IN_FLOAT32 | {"bfloat16", "float32"}


@pytest.mark.slow
def test_kernels_are_rounded_once_before_loops_and_gathered_in_the_type_of_products_which_changes_no_bit(monkeypatch):
    def found(devices, chunk_size=3):
        """How many kernels are rounded inside of the loops, and outside, and gathered; none has 96 rows, as tokens."""
        function, arguments = loss_function(devices, dtype=jnp.bfloat16, chunk_size=chunk_size)
        jaxpr = jax.make_jaxpr(function)(*arguments).jaxpr
        kernels = {value.shape for name, value in arguments[0].items() if parameters.only_multiplied(name)}
        inside = [
            any("scan" in place for place in places)
            for equation, places in primitives(jaxpr)
            if equation.primitive.name == "convert_element_type"
            and equation.invars[0].aval.shape in kernels
            and (equation.invars[0].aval.dtype, equation.params["new_dtype"]) == (jnp.float32, jnp.bfloat16)
        ]
        gathered = sum(each.invars[0].aval.dtype == jnp.bfloat16 for each in equations(jaxpr, "all_gather"))
        return (sum(inside), len(inside) - sum(inside), gathered), function(*arguments)

    counts, alone = found(1)
    assert counts == (0, 4, 0)
    assert found(2)[0][0] == 0  # several devices round their parts, before they are gathered
    counts, several = found(2, 0)
    assert counts[2] == 4
    with monkeypatch.context() as patch:
        patch.setattr(parameters, "copies", lambda params, dtype: {})
        counts, in_loops = found(1)
        assert counts[0] > 0
    monkeypatch.setattr(parameters, "only_multiplied", lambda name: False)
    for ours, expected in ((alone, in_loops), (several, found(2, 0)[1])):
        jax.tree.map(np.testing.assert_array_equal, ours, expected)


@pytest.mark.parametrize("columns", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_on_two_devices_and_in_chunks_loss_and_gradient_are_the_objective_s_of_the_views(columns, monkeypatch):
    """Written down without devices: so the gradient through the gathered columns is there, once."""
    graph, params, _ = random_model(num_layers=1)
    data, views = batch(columns), (0, 0) if columns == 1 else range(columns)
    keys = dropout_keys(3, 0, jnp.arange(BATCH), range(len(views)))

    def direct(params):
        model = parameters.merge(graph, params)
        embeddings = [
            model(*rows_of(data, column), pooler="cls", use_head=True, dropout_keys=keys[view])
            for view, column in enumerate(views)
        ]
        negatives = embeddings[2] if columns == 3 else None
        return jnp.mean(info_nce(*embeddings[:2], negatives, jnp.arange(BATCH), temperature=0.05))

    loss, values = jax.jit(jax.value_and_grad(direct))(params)
    expected = float(loss), {name: np.asarray(value) for name, value in values.items()}
    assert_same(gradient(1, columns), expected)
    monkeypatch.setattr("simcse_jax.objectives.similarity.SIMILARITIES", 48)  # of 8 × 16: the loss in blocks, too
    assert_same(gradient.__wrapped__(2, columns, chunk_size=1), expected)


MIXED = {"off_dropout": PLUS_PLUS["off_dropout"], "info_nce": PLUS_PLUS["info_nce"], "mlm": PLUS_PLUS["mlm"]}


@functools.cache
def mixed_function(devices=1, chunk_size=0):
    options = {"info_nce": (("similarity", "cosine"), ("symmetric", False))}
    terms = tuple(term(name, options.get(name, ())) for name in MIXED)
    graph, params = with_own_parameters()
    chosen = recipe(3, objectives=terms, chunk_size=chunk_size, masking=MASKING)
    function = compiled(graph, chosen, devices)
    return lambda data: computed(function, params, data, settings(objective=MIXED))


@pytest.mark.slow
def test_a_mixed_batch_is_the_same_on_two_devices_and_in_chunks_whatever_stands_in_place_of_missing_sentences():
    data, compute = mixed_batch(), mixed_function()
    grouped = data | {"text": np.random.default_rng(0).integers(6, size=(BATCH, 3)).astype(np.int32)}
    expected = compute(grouped)
    assert_same(mixed_function(2, 1)(grouped), expected)
    plain = compute(data)
    assert 0 < expected[0] < plain[0] - 0.1
    data["input_ids"][~data["present"][:, 2], 2] = 7
    found = compute(data)
    assert found[0] == plain[0]
    assert_arrays(found[1], plain[1])


def test_the_mean_of_several_texts_equals_none_but_their_own_text():
    data = batch(3) | {"text": np.array([[0, 1, 1], [1, 2, 3], [3, 4, 4], *[[5, 6, 7]] * 5], np.int32)}
    seen = make_embedded(
        recipe(3, positives=2), INFO_NCE.objective, alone({"anchor": jnp.zeros((BATCH, 1))}), None, data
    )
    np.testing.assert_array_equal(seen.texts["anchor"], data["text"][:, 0])
    assert seen.texts["positive"][:3].tolist() == [1, -3, 4] and len(np.unique(seen.texts["positive"])) == BATCH
    assert make_embedded(recipe(3), INFO_NCE.objective, seen, None, batch(3)).texts is None


def test_a_mixed_batch_s_loss_is_that_of_its_sentences_without_the_missing_columns():
    """Written down row by row: a sentence alone is its own positive under the mask of positives."""
    graph, params, _ = random_model(num_layers=1)
    data = mixed_batch()
    keys = dropout_keys(3, 0, jnp.arange(BATCH), range(3))

    @jax.jit
    def encode(ids, mask, keys):
        return parameters.merge(graph, params)(ids, mask, pooler="cls", use_head=True, dropout_keys=keys)

    def view(column, number):
        return np.float64(encode(*rows_of(data, column), keys[number]))

    alone = ~data["present"][:, 1]
    anchors, own, written, negatives = view(0, 0), view(0, 1), view(1, 1), view(2, 2)
    positives = np.where(alone[:, None], own, written)
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (anchors, positives, negatives)]
    similar = np.exp(unit[0] @ np.concatenate([unit[1], unit[2][data["present"][:, 2]]]).T / 0.05)
    expected = np.mean(np.log(similar.sum(axis=1) / np.diag(similar)))
    function = compiled(graph, recipe(3), gradient=False)
    assert computed(function, params, data, settings(), None)[0] == pytest.approx(expected, rel=1e-4)


class Scale(Objective):
    name = "scale"

    def loss(self, embedded, *, power, sign):
        return sign * embedded.params["scale"] ** power


def test_the_loss_is_the_weighted_sum_of_the_terms_of_their_parameters_numbers_and_options():
    first, second = random(2, 6, 4)
    pair = alone({"anchor": first, "positive": second}, params={"scale": jnp.float32(3.0)})
    contrast = term("info_nce", (("symmetric", False), ("similarity", "dot")))
    numbers = {"info_nce": {"weight": 2.0, "temperature": 0.5, "hard_negative_weight": 1.0}}
    numbers |= {"scale": {"weight": 0.5, "power": 2}}
    loss = jnp.mean(info_nce(first, second, None, jnp.arange(6), temperature=0.5, similarity="dot"))
    scale = Term(Scale(), (("sign", -1),))
    assert total([(scale, pair)], numbers) == -4.5
    np.testing.assert_allclose(total([(contrast, pair), (scale, pair)], numbers), 2.0 * loss - 4.5, rtol=1e-6)
    assert total([], {}) == 0


SIZES, WEIGHTS = (8, 5, 2), np.float32([1, 0.5, 2])


def test_at_several_sizes_value_and_gradient_are_the_weighted_sum_of_their_losses():
    """As `MatryoshkaLoss` of sentence-transformers has it around two losses of it."""
    scores = np.float32([0, 1, 0.5, 0.5, 0.3, 0.9])
    terms = [INFO_NCE, term("cosent")]
    numbers = {"info_nce": {"weight": 1.0, "temperature": 0.05, "hard_negative_weight": 1.0}}
    numbers |= {"cosent": {"weight": 0.5, "temperature": 0.05}}

    def ours(rows):
        seen = alone({"anchor": rows[0], "positive": rows[1]}, score=jnp.asarray(scores))
        return total([(each, seen) for each in terms], numbers, SIZES, jnp.asarray(WEIGHTS))

    def equation(rows):
        found = 0.0
        for size, weight in zip(SIZES, WEIGHTS, strict=True):
            one, other = (x[:, :size] / np.linalg.norm(x[:, :size], axis=1, keepdims=True) for x in rows)
            s = one @ other.T / 0.05
            contrast = np.mean(np.log(np.exp(s).sum(axis=1)) - np.diag(s))
            higher = scores[:, None] > scores
            found += weight * (contrast + 0.5 * np.log(1 + np.sum(np.exp(np.diag(s) - np.diag(s)[:, None])[higher])))
        return found

    assert_is_equation(ours, equation, random(2, 6, 8))


def test_losses_of_tokens_count_once_at_several_sizes():
    one, other = random(2, 6, 8)
    seen = alone({"anchor": one, "positive": other}, tokens=(jnp.full(6, 2.0), jnp.full(6, 1)))
    terms, numbers = [(term("mlm"), seen)], {"mlm": {"weight": 0.5}}
    assert total(terms, numbers, SIZES, jnp.asarray(WEIGHTS)) == total(terms, numbers) == 1
