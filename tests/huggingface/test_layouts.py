"""The layouts of well-known models: `docs/guides/models.md` says what each one opens as, and these tests check it."""

import dataclasses
import json
import re

import numpy as np
import pytest
from support import CASES, CONFIGS, DATA, MINILM, ROOT
from support.layouts import LAYOUTS, sentences_of_scripts, write_layout, write_tokenizer
from support.models import edit_json
from tokenizers import Tokenizer as Backend
from tokenizers.processors import TemplateProcessing

from simcse_jax.huggingface.load import choose_pooler, load
from simcse_jax.huggingface.published import PUBLISHED, encoder_config
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.huggingface.write import write_model
from simcse_jax.models.config import EncoderConfig
from simcse_jax.simcse import SimCSE

POOLERS = {"mean_tokens": "avg", "cls_token": "cls", "": "cls", "lasttoken": "last"}


@pytest.fixture(params=LAYOUTS)
def opened(request, tmp_path):
    return request.param, write_layout(tmp_path / request.param, LAYOUTS[request.param])


def test_each_opens_with_the_pooler_the_head_and_the_prompts_of_its_files(opened):
    name, folder = opened
    layout, model = LAYOUTS[name], load(str(folder))
    assert not model.refusal and choose_pooler(model, None) == (POOLERS[layout.pooling], layout.dense == 32)
    assert (model.normalize, model.max_length) == (layout.normalize, layout.length)
    after = (layout.dense == 16) + len(layout.linear)
    assert [type(module).__name__ for module in model.config.modules] == ["Dense"] * after
    prompts = ({k: text for k, text in each.items() if text} for each in (model.settings.prompts, layout.prompts))
    assert next(prompts) == next(prompts)
    assert (model.language_model is not None) == ("MaskedLM" in layout.architecture)
    (ids,) = model.tokenizer(["the cat что"], 16)
    assert 3 < len(ids) < 16 and model.tokenizer.pad([ids], 16)[1].sum() == len(ids)


TOKENIZED = ("albert/albert-base-v2", "google/electra-small-generator")
# Of the others one for each model type and kind of tokenizer.
OTHERS = {(layout.model_type, layout.tokenizer): name for name, layout in LAYOUTS.items() if name not in TOKENIZED}
OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in OTHERS.values()]
TOKENIZERS = {layout.tokenizer: name for name, layout in LAYOUTS.items()}


@pytest.mark.parametrize("name", [*TOKENIZED, *OTHERS])
def test_tokens_are_those_of_transformers_in_ten_scripts_and_after_an_export(name, tmp_path):
    from transformers import AutoTokenizer

    folder = write_layout(tmp_path / "model", LAYOUTS[name])
    model = dataclasses.replace(load(str(folder)).without_modules(), normalize=False, pooler="avg")
    (tmp_path / "export").mkdir()
    write_model(model, tmp_path / "export")
    texts = sentences_of_scripts(600)
    if (DATA / "wiki_sample.txt").is_file():
        texts += (DATA / "wiki_sample.txt").read_text(encoding="utf-8").splitlines()[:500]
    theirs = AutoTokenizer.from_pretrained(folder)(texts, truncation=True, max_length=64)["input_ids"]
    exported = AutoTokenizer.from_pretrained(tmp_path / "export")(texts, truncation=True, max_length=64)["input_ids"]
    for ours in (model.tokenizer(texts, 64), load(str(tmp_path / "export")).tokenizer(texts, 64), exported):
        differing = [text for text, mine, other in zip(texts, ours, theirs, strict=True) if list(mine) != other]
        assert not differing, differing[:3]
    assert len({tuple(ids) for ids in theirs}) > 0.76 * len(texts)  # they are no rows of unknown tokens


@pytest.mark.slow
@pytest.mark.parametrize("name", [MINILM, *TOKENIZERS.values()])
def test_tokens_of_shared_sentences_are_those_of_transformers(name, tmp_path, senteval, request):
    """Of 20,000 for each kind of tokenizer."""
    from transformers import AutoTokenizer

    files = sorted(path for path in DATA.rglob("*") if path.is_file())
    lines = (line for path in files for line in path.read_bytes().decode("utf-8", "replace").splitlines())
    texts = list(dict.fromkeys(part for line in lines for part in line.split("\t") if " " in part))
    texts = [texts[place] for place in np.random.default_rng(len(name)).permutation(len(texts))[:20_000]]
    own = request.getfixturevalue("minilm") if name == MINILM else write_layout(tmp_path / "model", LAYOUTS[name])
    model = load(str(own))
    theirs = AutoTokenizer.from_pretrained(model.folder)(texts, truncation=True, max_length=64)["input_ids"]
    ours = model.tokenizer(texts, 64)
    assert not [text for text, mine, other in zip(texts, ours, theirs, strict=True) if list(mine) != other]


