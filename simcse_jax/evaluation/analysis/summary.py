"""The sentence that a report begins with: what changed in the last layer, in numbers."""

from collections.abc import Mapping, Sequence

from simcse_jax.evaluation.analysis.pictures import MEASURES

FIELDS = (
    "anisotropy",
    "adjusted_self_similarity",
    "adjusted_intra_sentence_similarity",
    "alignment",
    "uniformity",
)
MOST = 4  # runs, or pairs of models, that have a sentence each

Layer = Mapping[str, float]  # the measures of a layer, by field


def of_a_model(name: str, layers: Sequence[Layer]) -> str:
    """The measures of the last layer, and the layer whose anisotropy is highest."""
    last, highest = layers[-1], max(layers, key=lambda row: row["anisotropy"])
    measures = listed([f"{_title(field)} is {_number(last[field])}" for field in FIELDS if field in last])
    text = f"In the last layer of {name}, {measures}"
    if _number(highest["anisotropy"]) == _number(last["anisotropy"]):
        return f"{text}; no layer has a higher anisotropy."
    return f"{text}; anisotropy is highest in layer {highest['layer']}, {_number(highest['anisotropy'])}."


def of_two_models(before: str, after: str, base: Layer, tuned: Layer) -> str:
    """How the last layer of one model differs from that of another."""
    changes = {field: change(base[field], tuned[field]) for field in FIELDS if field in base and field in tuned}
    if all(text.startswith("stayed") for text in changes.values()):
        same = listed([f"{_title(field)} {_number(base[field])}" for field in changes])
        return f"From {before} to {after} nothing changed in these measures of the last layer: {same}."
    parts = [f"{_title(field)} {text}" for field, text in changes.items()]
    return f"In the last layer, from {before} to {after}, {listed(parts)}."


def of_runs(runs: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """How the last layer of each run changed from its first measured step to its last."""
    sentences = []
    for name, points in list(runs.items())[:MOST]:
        first, last = points[0], points[-1]
        fields = [field for field in FIELDS if field in first and field in last]
        if len(points) == 1:
            numbers = listed([f"{_title(field)} {_number(last[field])}" for field in fields])
            sentences.append(f"{name} was measured once, at step {last['step']}: {numbers} in the last layer.")
            continue
        changes = [f"{_title(field)} {change(first[field], last[field])}" for field in fields]
        steps = f"from step {first['step']} to step {last['step']}"
        sentences.append(f"{name}, last layer, {steps}: {listed(changes)}.")
    if (more := len(runs) - MOST) > 0:
        sentences.append(f"The table below has {more} more run{'s' * (more > 1)}.")
    return " ".join(sentences)


def change(before: float, after: float) -> str:
    """The change of a number in words: "fell from 0.470 to 0.120"."""
    first, last = _number(before), _number(after)
    if first == last:
        return f"stayed at {first}"
    return f"{'rose' if after > before else 'fell'} from {first} to {last}"


def _title(field: str) -> str:
    title = MEASURES[field].title
    return title[0].lower() + title[1:]


def _number(value: float) -> str:
    text = f"{value:.3f}"
    return "0.000" if text == "-0.000" else text


def listed(parts: Sequence[str]) -> str:
    """ "a, b and c"."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)
