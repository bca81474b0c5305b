"""Words replaced by what a masked language model puts there."""

from collections.abc import Sequence

import numpy as np

from simcse_jax.data.draws import row_generator
from simcse_jax.errors import UserError

MLM_BATCH = 64


def replace_by_mlm(
    sentences: Sequence[str], model_name: str, percent: float, *, seed: int, column: int, batch_size: int = MLM_BATCH
) -> list[str]:
    """Replaces `percent` % of each sentence's tokens by what a masked language model puts there.

    The tokens, at least one a sentence, are masked together, and each becomes the most probable token that is neither
    the one that stood there nor a special one. The text comes back as the model's tokenizer decodes it, so without
    capitals where it knows none. Tokens beyond the model's length stay as they are.

    Args:
      sentences: N of them; their places are their rows.
      model_name: a model with a language-model head, as `models.pretrained.load` takes it.
      percent: above 0, below 100; to the nearest whole number of tokens.
      seed, column: with the row, what is masked.
      batch_size: sentences at once.

    Raises:
      UserError: when the model or its tokenizer cannot do it.
    """
    import jax
    import jax.numpy as jnp

    from simcse_jax.huggingface.load import load
    from simcse_jax.huggingface.tokenizer import CHUNK, Tokenizer, read_backend, special_tokens
    from simcse_jax.models import parameters
    from simcse_jax.models.language_model import activation, logits
    from simcse_jax.models.sentence_encoder import build

    if not model_name:
        raise UserError("data.augment.mlm_model: must name a model with a language-model head, e.g. bert-base-uncased")
    model = load(model_name)
    if model.language_model is None:
        raise UserError(
            f"data.augment.mlm_model={model_name}: has no language-model head; take a checkpoint as it was pretrained"
        )
    tokenizer = Tokenizer(model.folder, model.config)  # pads, and checks that it belongs to the weights
    backend, _ = read_backend(model.folder)
    mask_id, special_ids = special_tokens(model.folder)
    known = np.zeros(model.config.vocab_size, bool)  # what may be put in: the weights can have unused rows
    known[sorted(backend.get_vocab(with_added_tokens=True).values())] = True
    known[list(special_ids)] = False
    if known.sum() < 2:
        raise UserError(f"data.augment.mlm_model={model_name}: its tokenizer has no words to choose from")
    params = {name: value for name, value in model.params.items() if not name.startswith("head.")}
    graph, _ = build(model.config, with_head=False)

    @jax.jit
    def predict(
        params: parameters.Params, ids: jax.Array, mask: jax.Array, places: jax.Array, before: jax.Array
    ) -> jax.Array:
        with jax.default_matmul_precision("highest"):  # float32 on TPUs and GPUs too
            hidden = parameters.merge(graph, params).encoder(ids, mask)[-1]
            scores = logits(
                jnp.take_along_axis(hidden, places[:, :, None], axis=1),
                model.language_model,
                params["encoder.embeddings.word.embedding"],
                activation=activation(model.config),
                eps=model.config.layer_norm_eps,
            )
        allowed = known & (jnp.arange(len(known)) != before[:, :, None])
        return jnp.argmax(jnp.where(allowed, scores, -jnp.inf), axis=-1)

    tokens, own, chosen = [], [], []
    for start in range(0, len(sentences), CHUNK):  # an encoding is large until its ids are taken out
        for encoding in backend.encode_batch_fast(list(sentences[start : start + CHUNK])):
            ids, text = np.array(encoding.ids, np.int32), np.array(encoding.special_tokens_mask) == 0
            maskable = np.flatnonzero((text & ~np.isin(ids, special_ids))[: model.max_length])
            count = min(_count(len(maskable), percent), len(maskable))
            places = row_generator(seed, len(tokens), column).permutation(maskable)[:count]
            tokens.append(ids)
            own.append(text)
            chosen.append(places)
    seen = [ids[: model.max_length] for ids in tokens]
    by_length = sorted(range(len(seen)), key=lambda row: -len(seen[row]))
    for start in range(0, len(by_length), batch_size):
        rows = by_length[start : start + batch_size]
        length = min(max(16, 1 << (len(seen[rows[0]]) - 1).bit_length()), model.max_length)  # few shapes to compile
        # The last batch is filled up with its first row, so that it has the shape of the others.
        filled = rows + [rows[0]] * (batch_size - len(rows))
        ids, mask = tokenizer.pad([seen[row] for row in filled], length)
        places = np.zeros((batch_size, _count(length, percent)), np.int32)
        for line, row in enumerate(filled):
            places[line, : len(chosen[row])] = chosen[row]
        before = np.take_along_axis(ids, places, axis=1)
        for line, row in enumerate(filled):
            ids[line, chosen[row]] = mask_id
        words = np.asarray(predict(params, ids, mask, places, before))
        for line, row in enumerate(rows):
            tokens[row][chosen[row]] = words[line, : len(chosen[row])]
    return backend.decode_batch(
        [ids[text].tolist() for ids, text in zip(tokens, own, strict=True)], skip_special_tokens=False
    )


def _count(tokens: int, percent: float) -> int:
    return max(1, int(tokens * percent / 100 + 0.5))
