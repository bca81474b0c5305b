"""Replaces words with synonyms from WordNet."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simcse_jax.errors import UserError, reason, require
from simcse_jax.host.storage import local_path

# nlpaug's part-of-speech tags leave these out: in WordNet, "a" is the ampere.
DETERMINERS = re.compile("an?|all|another|any|both|each|either|every|neither|no|some|th(at|e|ese|is|ose)")
EDGES = re.compile(r"(\W*)(.*?)(\W*)")  # punctuation, the word, punctuation


class Synonyms:
    """Replaces a word with a synonym: another word in one of its synsets.

    As in nlpaug, which the paper used, any synset of the word counts, inflected words have the synsets of their base
    form (English suffixes are removed, irregular forms are in the lexicon), and determiners are kept. Unlike nlpaug, it
    does not tag parts of speech but uses all, and it chooses among the words that have a synonym.
    """

    def __init__(self, lexicon: str):
        """Reads a WordNet: a WN-LMF file or package, also compressed."""
        require("wordnet", "wn", where="data.augment.name=synonym")
        from wn.morphy import Morphy

        self._base_forms = Morphy()
        self._senses: dict[tuple[str, str], list[tuple[str, str]]] = {}  # (form, part of speech): (word, synset)
        self._members: dict[str, dict[str, None]] = {}  # synset: its words, as written
        self._cache: dict[str, list[str]] = {}
        try:
            for part, forms, synsets in _entries(local_path(lexicon)):
                for synset in synsets:
                    self._members.setdefault(synset, {})[forms[0]] = None
                for form in dict.fromkeys(form.lower() for form in forms):
                    self._senses.setdefault((form, part), []).extend((forms[0], synset) for synset in synsets)
        except Exception as error:  # the package's own, the XML parser's or bare assertions
            raise UserError(f"data.augment.lexicon={lexicon}: not a readable WN-LMF lexicon: {reason(error)}") from None

    def of(self, word: str) -> list[str]:
        """The synonyms of a word, in the lexicon's order; none for a determiner."""
        word = word.lower()
        if word not in self._cache:
            self._cache[word] = [] if DETERMINERS.fullmatch(word) else self._look_up(word)
        return self._cache[word]

    def _look_up(self, word: str) -> list[str]:
        lemmas: dict[str, None] = {}
        for part in "nvar":
            bases = {base for forms in self._base_forms(word, part).values() for base in forms}
            for form in [word, *sorted(bases - {word})]:
                for lemma, synset in self._senses.get((form, part), ()):
                    lemmas |= dict.fromkeys(other for other in self._members[synset] if other != lemma)
        return [other for other in lemmas if other.lower() != word]

    def replace(self, words: Sequence[str], generator: np.random.Generator) -> list[str]:
        """Replaces a random one of the words that have synonyms, if any, keeping punctuation and capitalization."""
        parts = [match.groups() for match in map(EDGES.fullmatch, words) if match]
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


def _entries(path: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """The part of speech of each word, the word and its other forms, the synsets of its senses."""
    from wn import lmf
    from wn.project import iterpackages

    for package in iterpackages(path):
        for lexicon in lmf.load(package.resource_file(), progress_handler=None)["lexicons"]:
            entries: list[Any] = list(lexicon.get("entries", []))
            for entry in entries:
                lemma = entry.get("lemma")
                if lemma is None or entry.get("external"):  # an extension's entry for another lexicon's word
                    continue
                part = "a" if lemma["partOfSpeech"] == "s" else lemma["partOfSpeech"]  # satellite adjectives
                forms = [lemma["writtenForm"], *(form["writtenForm"] for form in entry.get("forms", []))]
                yield part, forms, [sense["synset"] for sense in entry.get("senses", [])]
