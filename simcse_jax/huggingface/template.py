"""Templates: text before and after every sentence, which stays whole when a long sentence is cut.

A template is the post-processor of a tokenizer, as [CLS] and [SEP] are. So it is in `tokenizer.json`, and every program
that reads the file puts it around its sentences: transformers and sentence-transformers too.

The text before a sentence, the sentence and the text after it are tokenized each by itself, as PromptBERT's code does.
"""

import json
from typing import TYPE_CHECKING

from simcse_jax.choices import MASK, PLACE
from simcse_jax.errors import UserError
from simcse_jax.models.config import Template

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

# The parts of the post-processor: special tokens, the text before the sentence, that after it, special tokens.
PARTS = ("template_first", "template_before", "template_after", "template_last")
MASK_TOKENS = ("[MASK]", "<mask>")  # of folders whose files name none
Ids = tuple[int, ...]


def read_template(backend: "Backend") -> Template | None:
    """The template that a tokenizer puts around sentences; None if it puts special tokens alone."""
    parts = _parts(backend)
    return None if parts is None else Template(parts[0] + parts[1], parts[2] + parts[3])


def make_template(backend: "Backend", text: str, mask_token: str | None, where: str) -> Template:
    """The tokens of a template by its text, with the tokenizer's own special tokens at the ends.

    Args:
      backend: the tokenizer, with a template or without one.
      text: has `PLACE` once. Spaces at its ends, and those before the sentence, are left out.
      mask_token: stands where the text has `MASK`; None: the tokenizer has none.
      where: the name of the tokenizer, for errors.

    Raises:
      UserError: when the tokenizer lacks a mask token that the text has.
    """
    first, last = _ends(backend)
    before, after = _tokens(backend, text, mask_token, where)
    return Template(first + before, after + last)


def add_template(backend: "Backend", text: str, mask_token: str | None, where: str) -> None:
    """Lets a tokenizer put a template around every sentence; see `make_template`.

    Raises:
      UserError: also when it has one already.
    """
    if _parts(backend):
        raise UserError(f"{where}: its tokenizer has a template already; leave model.template empty to keep it")
    first, last = _ends(backend)
    _put_around(backend, (first, *_tokens(backend, text, mask_token, where), last))


def add_end_token(backend: "Backend", number: int) -> None:
    """Lets a tokenizer put the token with this id after every text, unless it puts one there already."""
    first, last = _ends(backend)
    if not last:
        _put_around(backend, (first, (), (), (number,)))


def _put_around(backend: "Backend", ids: tuple[Ids, ...]) -> None:
    """Makes a tokenizer's post-processor of the ids of each of `PARTS`."""
    from tokenizers import processors

    parts = dict(zip(PARTS, ids, strict=True))
    single = [f"{name}:0" for name in PARTS if parts[name]]
    single.insert(sum(bool(parts[name]) for name in PARTS[:2]), "$A:0")
    special = [
        {"id": name, "ids": list(part), "tokens": [backend.id_to_token(number) for number in part]}
        for name, part in parts.items()
        if part
    ]
    backend.post_processor = processors.TemplateProcessing(single=single, special_tokens=special)


def _parts(backend: "Backend") -> tuple[Ids, ...] | None:
    """The ids of each of `PARTS`; None without a template."""
    state = json.loads(backend.post_processor.__getstate__()) if backend.post_processor else {}
    special = state.get("special_tokens")
    if not isinstance(special, dict) or not special.keys() & set(PARTS[1:3]):
        return None
    return tuple(tuple(special.get(name, {}).get("ids", ())) for name in PARTS)


def _ends(backend: "Backend") -> tuple[Ids, Ids]:
    """The special tokens before a sentence and those after it."""
    if parts := _parts(backend):
        return parts[0], parts[3]
    backend.no_truncation()
    word = backend.encode("a")
    inner = [place for place, special in enumerate(word.special_tokens_mask) if not special]
    first, last = (inner[0], inner[-1] + 1) if inner else (len(word.ids), len(word.ids))
    return tuple(word.ids[:first]), tuple(word.ids[last:])


def _tokens(backend: "Backend", text: str, mask_token: str | None, where: str) -> tuple[Ids, Ids]:
    if MASK in text and mask_token is None:
        raise UserError(f"{where}: its tokenizer has no mask token, for which the template {text!r:.100} has {MASK}")
    before, after = text.replace(MASK, mask_token or MASK).split(PLACE)
    backend.no_truncation()
    parts = (backend.encode(part, add_special_tokens=False).ids for part in (before.strip(), after.rstrip()))
    first, last = map(tuple, parts)
    return first, last
