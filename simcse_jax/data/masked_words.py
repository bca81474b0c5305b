"""Replaces words with a masked language model's predictions."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from simcse_jax.data.draws import row_generator
from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import Pretrained, load
from simcse_jax.huggingface.tokenizer import CHUNK, Tokenizer, read_backend, special_tokens, vocabulary
from simcse_jax.models import parameters
from simcse_jax.models.head import PREFIX
from simcse_jax.models.language_model import logits
from simcse_jax.models.sentence_encoder import build

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

MLM_BATCH = 64
SHORTEST = 16  # batches are padded to at least this many tokens, and to a power of two, so few shapes are compiled

Predict = Callable[[parameters.Arrays, np.ndarray, np.ndarray, np.ndarray, np.ndarray], jax.Array]


class Masked(NamedTuple):
    """A sentence of T tokens, of which K are masked."""

    ids: np.ndarray  # (T,) int32; masked ones are replaced in place
    is_text: np.ndarray  # (T,) bool: False for the special tokens around a sentence
    places: np.ndarray  # (K,) positions of the masked tokens


def replace_by_mlm(
    sentences: Sequence[str], model_name: str, percent: float, *, seed: int, column: int, batch_size: int = MLM_BATCH
) -> list[str]:
    """Replaces `percent` % of each sentence's tokens with a masked language model's predictions.

    A sentence's tokens, at least one, are masked together. Each becomes the most probable token other than the original
    and special tokens. The model's tokenizer decodes the result, in lower case if it is uncased. Tokens beyond the
    model's length stay unchanged.

    Args:
      sentences: N sentences; a sentence's index is its row.
      model_name: a model with a language-model head, see `huggingface.load.load`.
      percent: above 0, below 100; rounded to a whole number of tokens.
      seed, column: decide with the row which tokens are masked.
    """
    model = load(model_name)
    if model.language_model is None or model.config.guesses_next:
        raise UserError(
            f"data.augment.mlm_model={model_name}: has no masked-language-model head; use a pretrained checkpoint that "
            "kept it"
        )
    tokenizer = Tokenizer(model.folder, model.config)  # pads, and checks that it fits the weights
    backend, _ = read_backend(model.folder)
    mask_id, special_ids = special_tokens(model.folder)
    insertable = np.zeros(model.config.vocab_size, bool)  # weights may have rows without a token
    insertable[list(vocabulary(backend).values())] = True
    insertable[list(special_ids)] = False
    predict = _make_predict(model, insertable)
    params = {name: value for name, value in model.params.items() if not name.startswith(PREFIX)}

    masked = []
    for row, (ids, is_text, maskable) in enumerate(_tokens(sentences, backend, special_ids, model.max_length)):
        count = min(_count(len(maskable), percent), len(maskable))
        masked.append(Masked(ids, is_text, row_generator(seed, row, column).permutation(maskable)[:count]))
    for rows, length in _batches([len(sentence.ids) for sentence in masked], batch_size, model.max_length):
        chosen = [masked[row] for row in rows]
        # Copies of its first row fill the last batch to the shape of the others.
        filled = chosen + [chosen[0]] * (batch_size - len(chosen))
        ids, mask = tokenizer.pad([sentence.ids[:length] for sentence in filled], length)
        places = np.zeros((batch_size, _count(length, percent)), np.int32)
        for line, sentence in enumerate(filled):
            places[line, : len(sentence.places)] = sentence.places
        before = np.take_along_axis(ids, places, axis=1)
        for line, sentence in enumerate(filled):
            ids[line, sentence.places] = mask_id
        words = np.asarray(predict(params, ids, mask, places, before))
        for line, sentence in enumerate(chosen):
            sentence.ids[sentence.places] = words[line, : len(sentence.places)]
    return backend.decode_batch(
        [sentence.ids[sentence.is_text].tolist() for sentence in masked], skip_special_tokens=False
    )


def _make_predict(model: Pretrained, insertable: np.ndarray) -> Predict:
    """A compiled function for the best `insertable` token, other than `before`, at each of (B, K) masked positions."""
    graph, _ = build(model.config, with_head=False)
    head = model.language_model
    assert head is not None

    @jax.jit
    def predict(
        params: parameters.Params, ids: jax.Array, mask: jax.Array, places: jax.Array, before: jax.Array
    ) -> jax.Array:
        with jax.default_matmul_precision("highest"):  # float32 on TPUs and GPUs too
            hidden = parameters.merge(graph, params).encoder(ids, mask)[-1]
            scores = logits(
                jnp.take_along_axis(hidden, places[:, :, None], axis=1),
                head,
                params["encoder.embeddings.word.embedding"],
                model.config,
            )
        allowed = insertable & (jnp.arange(len(insertable)) != before[:, :, None])
        return jnp.argmax(jnp.where(allowed, scores, -jnp.inf), axis=-1)

    return predict


def _tokens(
    sentences: Sequence[str], backend: "Backend", special_ids: Sequence[int], max_length: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Each sentence's ids, which of them are text, and the positions that may be masked."""
    for start in range(0, len(sentences), CHUNK):  # encodings are much larger than ids
        for encoding in backend.encode_batch_fast(list(sentences[start : start + CHUNK])):
            ids, is_text = np.array(encoding.ids, np.int32), np.array(encoding.special_tokens_mask) == 0
            yield ids, is_text, np.flatnonzero((is_text & ~np.isin(ids, special_ids))[:max_length])


def _batches(lengths: Sequence[int], batch_size: int, max_length: int) -> Iterator[tuple[list[int], int]]:
    """Rows to encode together, longest first, and their common length after cutting or padding."""
    seen = [min(length, max_length) for length in lengths]
    by_length = sorted(range(len(seen)), key=lambda row: -seen[row])
    for start in range(0, len(by_length), batch_size):
        rows = by_length[start : start + batch_size]
        length = min(max(SHORTEST, 1 << (seen[rows[0]] - 1).bit_length()), max_length)
        yield rows, length


def _count(tokens: int, percent: float) -> int:
    return max(1, int(tokens * percent / 100 + 0.5))
