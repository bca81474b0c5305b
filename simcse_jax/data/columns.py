"""Which columns of a table are sentences, and of which role; which one holds the labels."""

from collections.abc import Mapping, Sequence

from simcse_jax.errors import UserError

ROLES = ("anchor", "positive", "negative", "neutral")
# Column names that need no `data.columns`: the reference data's first.
USUAL_NAMES = {
    "anchor": ("sent0", "anchor", "sentence", "text"),
    "positive": ("sent1", "positive"),
    "negative": ("hard_neg", "negative"),
}
USUAL_LABELS = ("label", "gold_label")


def choose_columns(names: Sequence[str], columns: Mapping[str, str], where: str, ordered: bool = True) -> list[int]:
    """Which of the columns `names` are anchor, positive, negative and neutral.

    Those that `columns` maps; else those with a usual name; else, if there are at most three, by their order
    (only a single one where the order means nothing: `ordered` False). Labels are no sentences: a column of
    them is not counted. Neutral hypotheses are taken only where `columns` maps them.

    Raises:
      UserError: when a mapped column is not there, or nothing says which columns to take.
    """
    mapped = {role: columns[role] for role in ROLES if columns.get(role)}
    if mapped:
        _check_mapped(names, mapped, where)
        if "neutral" in mapped and "negative" not in mapped:
            raise UserError("data.columns.negative: must be set too, since data.columns.neutral is")
        return [list(names).index(name) for name in mapped.values()]
    usual = []
    for role in USUAL_NAMES:
        found = next((name for name in USUAL_NAMES[role] if name in names), None)
        if found is None:
            break
        usual.append(list(names).index(found))
    if usual:
        return usual
    by_order = [i for i, name in enumerate(names) if name not in (*USUAL_LABELS, columns.get("label"))]
    if 1 <= len(by_order) <= (3 if ordered else 1):
        return by_order
    raise UserError(
        f"{where}: which columns? It has {', '.join(names)}; set data.columns.anchor (and positive, negative)"
    )


def choose_labels(names: Sequence[str], columns: Mapping[str, str], needed_by: str, where: str) -> int | None:
    """Which of the columns `names` holds the labels: the mapped one, else, if something needs them, a usual name.

    Args:
      names, columns, where: as for `choose_columns`; the roles of sentences have no say in this one.
      needed_by: the setting that needs labels, for the message; empty: nothing does.

    Raises:
      UserError: when the mapped column is not there, or the labels that are needed are not.
    """
    if columns.get("label"):
        _check_mapped(names, {"label": columns["label"]}, where)
        return list(names).index(columns["label"])
    if not needed_by:
        return None
    found = next((name for name in USUAL_LABELS if name in names), None)
    if found is None:
        raise UserError(
            f"{where}: no labels, which {needed_by} needs; it has {', '.join(names)}: set data.columns.label"
        )
    return list(names).index(found)


def _check_mapped(names: Sequence[str], mapped: Mapping[str, str], where: str) -> None:
    for role, name in mapped.items():
        if name not in names:
            raise UserError(f"{where}: no column {name!r} (data.columns.{role}); it has {', '.join(names)}")
