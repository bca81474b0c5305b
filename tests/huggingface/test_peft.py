import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support import CONFIGS, random_batch, write_model
from support.models import edit_json
from support.recorded import recorded

from simcse_jax.errors import UserError
from simcse_jax.huggingface import peft as ours
from simcse_jax.huggingface.load import load
from simcse_jax.huggingface.peft import CONFIG, KINDS, WEIGHTS, linear_maps, read_adapter, sites
from simcse_jax.models import lora, parameters
from simcse_jax.models.config import EncoderConfig, Lora, Partial, Site
from simcse_jax.models.sentence_encoder import build


def adapter_of(folder, target, targets=("all-linear",), frozen_layers=0, rank=3):
    model = load(str(folder))
    own = Lora(rank, 7.5, sites(model.config, targets, "targets"))
    encoder = dataclasses.replace(model.config, partial=Partial(False, frozen_layers, own))
    generator = np.random.default_rng(5)
    fresh = lora.fresh(encoder, jax.random.key(0))
    params = {name: generator.normal(0, 0.15, value.shape).astype(np.float32) for name, value in fresh.items()}
    target.mkdir()
    ours.write_adapter(params, encoder, target, base=str(folder), sha=ours.base_fingerprint(model.params), dropout=0.1)
    return model, encoder, params


@pytest.fixture(scope="module")
def written(tiny_bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapter") / "adapter"
    return folder, *adapter_of(tiny_bert, folder, ("query", "output.dense"), frozen_layers=1)


def test_what_is_written_is_read_back_also_of_a_larger_class_without_products_of_its_pooler(written, tmp_path):
    folder, model, encoder, params = written
    found = read_adapter(str(folder), encoder, model)
    assert found.keys() == params.keys() and len(found) == 6
    for name, value in params.items():
        np.testing.assert_array_equal(found[name], value)
    config = json.loads((folder / CONFIG).read_text())
    assert (config["r"], config["lora_alpha"], config["peft_type"]) == (3, 7.5, "LORA")
    keys = load_file(folder / WEIGHTS)
    assert keys["base_model.model.encoder.layer.1.attention.self.query.lora_A.weight"].shape == (3, 32)
    other = shutil.copytree(folder, tmp_path / "other")
    (other / "simcse_jax.json").unlink()
    tensors = load_file(other / WEIGHTS)
    save_file({name.replace("model.encoder", "model.bert.encoder"): x for name, x in tensors.items()}, other / WEIGHTS)
    assert read_adapter(str(other), encoder, model).keys() == params.keys()
    assert read_adapter(str(other), encoder, dataclasses.replace(model, name="me/tiny-bert@refs/pr/1"))
    with pytest.raises(UserError, match=r"base_model_name_or_path is '.*tiny-bert', but config.model.init_from is 'x'"):
        read_adapter(str(other), encoder, dataclasses.replace(model, name="x"))
    edit_json(other / CONFIG, base_model_name_or_path=None)
    with pytest.raises(UserError, match=r"base_model_name_or_path is None, but config.model.init_from is "):
        read_adapter(str(other), encoder, model)
    head = {"head.kernel": np.ones((32, 32)), "head.bias": np.ones(32)}
    with_head = dataclasses.replace(model, params={**model.params, **head})
    assert with_head.has_head and not model.has_head
    for module, base, is_refused in (
        *(("pooler.dense", model, False), ("pooler.dense", with_head, True)),
        *(("embeddings_project", model, True), ("encoder.layer.2.output.dense", model, True)),
    ):
        other = shutil.copytree(folder, tmp_path / "other", dirs_exist_ok=True)
        more = {f"base_model.model.{module}.{kind}.weight": np.ones((3, 32), np.float32) for kind in KINDS}
        save_file(load_file(folder / WEIGHTS) | more, other / WEIGHTS)
        if is_refused:
            with pytest.raises(UserError, match=f"'{module}.*"):
                read_adapter(str(other), encoder, base)
        else:
            assert read_adapter(str(other), encoder, base).keys() == params.keys()


def test_an_adapter_of_another_model_or_of_another_kind_is_refused(written, tmp_path):
    refused = {"peft_type": "IA3", "use_dora": True, "use_rslora": True, "modules_to_save": ["pooler"], "r": 8}
    refused |= {"alora_invocation_tokens": [1], "of_a_later_peft": {"x": 1}, "init_lora_weights": "pissa_niter_4"}
    refused |= {"rank_pattern": {"query": 4}, "bias": "all", "lora_alpha": 16}
    folder, model, encoder, _ = written
    word = {parameters.WORD_EMBEDDING: np.asarray(model.params[parameters.WORD_EMBEDDING]) + 1}
    fewer = dataclasses.replace(encoder, partial=dataclasses.replace(encoder.partial, frozen_layers=0))
    wide, damaged = (shutil.copytree(folder, tmp_path / name) for name in ("wide", "damaged"))
    save_file({name: np.repeat(x, 2, axis=-1) for name, x in load_file(folder / WEIGHTS).items()}, wide / WEIGHTS)
    (damaged / WEIGHTS).write_bytes(b"none")
    for given, own, base, message in (
        (model.folder, encoder, model, r"adapter_config\.json"),
        (folder, encoder, dataclasses.replace(model, params={**model.params, **word}), "has other weights"),
        (folder, fewer, model, r"'encoder\.layer\.0\..*' is missing"),
        (wide, encoder, model, "has shape"),
        (damaged, encoder, model, WEIGHTS),
    ):
        with pytest.raises(UserError, match=message):
            read_adapter(str(given), own, base)
    with pytest.raises(UserError, match="is an adapter, without the model that it belongs to"):
        load(str(folder))
    for field, value in refused.items():
        other = shutil.copytree(folder, tmp_path / field)
        edit_json(other / CONFIG, **{field: value})
        with pytest.raises(UserError, match=f"{CONFIG}: {field} is "):
            read_adapter(str(other), encoder, model)


def states_of(model, ids, mask):
    import torch

    with torch.no_grad():
        found = model.eval()(input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask))
    return found.last_hidden_state.numpy() * mask[..., None]


