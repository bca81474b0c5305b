"""A model for the analysis: tokens are single letters, and embeddings depend on the context."""

import weakref
from collections.abc import Iterator, Sequence

import numpy as np

SPECIAL = 0  # around each sentence
LAYERS, SIZE = 3, 12


class FakeEncoder:
    """Splits words into letters; `##a` is a letter inside a word. Hidden states are random, by sentence and place."""

    def __init__(self, seed: int = 0, scale: float = 1.0):
        self.seed, self.scale = seed, scale
        self.given: list[weakref.ref] = []
        self.most_alive = 0

    def tokenize(self, sentences: Sequence[str]) -> tuple[list[tuple[np.ndarray, np.ndarray]], int]:
        tokenized = []
        for sentence in sentences:
            ids, words = [SPECIAL], [-1]
            for number, word in enumerate(sentence.split()):
                ids += [ord(letter) + 1000 * (place > 0) for place, letter in enumerate(word)]
                words += [number] * len(word)
            tokenized.append((np.array([*ids, SPECIAL]), np.array([*words, -1])))
        return tokenized, sum(len(sentence) > 40 for sentence in sentences)

    def token(self, number: int) -> str:
        return "<s>" if number == SPECIAL else ("##" if number > 1000 else "") + chr(number % 1000)

    def states(self, sentence: str) -> np.ndarray:
        """(L + 1, T + 2, D), with two places of padding at the end."""
        ids = self.tokenize([sentence])[0][0][0]
        seed = [self.seed, *sentence.encode()]
        base = np.random.default_rng(self.seed).normal(size=(3000, SIZE))[np.r_[ids, 7, 7]]
        states = base + self.scale * np.random.default_rng(seed).normal(0.3, 1, (LAYERS + 1, len(base), SIZE))
        return states.astype(np.float32)

    def hidden_states(self, sentences: Sequence[str]) -> Iterator[tuple[int, np.ndarray]]:
        for row in reversed(range(len(sentences))):
            states = self.states(sentences[row])
            self.given.append(weakref.ref(states))
            self.most_alive = max(self.most_alive, sum(array() is not None for array in self.given))
            yield row, states
