import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import CONFIGS, call, random_model, succeeded, train_args, write_model
from support.gradients import assert_same, compiled, computed
from support.recorded import recorded
from support.resuming import trained_and_resumed
from support.steps import BATCH, recipe, settings

from simcse_jax.config.checks import validate
from simcse_jax.config.flags import parse
from simcse_jax.errors import UserError
from simcse_jax.huggingface.peft import module_of, sites
from simcse_jax.huggingface.tokenizer import MARKER
from simcse_jax.huggingface.weight_names import to_tensors
from simcse_jax.models import lora, partial
from simcse_jax.models.changes import Retemplated
from simcse_jax.models.config import EncoderConfig, Lora, Partial, Template
from simcse_jax.models.sentence_encoder import build
from simcse_jax.runs.dynamics import checkpoint_encoders
from simcse_jax.simcse import SimCSE
from simcse_jax.training.run import read_inputs

MASK = 39
TEMPERATURE = 0.5  # at 0.05 rounding is ten times as large
NUMBERS = {"info_nce": {"weight": 1.0, "temperature": TEMPERATURE, "hard_negative_weight": 1.0}}
FIRST, SECOND = Template((2, 4, 5), (6, MASK, 7, 3)), Template((2, 8), (9, 10, MASK, 7, 3))
WORDS = [[int(word) for word in np.random.default_rng(row).integers(11, MASK, 3 + 2 * row % 7)] for row in range(BATCH)]
LIVE = [("bert", "paper"), ("roberta", "paper"), ("roberta", "released"), ("bert", "none")]
LIVE = [pytest.param(*each, True, marks=[pytest.mark.slow, pytest.mark.optimized]) for each in LIVE]


def around(template, words=()):
    return [*template.before, *words, *template.after]