FIRST = ("albert", "modernbert")  # the others are live alone
OPENED = [*((kind, False) for kind in FIRST), *(pytest.param(kind, True, marks=pytest.mark.slow) for kind in CONFIGS)]


@pytest.mark.exact
@pytest.mark.parametrize(("kind", "live"), OPENED)
def test_peft_opens_it_and_ours_opens_pefts(kind, live, tmp_path):
    base = write_model(tmp_path / "base", kind)
    model, encoder, params = adapter_of(base, tmp_path / "adapter")
    ids, mask = (part[:, 0] for part in random_batch(3, 9))
    ids = np.minimum(ids, 25)
    graph, _ = build(encoder, with_head=False)
    of_encoder = {name: value for name, value in model.params.items() if name.startswith("encoder.")}
    run = jax.jit(lambda params: parameters.merge(graph, params).encoder(ids, mask)[-1] * mask[..., None])

    def opened_by_peft():
        import peft
        from transformers import AutoModel

        plain = AutoModel.from_pretrained(base, attn_implementation="eager")
        before = states_of(plain, ids, mask)
        found = states_of(peft.PeftModel.from_pretrained(plain, tmp_path / "adapter"), ids, mask)
        assert np.abs(before - found).max() > 0.05
        return {"states": found}

    theirs = recorded(f"peft/{kind}", opened_by_peft, "torch", "peft", live=live)
    np.testing.assert_allclose(run(of_encoder | params), theirs["states"], atol=1e-5)
    if live:
        import peft
        from transformers import AutoModel

        auto = peft.AutoPeftModelForFeatureExtraction.from_pretrained(tmp_path / "adapter", attn_implementation="eager")
        np.testing.assert_array_equal(states_of(auto, ids, mask), theirs["states"])
        targets = json.loads((tmp_path / "adapter" / CONFIG).read_text())["target_modules"]
        targets = sorted({".".join(name.split(".")[-2:]) for name in targets})
        fields = peft.LoraConfig(r=3, lora_alpha=7.5, target_modules=targets, init_lora_weights=False)
        fresh = peft.get_peft_model(AutoModel.from_pretrained(base, attn_implementation="eager"), fields)
        fresh.save_pretrained(tmp_path / "theirs")
        read = read_adapter(str(tmp_path / "theirs"), encoder, model)
        np.testing.assert_allclose(run(of_encoder | read), states_of(fresh, ids, mask), atol=1e-5)


def chosen(kind, *targets):
    encoder = EncoderConfig.from_hugging_face(CONFIGS[kind], "test")
    known = {site: name for name, site in linear_maps(kind).items()}
    return [known[site] for site in sites(encoder, targets, "field")]


def test_a_target_is_the_end_of_a_name_by_default_queries_and_values_and_another_is_refused():
    assert chosen("bert", "query", "value") == ["attention.self.query", "attention.self.value"]
    assert chosen("bert", "output.dense") == ["attention.output.dense", "output.dense"]  # as in PEFT
    assert chosen("bert", "dense") == ["attention.output.dense", "intermediate.dense", "output.dense"]
    assert chosen("modernbert", "Wo", "Wqkv") == ["attn.Wqkv", "attn.Wo", "mlp.Wo"]
    assert chosen("bert", "all-linear") == list(linear_maps("bert"))
    usual = {"roberta": "attention.self.query attention.self.value", "mpnet": "attention.attn.q attention.attn.v"}
    usual |= {"distilbert": "attention.q_lin attention.v_lin", "albert": "attention.query attention.value"}
    usual |= {"modernbert": "attn.Wqkv", "nomic_bert": "self_attn.q_proj self_attn.v_proj"}
    assert {kind: " ".join(chosen(kind)) for kind in usual} == usual
    wrong = {"quer": ("bert", "query"), "0.query": ("bert", "query")}
    for target, (kind, nearest) in (wrong | {"all": ("bert", ""), "query": ("modernbert", "")}).items():
        hint = f"; the nearest one is {nearest}" if nearest else ""
        with pytest.raises(UserError, match=f"field: '{target}' is not a linear map .* type {kind}{hint}; there are "):
            chosen(kind, "all-linear", target)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CONFIGS)
def test_transformers_has_these_modules_and_no_others_in_its_layers(kind):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    model = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(**CONFIGS[kind]))
    stack = ours.module_of(kind, 0, Site("output")).partition(".0.")[0]
    found = {name for name, each in model.named_modules() if isinstance(each, torch.nn.Linear) and f"{stack}.0" in name}
    assert found == {ours.module_of(kind, 0, site) for site in linear_maps(kind).values()}