def rows() -> dict[str, list[str]]:
    text = (ROOT / "docs" / "guides" / "models.md").read_text(encoding="utf-8")
    lines = [re.findall(r"[^|]+", line) for line in text.splitlines() if line.startswith("| `")]
    return {name: [x.strip() for x in cells] for cells in lines for name in re.findall(r"`([^`]+/[^`]+)`", cells[0])}


def test_the_documentation_has_a_line_for_each_layout_whose_shape_is_known_without_its_files():
    table = rows()
    page = (ROOT / "docs" / "guides" / "models.md").read_text(encoding="utf-8")
    assert sum(line.startswith("| `") for line in page.partition("## What is refused")[0].splitlines()) == len(LAYOUTS)
    for name, layout in LAYOUTS.items():
        _, model_type, pooler, head, length, prompts = table[name][:6]
        assert model_type == f"`{layout.model_type}`", name
        assert pooler.startswith(f"`{POOLERS[layout.pooling]}`") and ("unit length" in pooler) == layout.normalize, name
        assert ("–" not in head) == bool(layout.dense or layout.linear) and length.isdigit(), name
        assert all(f"`{prompt}`" in prompts for prompt in layout.prompts), name
    for name, (_, model_type, _, _, length, *_) in rows().items():
        if name not in PUBLISHED:
            continue
        config = encoder_config(name)
        assert (f"`{config.model_type}`", config.max_length >= int(length)) == (model_type, True), name


# By the page's row: a tokenizer, what its file puts around a text, `add_eos_token`, and what is around it then.
DECODERS = {
    "Qwen3-Embedding": ("qwen3", "qwen", "$A <|endoftext|>", True, "$A <|endoftext|>"),
    "EmbeddingGemma": ("gemma3_text", "gemma", "<bos> $A <eos>", True, "<bos> $A <eos>"),
    "an end token alone": ("gemma3_text", "gemma", "$A <eos>", False, "$A <eos>"),  # read in both directions
    "E5-Mistral": ("mistral", "llama", "<s> $A", True, "<s> $A </s>"),
    "base Llama, Mistral, Gemma 3": ("llama", "llama", "<s> $A", False, "<s> $A"),
    "base Qwen2, Qwen3": ("qwen2", "qwen", "$A", True, "$A <|im_end|>"),
}


@pytest.mark.parametrize("row", DECODERS)
def test_a_decoder_opens_as_the_page_says(row, tmp_path):
    model_type, kind, single, flag, expected = DECODERS[row]
    assert f"| {row} |" in (ROOT / "docs/guides/models.md").read_text(encoding="utf-8") or row == "an end token alone"
    fields = CONFIGS[model_type] | {"vocab_size": write_tokenizer(tmp_path, kind)}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    backend = Backend.from_file(str(tmp_path / "tokenizer.json"))
    special = [(token, backend.token_to_id(token)) for token in single.split() if token != "$A"]
    backend.post_processor = TemplateProcessing(single=single, special_tokens=special)
    backend.save(str(tmp_path / "tokenizer.json"))
    edit_json(tmp_path / "tokenizer_config.json", add_eos_token=flag)
    tokenizer = Tokenizer(tmp_path, EncoderConfig.from_hugging_face(fields, "test"))
    for text, inner in (("", 0), ("cat" * 50, 9 - len(expected.split()))):  # cut at 8
        tokens = [tokenizer.token(number) for number in tokenizer([text], 8)[0]]
        place = expected.split().index("$A")
        assert " ".join([*tokens[:place], "$A", *tokens[place + inner :]]) == expected


def test_e5_mistral_as_published_reads_its_end_token():
    if not CASES.is_dir():
        pytest.skip("shared/cases is not here")
    folder, text = CASES / "e5_mistral_without_end_token", "the cat sat on the mat"
    right = Backend.from_file(str(folder / "tokenizer.json")).encode(f"{text}</s>").ids
    assert load(str(folder)).tokenizer([text], 64)[0].tolist() == right


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, layout in LAYOUTS.items() if layout.pooling])
def test_embeddings_are_those_of_sentence_transformers(name, tmp_path):
    pytest.importorskip("torch")
    from sentence_transformers import SentenceTransformer

    folder = str(write_layout(tmp_path / "model", LAYOUTS[name]))
    texts = ["the cat что", "", "Élan ﬁ ...", "นก一丁", "a " * 100]
    theirs = SentenceTransformer(folder, device="cpu").encode(texts)
    np.testing.assert_allclose(theirs, SimCSE(folder).encode(texts), atol=1e-5)
