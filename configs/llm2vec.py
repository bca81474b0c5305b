"""LLM2Vec (BehnamGhader et al. 2024, arXiv:2404.05961): a decoder that reads in both directions, MNTP, then SimCSE.

`llm2vec` (`:mntp`) turns Sheared-LLaMA-1.3B bidirectional and trains it on masked tokens, each predicted from the
position before it; `:simcse` trains the result, in `runs/llm2vec_mntp`, as unsupervised SimCSE does.

    simcse-jax train --config llm2vec --workdir runs/llm2vec_mntp
    simcse-jax train --config llm2vec:simcse --workdir runs/llm2vec

From the paper and the released code: Wikitext-103 and then SimCSE's million sentences, 1,000 steps of each, batches of
32 and 128, at most 512 and 128 tokens, 5e-5 and 3e-5, LoRA of rank 16, α 32 and dropout 0.05 on all linear maps, which
is merged between the steps, the mask token `_`, attention's dropout of 0.3 in SimCSE, τ = 0.05, the mean of tokens.

What differs here: 15% of the tokens are masked, not 20%; a text is a line, not a block of 512 tokens; the rate stays,
where the code's falls over epochs that it does not finish; and a head that is not the word embeddings is trained, too.
`simcse-jax build-data wiki_sentences --source DUMP` makes the sentences. Any decoder of the package can be
`model.init_from`, without `objective.mlm.mask_token` if its tokenizer has one.
"""

from ml_collections import config_dict

from simcse_jax.config import choose_variant, default_config

STEPS = {  # start, data, batch size, tokens, learning rate
    "mntp": ("princeton-nlp/Sheared-LLaMA-1.3B", "hf:Salesforce/wikitext:wikitext-103-raw-v1", 32, 512, 5e-5),
    "simcse": ("runs/llm2vec_mntp", "data/wiki1m_for_simcse.txt", 128, 128, 3e-5),
}


def get_config(variant: str = "mntp") -> config_dict.ConfigDict:
    """One of the two steps."""
    config = default_config()
    start, data, batch_size, length, rate = choose_variant(variant, STEPS)
    config.model.init_from, config.data.train = start, data
    config.model.bidirectional = True
    config.model.pooler = "avg"
    config.model.mlp = "none"
    config.model.dropout = 0.0
    config.model.lora.rank = 16
    config.model.lora.alpha = 32.0
    config.model.lora.dropout = 0.05
    config.model.lora.targets = ("all-linear",)
    config.data.max_length = length
    config.train.batch_size = batch_size
    config.train.learning_rate = rate
    config.train.schedule = "constant"
    config.train.max_steps = 1000
    config.train.dtype = "bfloat16"
    config.parallel.chunk_size = 32
    if variant == "mntp":
        config.objective.info_nce.weight = 0.0
        config.objective.mlm.weight = 1.0
        config.objective.mlm.mask_token = "_"
        config.eval.every = 1000  # its end is what SimCSE starts from
    else:
        config.model.attention_dropout = 0.3
    return config
