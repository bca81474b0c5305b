"""The names that each model type's weights have in Hugging Face's checkpoints."""

from collections.abc import Mapping
from typing import NamedTuple

TABLES = {
    "encoder.embeddings.word.embedding": "embeddings.word_embeddings.weight",
    "encoder.embeddings.position.embedding": "embeddings.position_embeddings.weight",
    "encoder.embeddings.type.embedding": "embeddings.token_type_embeddings.weight",
    "encoder.embeddings.task.embedding": "embeddings.task_type_embeddings.weight",
    "encoder.relative_bias": "encoder.relative_attention_bias.weight",
}
BERT_LAYER = {
    "qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention_output": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "intermediate": ("intermediate.dense",),
    "output": ("output.dense",),
    "output_norm": ("output.LayerNorm",),
}
MPNET_LAYER = BERT_LAYER | {
    "qkv": ("attention.attn.q", "attention.attn.k", "attention.attn.v"),
    "attention_output": ("attention.attn.o",),
    "attention_norm": ("attention.LayerNorm",),
}
DISTILBERT_LAYER = {
    "qkv": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    "attention_output": ("attention.out_lin",),
    "attention_norm": ("sa_layer_norm",),
    "intermediate": ("ffn.lin1",),
    "output": ("ffn.lin2",),
    "output_norm": ("output_layer_norm",),
}
ALBERT_LAYER = {
    "qkv": ("attention.query", "attention.key", "attention.value"),
    "attention_output": ("attention.dense",),
    "attention_norm": ("attention.LayerNorm",),
    "intermediate": ("ffn",),
    "output": ("ffn_output",),
    "output_norm": ("full_layer_layer_norm",),
}
# ModernBERT's norms come before attention and before the feed-forward network; its first layer has no attention norm.
MODERNBERT_LAYER = {
    "qkv": ("attn.Wqkv",),
    "attention_output": ("attn.Wo",),
    "attention_norm": ("attn_norm",),
    "intermediate": ("mlp.Wi",),
    "output": ("mlp.Wo",),
    "output_norm": ("mlp_norm",),
}
NOMIC_LAYER = {
    "qkv": ("attn.Wqkv",),
    "attention_output": ("attn.out_proj",),
    "attention_norm": ("norm1",),
    "intermediate": ("mlp.fc12", "mlp.fc11"),  # what the activation takes, and the gate
    "output": ("mlp.fc2",),
    "output_norm": ("norm2",),
}


# In transformers' class, which splits and renames what the checkpoints have.
NOMIC_MODULES = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention_output": ("self_attn.o_proj",),
    "intermediate": ("mlp.gate_proj", "mlp.up_proj"),
    "output": ("mlp.down_proj",),
}


def _language_model(dense: str, norm: str, bias: str) -> dict[str, str]:
    names = {"dense.kernel": f"{dense}.weight", "dense.bias": f"{dense}.bias"}
    return names | {"norm.scale": f"{norm}.weight", "norm.bias": f"{norm}.bias", "bias": bias}


# The arrays of a language-model head, by our names.
_BERT = "cls.predictions"
BERT_HEAD = _language_model(f"{_BERT}.transform.dense", f"{_BERT}.transform.LayerNorm", f"{_BERT}.bias")
ROBERTA_HEAD = _language_model("lm_head.dense", "lm_head.layer_norm", "lm_head.bias")
DISTILBERT_HEAD = _language_model("vocab_transform", "vocab_layer_norm", "vocab_projector.bias")
_GENERATOR = "generator_predictions"  # ELECTRA's other half, the discriminator, guesses no words
ELECTRA_HEAD = _language_model(f"{_GENERATOR}.dense", f"{_GENERATOR}.LayerNorm", "generator_lm_head.bias")
ALBERT_HEAD = _language_model("predictions.dense", "predictions.LayerNorm", "predictions.bias")
MODERNBERT_HEAD = _language_model("head.dense", "head.norm", "decoder.bias")
NOMIC_HEAD = _language_model(f"{_BERT}.transform.dense", f"{_BERT}.transform.layer_norm", f"{_BERT}.bias")


class Names(NamedTuple):
    """Those of a model type."""

    prefix: str  # before the encoder's weights, where a checkpoint has others too
    architecture: str  # transformers' class of the encoder alone
    language_model: Mapping[str, str] = BERT_HEAD
    layer: Mapping[str, tuple[str, ...]] = BERT_LAYER
    stack: str = "encoder.layer.{}"  # the module of a layer, or of a group of layers that share their weights
    projection: str = ""  # the dense layer after narrow embeddings
    pooler: str = "pooler.dense"  # the dense layer of the pooler, which our head becomes
    has_pooler: bool = True  # False: transformers' class has none, and leaves our head unread
    words: str = TABLES["encoder.embeddings.word.embedding"]
    embedding_norm: str = "embeddings.LayerNorm"
    head_may_lack: tuple[str, ...] = ()  # biases of the language model's head, zero where a checkpoint has none
    modules: Mapping[str, tuple[str, ...]] | None = None  # of linear maps in transformers' class; None: as in `layer`
    module_stack: str = ""  # the module of a layer there; empty: as in `stack`


NAMES = {
    "bert": Names("bert.", "BertModel"),
    "roberta": Names("roberta.", "RobertaModel", ROBERTA_HEAD),
    "mpnet": Names("mpnet.", "MPNetModel", ROBERTA_HEAD, MPNET_LAYER),
    "distilbert": Names(
        *("distilbert.", "DistilBertModel", DISTILBERT_HEAD, DISTILBERT_LAYER),
        stack="transformer.layer.{}",
        has_pooler=False,
    ),
    "xlm-roberta": Names("roberta.", "XLMRobertaModel", ROBERTA_HEAD),
    "camembert": Names("roberta.", "CamembertModel", ROBERTA_HEAD),
    "ernie": Names("ernie.", "ErnieModel"),
    "electra": Names("electra.", "ElectraModel", ELECTRA_HEAD, projection="embeddings_project", has_pooler=False),
    "albert": Names(
        *("albert.", "AlbertModel", ALBERT_HEAD, ALBERT_LAYER),
        stack="encoder.albert_layer_groups.{}.albert_layers.0",
        projection="encoder.embedding_hidden_mapping_in",
        pooler="pooler",
    ),
    "modernbert": Names(
        *("model.", "ModernBertModel", MODERNBERT_HEAD, MODERNBERT_LAYER, "layers.{}"),
        has_pooler=False,
        words="embeddings.tok_embeddings.weight",
        embedding_norm="embeddings.norm",
    ),
    "nomic_bert": Names(
        *("nomic_bert.", "NomicBertModel", NOMIC_HEAD, NOMIC_LAYER, "encoder.layers.{}"),
        has_pooler=False,
        embedding_norm="emb_ln",
        head_may_lack=("dense.bias", "bias"),  # Nomic's code has neither, transformers' class both
        modules=NOMIC_MODULES,
        module_stack="layers.{}",
    ),
}
# The decoder's bias and weights under other names; the weights are stored although they are tied.
OTHER_BIASES = tuple(f"{head}.decoder.bias" for head in (_BERT, "lm_head", "predictions"))
DECODERS = (
    *(f"{head}.decoder.weight" for head in (_BERT, "lm_head", "predictions")),
    *("vocab_projector.weight", "generator_lm_head.weight", "decoder.weight"),
)
HEAD_MODULES = ("mlp.dense", "pooler.dense", "pooler")  # in the reference's training code, and in converted models
