"""The layouts of well-known models: `docs/guides/models.md` says what each one opens as, and these tests check it."""

import dataclasses
import re

import numpy as np
import pytest
from support import DATA, ROOT
from support.layouts import LAYOUTS, sentences_of_scripts, write_layout

from simcse_jax.huggingface.load import choose_pooler, load
from simcse_jax.huggingface.published import encoder_config
from simcse_jax.huggingface.write import write_model
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
    assert [type(module).__name__ for module in model.config.modules] == ["Dense"] * (
        (layout.dense == 16) + len(layout.linear)
    )
    assert {name: text for name, text in model.settings.prompts.items() if text} == {
        name: text for name, text in layout.prompts.items() if text
    }
    assert (model.language_model is not None) == ("MaskedLM" in layout.architecture)
    (ids,) = model.tokenizer(["the cat что"], 16)
    assert 3 < len(ids) < 16 and model.tokenizer.pad([ids], 16)[1].sum() == len(ids)


# One for each model type and kind of tokenizer.
TOKENIZED = ("intfloat/multilingual-e5-base", "albert/albert-base-v2", "google/electra-small-generator")
OTHERS = ("sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2", "almanach/camembert-base")
OTHERS += ("distilbert/distilroberta-base", "answerdotai/ModernBERT-base", "nomic-ai/nomic-embed-text-v1.5")
OTHERS += ("Qwen/Qwen3-Embedding-0.6B", "google/embeddinggemma-300m", "intfloat/e5-mistral-7b-instruct")
OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in OTHERS]


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


def rows() -> dict[str, list[str]]:
    """The cells of the table of layouts, by hub name."""
    text = (ROOT / "docs" / "guides" / "models.md").read_text(encoding="utf-8")
    lines = [re.findall(r"[^|]+", line) for line in text.splitlines() if line.startswith("| `")]
    return {
        name: [cell.strip() for cell in cells] for cells in lines for name in re.findall(r"`([^`]+/[^`]+)`", cells[0])
    }


def test_the_documentation_has_a_line_for_each_layout_and_a_layout_for_each_line():
    table = rows()
    page = (ROOT / "docs" / "guides" / "models.md").read_text(encoding="utf-8")
    lines = page.partition("## What is refused")[0].splitlines()
    assert sum(line.startswith("| `") for line in lines) == len(LAYOUTS)
    for name, layout in LAYOUTS.items():
        _, model_type, pooler, head, length, prompts = table[name][:6]
        assert model_type == f"`{layout.model_type}`", name
        assert pooler.startswith(f"`{POOLERS[layout.pooling]}`") and ("unit length" in pooler) == layout.normalize, name
        assert ("–" not in head) == bool(layout.dense or layout.linear) and length.isdigit(), name
        assert all(f"`{prompt}`" in prompts for prompt in layout.prompts), name


# Of each kind of encoder, modules and tokenizer.
SEVERAL = ("intfloat/multilingual-e5-base", "BAAI/bge-base-en-v1.5", "sentence-transformers/LaBSE")
SEVERAL += ("sentence-transformers/distiluse-base-multilingual-cased-v2", "sentence-transformers/all-distilroberta-v1")
SEVERAL += ("sentence-transformers/paraphrase-albert-small-v2", "dangvantuan/sentence-camembert-base")
SEVERAL += ("Alibaba-NLP/gte-modernbert-base", "nomic-ai/nomic-embed-text-v1.5", "Qwen/Qwen3-Embedding-0.6B")
SEVERAL += ("google/embeddinggemma-300m", "intfloat/e5-mistral-7b-instruct")


def test_the_shape_of_each_name_is_known_without_its_files():
    for name, (_, model_type, _, _, length, *_) in rows().items():
        config = encoder_config(name)
        assert (f"`{config.model_type}`", config.max_length >= int(length)) == (model_type, True), name


@pytest.mark.slow
@pytest.mark.parametrize("name", SEVERAL)
def test_embeddings_are_those_of_sentence_transformers(name, tmp_path):
    pytest.importorskip("torch")
    from sentence_transformers import SentenceTransformer

    folder = str(write_layout(tmp_path / "model", LAYOUTS[name]))
    texts = ["the cat что", "", "Élan ﬁ ...", "นก一丁", "a " * 100]
    theirs = SentenceTransformer(folder, device="cpu").encode(texts)
    np.testing.assert_allclose(theirs, SimCSE(folder).encode(texts), atol=1e-5)
