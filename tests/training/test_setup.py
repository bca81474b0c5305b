from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.configs import config_of

from simcse_jax.config.fields import default_config, numbers_of_step
from simcse_jax.data.batches import Batches, Corpus
from simcse_jax.devices.mesh import place
from simcse_jax.errors import UserError
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.runs.loading import load_model
from simcse_jax.simcse import SimCSE
from simcse_jax.training.setup import check_columns, make_recipe, make_settings, make_setup


@pytest.fixture
def inputs(tiny_bert):
    model = load_model(str(tiny_bert))
    tokenizer, absent = Tokenizer(model.folder, model.config), "evaluation analysis corpus language_model generator"
    nothing = dict.fromkeys([*absent.split(), "adapter", "template", "positive_template"])
    given = {"devices": jax.devices()[:2], "num_columns": 1, "total_steps": 0}
    return SimpleNamespace(model=model, tokenizer=tokenizer, **given, **nothing)


def test_there_is_a_head_if_the_config_says_so_and_it_encodes_like_the_loaded_model(inputs, tiny_bert):
    for mlp, trained, scored in (("train", 1, 0), ("always", 1, 1), ("none", 0, 0)):
        setup = make_setup(config_of(model__mlp=mlp), inputs)
        assert ("head.kernel" in setup.state().params) == bool(trained) == setup.recipe.use_head
        assert setup.embed.use_head == bool(scored)
    setup = make_setup(config_of(model__mlp="none", train__dtype="bfloat16"), inputs)
    embed = setup.embed.with_params(jax.device_put(setup.state().params, setup.replicated))
    texts = ["the cat sat", "a dog ran home"]
    np.testing.assert_allclose(embed(texts), SimCSE(str(tiny_bert), pooler="cls").encode(texts), atol=1e-5)


def test_no_two_arrays_of_a_state_share_a_buffer_nor_one_with_the_model(inputs):
    """A step gives up the buffers of its old state: one that is there twice could be given up once only."""
    inputs.devices = inputs.devices[:1]
    state = make_setup(config_of(model__dual_encoder=True), inputs).state()
    arrays = jax.tree.leaves(state)
    assert sum(map(np.size, arrays)) > 3 * 2 * sum(map(np.size, inputs.model.params.values()))  # with both moments
    pointers = [array.addressable_data(0).unsafe_buffer_pointer() for array in arrays]
    pointers += [array.ctypes.data for array in inputs.model.params.values()]
    assert len(set(pointers)) == len(pointers)


def test_a_process_with_all_devices_leaves_placing_to_the_step_s_dispatch(inputs, monkeypatch):
    setup = make_setup(config_of(train__batch_size=4), inputs)
    corpus = Corpus(np.arange(96, dtype=np.int32).reshape(12, 1, 8), np.ones((12, 1, 8), np.int8))
    batches = Batches(corpus, 4, seed=0)
    read, by_example = setup.read(batches, 1), setup.by_example
    assert {type(value) for value in read.values()} == {np.ndarray}
    with monkeypatch.context() as patch:  # as one of several processes
        patch.setitem(vars(setup), "by_example", SimpleNamespace(is_fully_addressable=False))
        patch.setattr("simcse_jax.training.setup.place", lambda read, rows, _: place(read, rows, by_example))
        placed = setup.read(batches, 1)
    for name, value in placed.items():
        assert value.sharding == by_example
        np.testing.assert_array_equal(value, read[name])


def test_the_numbers_of_the_step_are_those_of_the_fields_table():
    made = config_of(objective__off_dropout__weight=0.5, train__learning_rate=0.25, views__noise=0.75, seed=2**32 - 1)
    settings = make_settings(made, 8)
    assert (settings["total_steps"], settings["learning_rate"], settings["noise"]) == (8, 0.25, 0.75)
    assert (int(settings["seed"]), settings["seed"].dtype) == (2**32 - 1, jnp.uint32)
    terms = {"info_nce": {"weight", "temperature", "hard_negative_weight"}}
    terms |= {"off_dropout": {"weight", "temperature", "m"}}
    assert {name: set(term) for name, term in settings["objective"].items()} == terms  # those with a weight
    flat = {name for name in settings if name not in ("total_steps", "objective")}
    names = {name.rpartition(".")[2] for name in numbers_of_step() if not name.startswith("objective.")}
    assert flat == names - {"attention_dropout", "weights", "ema_decay"}  # the others' rate, no sizes, no average
    assert make_settings(config_of(model__attention_dropout=0.25), 8)["attention_dropout"] == 0.25
    assert "attention_dropout" not in make_settings(config_of(model__attention_dropout=0.0), 8)
    drops = [make_recipe(config_of(model__attention_dropout=rate), 1).drops_attention for rate in (-1.0, 0.0, 0.25)]
    assert drops == [True, False, True]
    assert all(value.dtype == jnp.float32 for term in settings["objective"].values() for value in term.values())


