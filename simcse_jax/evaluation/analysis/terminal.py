"""The measurements, as lines for a terminal."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simcse_jax.evaluation.analysis.measure import Measurement
from simcse_jax.evaluation.analysis.report import PAGE
from simcse_jax.evaluation.analysis.tokens import Survey
from simcse_jax.evaluation.sts import aligned


def data_lines(data: str, surveys: Mapping[str, Survey], max_length: int) -> str:
    """The size of the data, and where less of it is measured than expected: a line for each tokenizer."""
    lines = []
    tokenizers = {survey.digest: survey for survey in surveys.values()}
    for digest, survey in tokenizers.items():
        names = ", ".join(label for label, other in surveys.items() if other.digest == digest)
        where = data if len(tokenizers) == 1 else f"{data} ({names})"
        protocol = survey.protocol
        types = f"{len(survey.names):,} token types that occur {protocol.min_count} times or more"
        lines.append(f"{where}: {len(survey.sentences):,} sentences, {survey.units.sum():,} tokens, {types}")
        if len(survey.sample) < protocol.samples:
            lines.append(f"{where}: the anisotropy baseline has {len(survey.sample)} tokens, one from each sentence")
        if survey.cut:
            lines.append(f"{where}: {survey.cut:,} of the sentences are longer than {max_length} tokens and are cut")
    return "\n".join(lines)


def table(found: Measurement) -> str:
    """A line for each layer, and the shares of the last one's dimensions."""
    numbers = found.to_json()
    header = ["layer", "anisotropy", "self-sim.", "intra-sent.", "L2 norm", "adj. self", "adj. intra"]
    rows = [
        [f"{row['layer']}", *(f"{value:.3f}" for name, value in row.items() if name != "layer")]
        for row in numbers["layers"]
    ]
    lines = [aligned([header, *rows])]
    for field, pairs in (("dimensions", "pairs of the same token"), ("dimensions_random_pairs", "random pairs")):
        part = numbers[field]
        if part["cumulated"] is None:
            lines.append(f"{pairs}: their mean cosine is not positive, so dimensions have no share of it")
            continue
        shares = ", ".join(f"{share:.3f}" for share in part["top_share"])
        needed = ", ".join(map(str, part["needed"].values()))
        lines.append(f"{pairs}: the top 1, 2, 3 dimensions make up {shares}; 10, 20, 50 % take {needed}")
    r2 = ", ".join(f"{row['r2']:.3f} ({row['k']})" for row in numbers["informativity"])
    return "\n".join([*lines, f"r² without the top k dimensions: {r2}"])


def change_lines(metrics: Mapping[str, Any]) -> str:
    """The tokens that changed most in each pair of models, and how two pairs agree; empty without pairs."""
    lines = []
    for pair in metrics["pairs"]:
        lines.append(f"\n{pair['base']} → {pair['model']}")
        lines.append(f"more contextualized: {' '.join(pair['more_contextualized'])}")
        lines.append(f"less contextualized: {' '.join(pair['less_contextualized'])}")
    for both in metrics["correlations"]:
        names = " and ".join(f"{base} → {model}" for model, base in both["pairs"])
        where = f"the {both['best_n']} most frequent of {len(both['by_n'])} tokens"
        lines.append(f"\n{names}: correlation of the changes: at best {both['best']:.3f}, over {where}")
    return "\n".join(lines)


def files_line(folder: Path, numbers: str, names: Sequence[str]) -> str:
    """The files that were written."""
    pictures = sum(name.endswith(".png") for name in names)
    return f"{folder}: {numbers}, {PAGE} and {pictures} pictures (PNG, SVG and their numbers in JSON)"
