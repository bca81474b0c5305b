"""PromptEOL (Jiang et al. 2023, arXiv:2307.16645): a sentence is the word by which a decoder would say it.

The template asks for one word, and the state of its last token is the embedding, without a head. `prompt_eol` trains
LLaMA-7B on triplets of NLI with the numbers of the released code's script: LoRA of rank 64, α 16 and dropout 0.05 on
all linear maps, batch 256, learning rate 5e-4 after 100 steps of warm-up, 1 epoch, τ = 0.05, 32 tokens of a sentence
besides the 10 to 12 of its template, an evaluation every 50 steps. `:qwen2`, `:qwen3`, `:mistral` and `:gemma3` are
other decoders. `:unsupervised` and `:unsupervised_qwen3` train on sentences alone, as the code also can: each is its
own positive, under another mask of LoRA's dropout. With `--config.train.epochs=0` a decoder is scored as it is.

What differs here: the code keeps the weights that do not train in 4 bits (QLoRA) and computes in float16; here they are
float32, and bfloat16 in products. It tokenizes a sentence together with its template, so where a vocabulary has `."`, a
full stop and the closing quote are one token; here each is tokenized by itself, and the template stays whole when a
long sentence is cut. Its `evaluation.py` adds a full stop to sentences that end without one, and writes single quotes
for double ones; its training does neither. The authors' OPT is not among the types of model here.

The file of triplets: `simcse-jax build-data nli --source MNLI SNLI`; of sentences: `wiki_sentences --source DUMP`.

⚠ The paper's text could not be read whole here, so only what the code does is compared.
"""

from ml_collections import config_dict

from simcse_jax.config import choose_variant, default_config

LLAMA, QWEN3 = "huggyllama/llama-7b", "Qwen/Qwen3-0.6B-Base"
VARIANTS = {
    "llama": LLAMA,
    "qwen2": "Qwen/Qwen2.5-0.5B",
    "qwen3": QWEN3,
    "mistral": "mistralai/Mistral-7B-v0.1",
    "gemma3": "google/gemma-3-270m",
    "unsupervised": LLAMA,
    "unsupervised_qwen3": QWEN3,
}


def get_config(variant: str = "llama") -> config_dict.ConfigDict:
    """PromptEOL's hyper-parameters."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.model.init_from = choose_variant(variant, VARIANTS)
    config.model.template = 'This sentence : "[X]" means in one word:"'
    config.model.pooler = "last"
    config.model.mlp = "none"
    config.model.dropout = 0.0  # decoders have none; LoRA has its own
    config.model.lora.rank = 64
    config.model.lora.alpha = 16.0
    config.model.lora.dropout = 0.05
    config.model.lora.targets = ("all-linear",)
    config.data.train = "data/nli_for_simcse.csv"
    config.data.max_length = 44
    config.train.batch_size = 256
    config.train.learning_rate = 5e-4
    config.train.warmup = 0.0929  # 100 of 1,076 steps
    config.train.epochs = 1
    config.train.dtype = "bfloat16"
    config.eval.every = 50
    if variant.startswith("unsupervised"):
        config.data.train = "data/wiki1m_for_simcse.txt"
        config.train.warmup = 0.0256  # 100 of 3,906 steps
    return config
