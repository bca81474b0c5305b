"""Chooses the columns of a table that hold sentences, by role, and the one that holds labels."""

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
    """The indices in `names` of the anchor, positive, negative and neutral columns.

    The columns that `columns` maps; otherwise those with a usual name; otherwise, if there are at most three, by their
    order (only a single one if the order means nothing: `ordered` False). A column of labels does not count. Neutral
    hypotheses are used only if `columns` maps them.

    Raises:
      UserError: when a mapped column is missing, or the choice is not clear.
    """
    found = _choose(names, columns, where, ordered)
    for place in found:
        check_unique(names, names[place], where)
    return found


def _choose(names: Sequence[str], columns: Mapping[str, str], where: str, ordered: bool) -> list[int]:
    mapped = {role: columns[role] for role in ROLES if columns.get(role)}
    if mapped:
        _check_mapped(names, mapped, where)
        if "neutral" in mapped and "negative" not in mapped:
            raise UserError("data.columns.negative: data.columns.neutral is set, so this must be set too")
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
        f"{where}: which columns to use? It has {', '.join(names)}; set data.columns.anchor (and positive, negative)"
    )


def choose_labels(names: Sequence[str], columns: Mapping[str, str], needed_by: str, where: str) -> int | None:
    """The index of the label column: the mapped one or, if labels are needed, one with a usual name.

    Args:
      names, columns, where: as for `choose_columns`; only the role `label` of `columns` is used.
      needed_by: the setting that needs labels, for the message; empty if none does.

    Raises:
      UserError: when the mapped column is missing, or labels are needed and there are none.
    """
    if columns.get("label"):
        _check_mapped(names, {"label": columns["label"]}, where)
        check_unique(names, columns["label"], where)
        return list(names).index(columns["label"])
    if not needed_by:
        return None
    found = next((name for name in USUAL_LABELS if name in names), None)
    if found is None:
        raise UserError(
            f"{where}: no labels, but {needed_by} needs them; it has {', '.join(names)}: set data.columns.label"
        )
    return list(names).index(found)


def check_unique(names: Sequence[str], name: str, where: str) -> None:
    """Refuses a column whose name another column has too.

    Raises:
      UserError: naming the columns.
    """
    if list(names).count(name) > 1:
        raise UserError(f"{where}: {list(names).count(name)} columns are called {name!r}; rename them")


def _check_mapped(names: Sequence[str], mapped: Mapping[str, str], where: str) -> None:
    for role, name in mapped.items():
        if name not in names:
            raise UserError(f"{where}: no column {name!r} (data.columns.{role}); it has {', '.join(names)}")