def test_the_step_is_compiled_for_everything_but_numbers():
    first = make_recipe(config_of(), 1)
    assert make_recipe(config_of(train__learning_rate=1.0, objective__info_nce__temperature=1.0, seed=3), 1) == first
    assert make_recipe(config_of(eval__pooler="avg", train__warmup=0.1, train__epsilon=1e-6), 1) == first
    ((objective, options, projected),) = first.objectives
    assert objective.name == "info_nce" and not projected
    usual = {"similarity": "cosine", "symmetric": False, "negatives": "other"}
    assert dict(options) == usual | {"margin": -1.0, "hardness": 0.0, "weighted": "all"}
    changes = {"objective__info_nce__symmetric": True, "objective__barlow_twins__weight": 0.1, "model__mlp": "none"}
    changes |= {"model__pooler": "avg", "parallel__chunk_size": 4, "projector__widths": "2D,D"}
    changes |= {"views__positive": "shared", "views__positive_change": "shuffled", "views__anchor_change": "cutoff"}
    changes |= {"views__positive_dropout": 0.0, "train__optimizer": "rmsprop", "train__bias_correction": False}
    changes |= {"train__mu_dtype": "bfloat16", "train__schedule": "constant", "matryoshka__dimensions": ("8",)}
    for name, value in changes.items():
        assert make_recipe(config_of(**{name: value}), 1) != first, name
    rates = [make_recipe(config_of(views__positive_dropout=rate, views__cutoff=rate), 1) for rate in (0.0, 0.5)]
    assert rates[0] == rates[1]
    assert make_recipe(config_of(), 3) != first  # another number of columns
    fields = {"objective__barlow_twins__weight": 0.1, "objective__self_contrastive__weight": 1.0}
    fields |= {"projector__objectives": ("barlow_twins",)}
    for widths, expected in (("4096,D", {"barlow_twins"}), ("", set())):
        recipe = make_recipe(config_of(projector__widths=widths, **fields), 1)
        assert {term.name for term in recipe.objectives if term.projected} == expected
        assert (recipe.projector is not None) == bool(widths)


def test_views_differ_by_any_rate_above_zero_a_change_or_another_column():
    def check(columns=1, fewest=None, **fields):
        config = default_config()
        config.model.dropout = 0.0
        config.update_from_flattened_dict({name.replace("__", "."): value for name, value in fields.items()})
        check_columns(config, columns, columns if fewest is None else fewest)

    check(model__attention_dropout=0.1)
    check(views__positive_dropout=0.1)
    check(views__positive="off")
    check(views__positive_change="shuffled")
    check(model__dual_encoder=True)
    check(model__lora__rank=2, model__lora__dropout=0.1)
    check(views__positive="noisy")
    check(columns=2)
    templates = {"model__template": "a [X] [MASK].", "views__positive_template": "b [X] [MASK]."}
    check(**templates)
    check(objective__info_nce__weight=0.0, objective__mlm__weight=1.0)  # compares no views
    for fields in (
        {"model__attention_dropout": 0.0}, {"views__positive": "mean"}, {"model__lora__rank": 2},
        {"model__lora__dropout": 0.1},  # of products that are not there
        {"views__positive": "noisy", "views__noise": 0.0}, {"views__anchor_change": "cutoff", "views__cutoff": 0.0},
        templates | {"views__positive_template": templates["model__template"]},
    ):  # fmt: skip
        with pytest.raises(UserError, match="both views of a sentence would be the same"):
            check(**fields)
    with pytest.raises(UserError, match="both views of a sentence would be the same"):
        check(columns=3, fewest=1)  # of a mixed corpus
    ids = np.zeros((2, 3, 8), np.int32)
    assert Corpus(ids, ids).fewest_columns == 3
    assert Corpus(ids, ids, present=np.array([[True, False, False], [True] * 3])).fewest_columns == 1


def test_rows_that_lack_hard_negatives():
    config = default_config()
    check_columns(config, 5, 2)
    config.objective.margin_mse.weight = 1.0
    check_columns(config, 5, 3)
    with pytest.raises(UserError, match=r"margin_mse\.weight: needs a hard negative in every row"):
        check_columns(config, 5, 2)
    config.projector.widths = "2D,D"
    with pytest.raises(UserError, match=r"projector\.widths='2D,D': its batch norm"):
        check_columns(config, 5, 3)