def padded(rows, pad=0, places=0):
    longest = places or max(map(len, rows))
    mask = np.array([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return np.array([row + [pad] * (longest - len(row)) for row in rows]), mask


def prompt_bert(denoising, **changes):
    plan = {"positive_change": Retemplated(FIRST, SECOND), "template": FIRST, "positive_template": SECOND}
    return recipe(1, changed=plan | {"denoising": denoising}, **changes)._replace(pooler="mask_token")


def model_of(model_type):
    _, params, config = random_model(model_type, num_layers=1)
    for name in (name for name in params if name.endswith("attention_output.kernel")):
        params[name] = params[name] * 8  # what a sentence adds to its template must not be lost in rounding
    config = dataclasses.replace(config, mask_token_id=MASK)
    return build(config, with_head=True)[0], jax.tree.map(jnp.asarray, params), config


def data_of(config, words=WORDS):
    places = FIRST.size + max(map(len, WORDS))
    ids, mask = padded([around(FIRST, each) for each in words], config.pad_token_id, places)
    index = np.arange(BATCH, dtype=np.int32)
    return {"input_ids": np.int32(ids)[:, None], "attention_mask": np.int32(mask)[:, None], "index": index}


@functools.cache
def prompt_bert_s(model_type="bert", denoising="paper", devices=1, **changes):
    graph, params, config = model_of(model_type)
    function = compiled(graph, prompt_bert(denoising, **changes), devices)

    def loss_and_gradient(words=WORDS, bias=0.0, **numbers):
        own = params | {"head.bias": params["head.bias"] + bias}
        return computed(function, own, data_of(config, words), settings(objective=NUMBERS, **numbers))

    return loss_and_gradient


def their_loss(model_type, params, config, denoising):
    """PromptBERT in PyTorch, in float64: sentences are lists of tokens, and a template alone is encoded for each."""
    import torch
    import transformers

    kind = {"bert": "Bert", "roberta": "Roberta"}[model_type]
    fields = CONFIGS[model_type] | {"num_hidden_layers": 1}
    own = getattr(transformers, f"{kind}Config")(**fields, attn_implementation="eager")
    encoder = getattr(transformers, f"{kind}Model")(own, add_pooling_layer=False).eval()
    tensors = {name: torch.tensor(np.array(value)) for name, value in to_tensors(dict(params), config).items()}
    encoder.load_state_dict(tensors, strict=False)
    encoder = encoder.double()
    head = torch.nn.Linear(config.hidden_size, config.hidden_size).double()
    head.weight.data = torch.tensor(np.array(params["head.kernel"])).double().T.contiguous()
    head.bias.data = torch.tensor(np.array(params["head.bias"])).double()

    def masks_of(ids, mask, positions=None):
        ids, mask = torch.tensor(ids), torch.tensor(mask)
        positions = None if positions is None else torch.tensor(positions)
        return encoder(ids, mask, position_ids=positions).last_hidden_state[ids == MASK]

    views = []
    for template in (FIRST, SECOND):
        found = masks_of(*padded([around(template, words) for words in WORDS], config.pad_token_id))
        if denoising != "none":
            first = config.pad_token_id + 1 if (model_type, denoising) == ("roberta", "paper") else 0
            before = len(template.before)
            places = [[*range(before), *range(before + len(row), template.size + len(row))] for row in WORDS]
            alone = np.array([around(template)] * BATCH)
            found = found - masks_of(alone, np.ones((BATCH, template.size), int), np.array(places) + first)
        views.append(torch.tanh(head(found)))
    cosines = torch.nn.functional.cosine_similarity(views[0][:, None], views[1][None], dim=-1)
    loss = torch.nn.functional.cross_entropy(cosines / TEMPERATURE, torch.arange(BATCH))
    loss.backward()
    theirs = dict(encoder.named_parameters()) | {f"head.{name}": value for name, value in head.named_parameters()}
    return {"loss": loss.item()} | {name: np.float32(value.grad) for name, value in theirs.items()}


@pytest.mark.parametrize(("model_type", "denoising", "live"), [("bert", "paper", False), *LIVE])
def test_the_loss_of_prompt_bert_and_its_gradient_are_pytorch_s(model_type, denoising, live):
    _, params, config = model_of(model_type)
    compute = lambda: their_loss(model_type, params, config, denoising)  # noqa: E731
    theirs = recorded("prompt-bert", compute, "torch", "transformers", live=live)
    ours, gradient = prompt_bert_s(model_type, denoising)(dropout=0.0)
    assert ours == pytest.approx(float(theirs.pop("loss")), rel=1e-5)
    encoder = {name: value for name, value in gradient.items() if name.startswith("encoder.")}
    found = to_tensors(encoder, EncoderConfig.from_hugging_face(CONFIGS[model_type], "test"))
    found |= {"head.weight": gradient["head.kernel"].T, "head.bias": gradient["head.bias"]}
    assert theirs.keys() == found.keys()
    floor = max(np.abs(value).max() for value in theirs.values()) / 100  # rounding is that of larger terms
    for name, value in found.items():
        limit = 1e-5 * max(np.abs(theirs[name]).max(), floor)
        assert np.abs(np.asarray(value) - theirs[name]).max() <= limit, name


@pytest.mark.slow
@pytest.mark.optimized
def test_the_loss_of_prompt_eol_and_the_gradient_of_its_lora_are_pytorch_s():
    """In float64 each sentence by itself, its last place, W + α/r (A B)ᵀ."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    _, base, config = random_model("llama", with_head=False, num_layers=1)
    own = Partial(lora=Lora(2, 3.0, sites(config, ("all-linear",), "targets")))
    config, generator = dataclasses.replace(config, partial=own), np.random.default_rng(1)
    trained = {
        name: generator.normal(0, 0.15, value.shape).astype(np.float32)
        for name, value in lora.fresh(config, jax.random.key(0)).items()
    }
    template = Template((2, 4, 5, 6), (7, 8, 9))
    rows = [around(template, WORDS[(row + 3 * column) % BATCH]) for row in range(BATCH) for column in range(3)]
    fields = transformers.LlamaConfig(**CONFIGS["llama"] | {"num_hidden_layers": 1}, attn_implementation="eager")
    model = transformers.LlamaModel(fields).double().eval()
    weights = {name: torch.tensor(np.array(x)).double() for name, x in to_tensors(dict(base), config).items()}
    theirs = {name: torch.tensor(value).double().requires_grad_() for name, value in trained.items()}
    for (layer, site), (a, b) in lora.names(config).items():
        weights[f"{module_of('llama', layer, site)}.weight"] += config.lora.scale * (theirs[a] @ theirs[b]).T
    found = [torch.func.functional_call(model, weights, (torch.tensor([row]),)) for row in rows]
    views = torch.stack([each.last_hidden_state[0, -1] for each in found]).reshape(BATCH, 3, -1)
    others = torch.cat([views[:, 1], views[:, 2]])
    cosines = torch.nn.functional.cosine_similarity(views[:, :1], others[None], dim=-1)
    expected = torch.nn.functional.cross_entropy(cosines / TEMPERATURE, torch.arange(BATCH))
    expected.backward()
    ids, mask = (np.int32(part.reshape(BATCH, 3, -1)) for part in padded(rows))
    data = {"input_ids": ids, "attention_mask": mask, "index": np.arange(BATCH, dtype=np.int32)}
    chosen, graph = recipe(3)._replace(pooler="last", use_head=False), build(config, with_head=False)[0]
    numbers = settings(objective=NUMBERS, dropout=0.0, lora_dropout=0.0)
    found = computed(compiled(graph, chosen), trained, data, numbers, partial.in_step(base))
    gradients = {name: value.grad.numpy() for name, value in theirs.items()}
    assert_same(found, (expected.item(), gradients), summands=dict.fromkeys(gradients, 0.0))
    assert len(gradients) == 14


@pytest.mark.slow
@pytest.mark.exact
def test_the_loss_and_its_gradient_are_the_same_on_several_devices_and_in_chunks():
    loss, gradient = prompt_bert_s()()
    again, found = prompt_bert_s(devices=2, chunk_size=2, most_tokens=(40,))()
    assert again == pytest.approx(loss, rel=1e-5)
    for name, value in gradient.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5 * np.abs(value).max() + 1e-9, err_msg=name)


@pytest.mark.exact
@pytest.mark.slow
def test_a_template_alone_has_dropout_masks_of_its_own_and_the_shift_of_the_last_layer_is_no_part_of_it():
    """A sentence without words is its template alone: without dropout nothing is left of it but the head's bias."""
    nothing, alone = [[] for _ in range(BATCH)], prompt_bert_s()
    assert alone(nothing, bias=0.5, dropout=0.0)[0] == pytest.approx(np.log(BATCH), abs=1e-5)
    assert abs(alone(nothing, bias=0.5)[0] - np.log(BATCH)) > 0.01
    _, gradient = alone()
    assert not np.any(gradient["encoder.layers.0.output_norm.bias"])
    chosen = prompt_bert("paper")
    assert chosen.ignores_shift and not chosen._replace(pooler="avg_sqrt").ignores_shift
    assert not prompt_bert("none").ignores_shift
    plain = recipe(1)  # ids of words reach a step that looks for mask tokens or encodes a template
    assert not plain.reads_words and plain._replace(pooler="mask_token").reads_words
    assert plain._replace(plan=plain.plan._replace(template=FIRST, denoising="paper")).reads_words
    assert not plain._replace(plan=plain.plan._replace(template=FIRST)).reads_words


EOL = ["--config.model.template=the cat [X] sat on mat", "--config.model.pooler=last", "--config.model.mlp=none"]
MASKED = ["--config.model.template=the cat [X] sat on [MASK].", "--config.model.pooler=mask_token"]
PROMPT_BERT = [*MASKED, "--config.views.positive_template=a dog [X] [MASK]", "--config.views.denoising=paper"]
PARALLEL = ["--config.parallel.devices=2", "--config.parallel.chunk_size=3"]
SENTENCES = ["the cat", "A man is here.", "", "the cat sits on a man " * 20]


def exported_as_it_is(workdir, output):
    """The run's model and its export, which give the same embeddings of texts alone."""
    succeeded(call("export", "--workdir", workdir, "--output", output))
    run, export = SimCSE(str(workdir)), SimCSE(str(output))
    with pytest.warns(UserWarning, match="1 sentence was longer than 64 tokens"):
        np.testing.assert_array_equal(run.encode(SENTENCES), export.encode(SENTENCES))
    return run


@pytest.mark.slow
def test_a_model_keeps_its_template_in_every_use(masked_bert, corpus, tmp_path):
    nothing, workdir = ["--config.train.max_steps=0", "--config.train.epochs=0"], tmp_path / "run"
    done = succeeded(call("train", *train_args(masked_bert, corpus["txt"], corpus["dev"], workdir, *MASKED, *nothing)))
    run = exported_as_it_is(workdir, tmp_path / "model")
    plain = SimCSE(str(masked_bert))
    texts = [f"the cat {sentence} sat on [MASK]." for sentence in SENTENCES[:3]]
    for found, tokens in zip(run.encode(SENTENCES[:3]), plain.encode_tokens(texts, with_tokens=True), strict=True):
        np.testing.assert_allclose(found, tokens.embeddings[tokens.tokens.index("[MASK]")], atol=1e-6)
    served = run.batch_encoder()
    shape, _ = served.choose(served.row_length(served.tokenize(["the cat"])[0]), [10])
    np.testing.assert_allclose(served.encode(served.tokenize(["the cat"]), shape)[0], run.encode("the cat"), atol=1e-6)
    (workdir / "checkpoints" / "0").rename(workdir / "checkpoints" / "1")
    start = next(checkpoint_encoders(workdir)).embed  # made again, since it is not there
    np.testing.assert_allclose(start(SENTENCES[:3]), run.encode(SENTENCES[:3]), atol=1e-6)
    done = call("evaluate", "--model", tmp_path / "model", "--data", corpus["dev"])
    scored = json.loads((workdir / "result.json").read_text())["dev"]["spearman"]
    assert done.returncode == 0 and f"{scored:.2f}" in done.stdout
    with pytest.raises(UserError, match="8 tokens leave no room for a sentence: the model's template alone has 8"):
        run.encode("the cat", max_length=8)


def test_templates_that_do_not_fit_are_refused(tiny_bert, corpus):
    long = {"model.template": "the [X]", "views.positive_template": "a dog [X]", "data.max_length": 64}
    for fields, named in (
        ({"model.template": "the [X] [MASK]"}, "mask token, .* template"),
        ({"model.pooler": "mask_token"}, "mask_token: .*tiny-bert"),
        ({"views.denoising": "paper"}, "config.views.denoising='paper': .*tiny-bert"),
        ({"model.template": "the cat [X] sat on mat", "data.max_length": 7}, "config.data.max_length=7: .* 7 tokens"),
        (long, "config.views.positive_template='a dog .X.': .* 65 tokens"),
    ):
        more = [f"--config.{name}={value}" for name, value in fields.items()]
        with pytest.raises(UserError, match=named):
            read_inputs(validate(parse(train_args(tiny_bert, corpus["txt"], "", "w", *more))[0]))


@pytest.mark.slow
@pytest.mark.parametrize("system", ["prompt_bert", "prompt_eol"])
def test_a_run_resumes_bit_for_bit_and_its_export_opens_in_sentence_transformers(system, masked_bert, corpus, tmp_path):
    there = pytest.importorskip("sentence_transformers")
    lora = ["--config.model.lora.rank=2", "--config.model.lora.targets=all-linear", "--config.model.lora.dropout=0.1"]
    model = masked_bert if system == "prompt_bert" else write_model(tmp_path / "llama", "llama")
    more = PROMPT_BERT if system == "prompt_bert" else [*EOL, *lora, *PARALLEL]
    short = ("model.num_layers=1", "eval.every=2", "train.max_steps=4", "parallel.devices=2")
    more = [*more, *(f"--config.{field}" for field in short)]
    config, _ = parse(train_args(model, corpus["txt"], corpus["dev"], "w", *more))
    trained_and_resumed(config, tmp_path)
    run = exported_as_it_is(tmp_path / "run", tmp_path / "model")
    theirs = there.SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(SENTENCES)
    ours, _ = run.encode_counted(SENTENCES)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    (tmp_path / "model" / MARKER).unlink()  # as after another program
    again, _ = SimCSE(str(tmp_path / "model")).encode_counted(SENTENCES)
    np.testing.assert_array_equal(again, ours)
