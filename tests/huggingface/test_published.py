import numpy as np
import pytest
from support import CONFIGS, write_model, write_prompted
from support.models import edit_tensors

from simcse_jax.choices import POOLERS
from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import choose_pooler, load
from simcse_jax.huggingface.published import OWN_POOLERS, PUBLISHED, encoder_config, own_pooler
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.sentence_encoder import build

SIZES = {  # the published numbers of parameters, without a pooler
    **{"bert-base-uncased": 109_482_240 - 768 * 769, "google/electra-small-generator": 13_483_008},
    **{"albert/albert-base-v2": 11_683_584 - 768 * 769, "microsoft/mpnet-base": 109_486_464 - 768 * 769},
    **{"roberta-large": 355_359_744 - 1024 * 1025, "distilbert-base-uncased": 66_362_880},
    **{"FacebookAI/xlm-roberta-base": 278_043_648 - 768 * 769, "answerdotai/ModernBERT-base": 149_014_272},
    **{"nomic-ai/nomic-embed-text-v1.5": 136_731_648, "Qwen/Qwen3-Embedding-0.6B": 595_776_512},
    **{"Qwen/Qwen3-Embedding-4B": 4_021_774_336, "google/embeddinggemma-300m": 302_863_104},
    "intfloat/e5-mistral-7b-instruct": 7_110_660_096,
}


@pytest.mark.parametrize("name", [*[*SIZES][:3], *(pytest.param(x, marks=pytest.mark.slow) for x in [*SIZES][3:])])
def test_published_shapes_have_the_published_numbers_of_parameters(name):
    _, params = build(encoder_config(name), with_head=False)
    assert sum(value.size for value in params.values()) == SIZES[name]


ASKED = ("ann/tiny", None, ["config.json"])


def test_poolers_and_shapes_are_known_by_several_names_but_files_come_first(tmp_path, tiny_folder, monkeypatch):
    assert own_pooler("voidism/diffcse-bert-base-uncased-sts") == "cls_before_pooler"
    assert own_pooler("voidism/diffcse-roberta-base-trans@main") == "cls_before_pooler"
    assert own_pooler("/data/BERT-Base-CT/") == "avg" and own_pooler("bert-base-uncased") is None
    assert set(OWN_POOLERS.values()) <= set(POOLERS)
    folder = write_prompted(write_model(tmp_path / "source", "roberta"), tmp_path / "declutr-base")
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "max"}')
    assert choose_pooler(load(str(folder)), None) == ("max", False)
    assert encoder_config("bert-base-uncased") == PUBLISHED["bert-base-uncased"]
    assert encoder_config("google-bert/bert-large-uncased", 3).num_layers == 3
    monkeypatch.setattr("simcse_jax.huggingface.hub.download", lambda *asked: (asked == ASKED or None) and tiny_folder)
    assert encoder_config("ann/tiny") == encoder_config(str(tiny_folder))
    for name in ("a b", "glove:x.txt"):  # which averages word vectors
        with pytest.raises(UserError, match=f"^{name}: "):
            encoder_config(name)
    assert encoder_config(str(tiny_folder)) == EncoderConfig.from_hugging_face(CONFIGS[tiny_folder.name], "test")


# The layouts of these repositories: kind of encoder, architecture, tensors to add.
DIFFCSE = {f"mlp.net.{part}": np.ones((64, 32), np.float32) for part in ("0.weight", "1.weight", "3.weight")}
DIFFCSE |= {"discriminator.encoder.layer.0.output.dense.bias": np.ones(32, np.float32)}
DIFFCSE |= {"bert.embeddings.position_ids": np.arange(64)[None], "lm_head.bias": np.zeros(40, np.float32)}
SCD = {"mlp.dense.weight": np.ones((32, 32), np.float32), "mlp.dense.bias": np.zeros(32, np.float32)}
LAYOUTS = {
    "voidism/diffcse-bert-base-uncased-sts": ("bert", "BertForCL", DIFFCSE),
    "voidism/diffcse-roberta-base-sts": ("roberta", "RobertaForCL", DIFFCSE),
    "sap-ai-research/BERT-base-uncased-SCD-ACL2022": ("bert", "BertForCL", SCD),
    "Contrastive-Tension/BERT-Base-CT": ("bert", "BertForMaskedLM", {}),
    "johngiorgi/declutr-base": ("roberta", "RobertaForMaskedLM", {}),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_published_models_load_with_the_pooler_of_their_authors_and_without_a_head(name, tmp_path):
    model_type, architecture, added = LAYOUTS[name]
    folder = write_model(tmp_path / name, model_type, architectures=[architecture])
    plain = load(str(folder)).params

    def change(tensors):
        return {f"{model_type}.{key}": value for key, value in tensors.items() if not key.startswith("pooler")} | added

    edit_tensors(folder, change)
    model = load(str(folder))
    assert choose_pooler(model, None) == (OWN_POOLERS[name], False) and not model.refusal
    assert model.params.keys() == {key for key in plain if not key.startswith("head.")}
    other = folder.rename(tmp_path / "other")
    if added is DIFFCSE:
        with pytest.raises(UserError, match="the model has a head"):  # as SimCSE's own class would have it
            load(str(other))
    else:
        assert choose_pooler(load(str(other)), None) == ("cls", added is SCD)
