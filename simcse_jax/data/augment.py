"""The discrete augmentations that SimCSE compares with dropout (Table 1), on text.

What happens to a sentence is a function of (seed, its row, its column) and of nothing else.
Words are what stands between white space.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from simcse_jax.errors import UserError, reason
from simcse_jax.storage import local_path

AUGMENTATIONS = ("crop", "delete", "delete_one", "synonym", "mlm")
STREAM = 0x6175676D  # in Philox's counter, so that these draws are no other's of the same seed
# What nlpaug's part-of-speech tags leave out: WordNet knows "a" as the ampere.
DETERMINERS = re.compile("an?|all|another|any|both|each|either|every|neither|no|some|th(at|e|ese|is|ose)")
EDGES = re.compile(r"(\W*)(.*?)(\W*)")  # punctuation, the word, punctuation
MLM_BATCH = 64


def augment(
    sentences: Sequence[str], *, name: str, percent: float, lexicon: str, mlm_model: str, seed: int, column: int
) -> list[str]:
    """A changed copy of each sentence.

    Args:
      sentences: N of them; their places are their rows.
      name: one of `AUGMENTATIONS`.
      percent: of the words that `crop` and `delete` take away, of the tokens that `mlm` replaces.
      lexicon: of `synonym`, see `Synonyms`.
      mlm_model: of `mlm`, see `replace_by_mlm`.
      seed, column: with the row, what the outcome depends on.

    Raises:
      UserError: naming the field of `data.augment` that is wrong.
    """
    if name not in AUGMENTATIONS:
        raise UserError(f"data.augment.name={name!r}: not one of {', '.join(AUGMENTATIONS)}")
    if name in ("crop", "delete", "mlm") and not 0 < percent < 100:
        raise UserError(f"data.augment.percent={percent}: must be above 0 and below 100")
    if name == "mlm":
        return replace_by_mlm(sentences, mlm_model, percent, seed=seed, column=column)
    if name == "synonym":
        return _replace_by_synonyms(sentences, lexicon, seed, column)

    def change(words: list[str], generator: np.random.Generator) -> list[str]:
        if name == "delete_one":
            return delete_one(words, generator)
        return (crop if name == "crop" else delete)(words, percent, generator)

    return [" ".join(change(text.split(), row_generator(seed, row, column))) for row, text in enumerate(sentences)]


def row_generator(seed: int, row: int, column: int) -> np.random.Generator:
    """The random numbers of one sentence."""
    return np.random.Generator(np.random.Philox(key=[seed, row], counter=[0, 0, column, STREAM]))


def crop(words: Sequence[str], percent: float, generator: np.random.Generator) -> list[str]:
    """A span of the words, 100 - `percent` % of them and at least one, that starts anywhere."""
    kept = len(words) - _share(words, percent)
    start = int(generator.integers(len(words) - kept + 1))
    return list(words[start : start + kept])


def delete(words: Sequence[str], percent: float, generator: np.random.Generator) -> list[str]:
    """The words without `percent` % of them, chosen at random; at least one stays."""
    gone = set(generator.permutation(len(words))[: _share(words, percent)].tolist())
    return [word for index, word in enumerate(words) if index not in gone]


def delete_one(words: Sequence[str], generator: np.random.Generator) -> list[str]:
    """The words without a random one; a single one stays."""
    if len(words) < 2:
        return list(words)
    gone = int(generator.integers(len(words)))
    return [*words[:gone], *words[gone + 1 :]]


def _share(words: Sequence[str], percent: float) -> int:
    """How many words `percent` % are, to the nearest (a half upwards), so that at least one word is left."""
    return max(0, min(int(len(words) * percent / 100 + 0.5), len(words) - 1))


class Synonyms:
    """Replaces one word by a synonym: another word of a synset that it belongs to.

    As nlpaug does it, which the paper used: any synset of the word counts, inflected words have those of their base
    form (English suffixes are taken off, irregular forms are the lexicon's), and determiners stay. Unlike nlpaug,
    which tags parts of speech, it takes all of them, and it chooses among the words that have a synonym.
    """

    def __init__(self, lexicon: str):
        """Reads a WordNet.

        Args:
          lexicon: a WN-LMF file or package, also compressed, or the data directory of the `wn` package.

        Raises:
          UserError: when it is missing or damaged, holds no synonyms, or `wn` is not installed.
        """
        try:
            from wn.morphy import Morphy
        except ImportError:
            raise UserError(
                "data.augment.name=synonym needs the package wn: pip install 'simcse_jax[wordnet]'"
            ) from None
        path = local_path(lexicon)
        if not lexicon or not path.exists():
            raise UserError(f"data.augment.lexicon={lexicon!r}: no such file; give a WordNet in WN-LMF (.xml, .xml.gz)")
        self._base_forms = Morphy()
        self._senses: dict[tuple[str, str], list[tuple[str, str]]] = {}  # (form, part of speech): (word, synset)
        self._members: dict[str, dict[str, None]] = {}  # synset: its words, as they are written
        try:
            entries = _database_entries(path) if (path / "wn.db").is_file() else _file_entries(path)
            for part, forms, synsets in entries:
                for synset in synsets:
                    self._members.setdefault(synset, {})[forms[0]] = None
                for form in dict.fromkeys(form.lower() for form in forms):
                    self._senses.setdefault((form, part), []).extend((forms[0], synset) for synset in synsets)
        except Exception as error:  # the package raises its own, the XML parser's and bare assertions
            raise UserError(f"data.augment.lexicon={lexicon}: no WN-LMF lexicon can be read: {reason(error)}") from None
        if all(len(members) < 2 for members in self._members.values()):
            raise UserError(f"data.augment.lexicon={lexicon}: holds no synonyms; is it a whole WordNet?")
        self._cache: dict[str, list[str]] = {}

    def of(self, word: str) -> list[str]:
        """The synonyms of a word, in the lexicon's order; none for a determiner."""
        word = word.lower()
        if word not in self._cache:
            self._cache[word] = [] if DETERMINERS.fullmatch(word) else self._look_up(word)
        return self._cache[word]

    def _look_up(self, word: str) -> list[str]:
        found: dict[str, None] = {}
        for part in "nvar":
            bases = {base for forms in self._base_forms(word, part).values() for base in forms}
            for form in [word, *sorted(bases - {word})]:
                for lemma, synset in self._senses.get((form, part), ()):
                    found |= dict.fromkeys(other for other in self._members[synset] if other != lemma)
        return [other for other in found if other.lower() != word]

    def replace(self, words: Sequence[str], generator: np.random.Generator) -> list[str]:
        """The words with a random one of those that have synonyms replaced; all as they are if none has.

        Punctuation at its edges and a capital first letter are kept.
        """
        parts = [EDGES.fullmatch(word).groups() for word in words]
        places = [index for index, (_, word, _) in enumerate(parts) if self.of(word)]
        if not places:
            return list(words)
        place = places[int(generator.integers(len(places)))]
        before, word, after = parts[place]
        synonyms = self.of(word)
        chosen = synonyms[int(generator.integers(len(synonyms)))]
        if word[0].isupper():
            chosen = chosen[0].upper() + chosen[1:]
        return [*words[:place], before + chosen + after, *words[place + 1 :]]


Entry = tuple[str, list[str], list[str]]  # part of speech, the word and its other forms, the synsets of its senses


def _file_entries(path: Path) -> Iterator[Entry]:
    """The words of WN-LMF files, without a database."""
    from wn import lmf
    from wn.project import iterpackages

    for package in iterpackages(path):
        if package.type != "wordnet":
            continue
        for lexicon in lmf.load(package.resource_file(), progress_handler=None)["lexicons"]:
            for entry in lexicon.get("entries", []):
                lemma = entry.get("lemma")
                if lemma is None or entry.get("external"):  # what an extension says of another lexicon's word
                    continue
                forms = [lemma["writtenForm"], *(form["writtenForm"] for form in entry.get("forms", []))]
                synsets = [sense["synset"] for sense in entry.get("senses", [])]
                yield _part_of_speech(lemma["partOfSpeech"]), forms, synsets


def _database_entries(folder: Path) -> Iterator[Entry]:
    """The words of all lexicons of a `wn` data directory."""
    import wn

    before = wn.config.database_path.parent
    wn.config.data_directory = folder
    try:
        for word in wn.words():
            synsets = [f"{sense.lexicon().specifier()} {sense.synset().id}" for sense in word.senses()]
            yield _part_of_speech(word.pos), [str(form) for form in word.forms()], synsets
    finally:
        wn.config.data_directory = before


def _part_of_speech(part: str) -> str:
    return "a" if part == "s" else part  # satellite adjectives


def _replace_by_synonyms(sentences: Sequence[str], lexicon: str, seed: int, column: int) -> list[str]:
    from simcse_jax import parallel

    synonyms = Synonyms(lexicon)
    changed, without = [], 0
    for row, sentence in enumerate(sentences):
        words = sentence.split()
        replaced = synonyms.replace(words, row_generator(seed, row, column))
        without += replaced == words
        changed.append(" ".join(replaced))
    if without:
        parallel.say(f"{lexicon}: no synonym for any word of {without} of {len(sentences)} sentences; they stay")
    return changed


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

    from simcse_jax.models import huggingface, language_model, parameters, pretrained
    from simcse_jax.models.tokenizer import CHUNK, Tokenizer, read_backend, special_tokens

    if not model_name:
        raise UserError("data.augment.mlm_model: must name a model with a language-model head, e.g. bert-base-uncased")
    model = pretrained.load(model_name)
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
    graph, _ = huggingface.build(model.config, with_head=False)

    @jax.jit
    def predict(
        params: parameters.Params, ids: jax.Array, mask: jax.Array, places: jax.Array, before: jax.Array
    ) -> jax.Array:
        with jax.default_matmul_precision("highest"):  # float32 on TPUs and GPUs too
            hidden = parameters.merge(graph, params).encoder(ids, mask)[-1]
            scores = language_model.logits(
                jnp.take_along_axis(hidden, places[:, :, None], axis=1),
                model.language_model,
                params["encoder.embeddings.word.embedding"],
                activation=language_model.activation(model.config),
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
