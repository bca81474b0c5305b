"""Chooses a table's columns of sentences by role, and its columns of labels and scores."""

import itertools
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from simcse_jax.data.files import stem_of
from simcse_jax.data.row_lists import Negatives, numbered
from simcse_jax.data.rows import Row, is_number
from simcse_jax.errors import UserError

ROLES = ("anchor", "positive", "negative", "neutral")
# Column names recognized without `data.columns`, ignoring case, spaces, hyphens and underscores. Pairs of anchor and
# positive come first; then names of a single role, those of the reference data first.
PAIRS = (
    *(("sent0", "sent1"), ("anchor", "positive"), ("anchor", "pos"), ("sentence1", "sentence2")),
    *(("sentencea", "sentenceb"), ("premise", "hypothesis"), ("query", "positive"), ("query", "pos")),
    *(("query", "passage"), ("query", "document"), ("query", "answer"), ("query", "response")),
    *(("question", "answer"), ("question", "passage"), ("question", "positive"), ("question1", "question2")),
    *(("prompt", "response"), ("prompt", "completion"), ("prompt", "chosen"), ("text1", "text2"), ("texta", "textb")),
    *(("sent1", "sent2"), ("s1", "s2"), ("caption1", "caption2"), ("title1", "title2")),
)
# These pairs mean something else next to further columns of sentences, so they count only on their own.
ALONE = (
    *(("source", "target"), ("source", "paraphrase"), ("title", "abstract"), ("title", "body")),
    *(("text", "simplified"), ("text", "summary"), ("text", "paraphrase"), ("sentence", "paraphrase")),
)
USUAL_NAMES = {
    "anchor": ("sent0", "anchor", "sentence", "text", "sentence1"),
    "positive": ("sent1", "positive", "sentence2"),
    "negative": ("hard_neg", "negative", "neg", "hard_negative", "negatives", "hard_negatives", "rejected"),
}
EARLIER = ("sent0", "anchor", "sentence", "text")  # anchor names that all versions know
USUAL_VALUES = {"label": ("label", "gold_label"), "score": ("score", "pos_scores")}
# Scores of a row's positive and of its hard negatives: in a column each (of `mine` with a judge, of FlagEmbedding, of
# `mine` alone), or in one column of lists, as sentence-transformers names it.
SCORED_APART = (
    ("positive_judged", "negative_judged"),
    ("pos_scores", "neg_scores"),
    ("positive_score", "negative_scores"),
)
SCORED_TOGETHER = ("scores", "score", "labels", "label")
# Columns that number the rows, in any case.
NUMBERING = {"", "#", "no", "no.", "nr", "row", "id", "_id", "idx", "index", "guid", "uid", "uuid", "pid", "qid"}
NUMBERING |= {"pairid", "pair_id", "docid", "doc_id", "query_id", "passage_id", "unnamed: 0", "__index_level_0__"}
# Columns of metadata, in any case, read as sentences only if mapped, or if there is nothing else.
METADATA = {"genre", "source", "lang", "language", "url", "uri", "link", "date", "time", "timestamp", "year", "split"}
METADATA |= {"category", "topic", "domain", "dataset", "subset", "type", "tag", "tags", "author", "file", "filename"}
METADATA |= {"labels", "scores", "negative_rows", *itertools.chain(*SCORED_APART)}
LOOKED_AT = 1000  # rows examined to see whether a column chosen without its name holds sentences
MANY = 12  # in this many rows, sentences are rarely all alike
NOT_SENTENCES: dict[str, Callable[[str], object]] = {  # if all cells of a column match
    "numbers": is_number,
    "dates": re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ]\d{1,2}:\d{2}\S*)?|\d{1,2}:\d{2}(:\d{2})?").fullmatch,
    "links": re.compile(r"(\w+://|www\.)\S+").fullmatch,
    "identifiers": re.compile(r"(?=\D*\d)[\w.:/#-]+", re.ASCII).fullmatch,
}
ENDS = tuple(".!?。！？")  # of sentences


def is_sentences(name: str) -> bool:
    """Whether a column's name allows sentences."""
    return is_content(name) and name.strip().lower() not in METADATA


def is_content(name: str) -> bool:
    """Whether a column's name is none of those for labels, scores and row numbers."""
    return name.strip().lower() not in {*itertools.chain(*USUAL_VALUES.values()), *NUMBERING}


class Chosen(NamedTuple):
    """The columns that hold sentences."""

    places: list[int]  # of the anchor, the positive, the hard negatives and the neutral hypothesis
    negatives: Negatives  # which of these are hard negatives
    unsure: tuple[int, ...] = ()  # which of `places` were not chosen by name
    alone: bool = False  # the table has no other column
    missed: frozenset[str] = frozenset()  # usual names of the next role, which the table lacks
    unread: tuple[str, ...] = ()  # further columns that may hold sentences


def choose_columns(
    names: Sequence[str], columns: Mapping[str, str], where: str, ordered: bool = True, graded: bool = False
) -> Chosen:
    """The indices in `names` of the anchor, positive, negative and neutral columns.

    In this order of preference: the columns that `columns` maps; a known pair of names; columns with usual names, with
    the only other column as the anchor if it has none; up to three columns by their order (only one if `ordered` is
    False). Columns of labels, scores, row numbers and metadata do not count. Neutral hypotheses are used only if
    mapped. `graded` pairs have no negatives. Columns NAME_1, NAME_2, … are used if there is no NAME for negatives.
    """
    roles = {role: known for role, known in USUAL_NAMES.items() if not (graded and role == "negative")}
    if mapped := {role: columns[role] for role in ROLES if columns.get(role)}:
        found = _mapped(names, mapped, where)
    else:
        read = (columns.get("label"), columns.get("score"))
        content = [name for name in names if is_content(name) and name not in read]
        sentences = [name for name in content if is_sentences(name)] or (content if len(content) == 1 else [])
        found = _by_name(names, sentences, where, roles) or _by_order(names, sentences, content, where, ordered)
    for place in found.places:
        check_unique(names, names[place], where)
    return found._replace(alone=len(names) == 1)


def _mapped(names: Sequence[str], mapped: Mapping[str, str], where: str) -> Chosen:
    further = _numbered(names, mapped.get("negative"), where)
    _check_mapped(names, {role: name for role, name in mapped.items() if role != "negative" or not further}, where)
    if "neutral" in mapped and "negative" not in mapped:
        raise UserError("data.columns.negative: data.columns.neutral is set, so this must be set too")
    return _chosen(names, {role: [name] for role, name in mapped.items()}, further)


def _by_name(
    names: Sequence[str], sentences: Sequence[str], where: str, usual_names: Mapping[str, tuple[str, ...]]
) -> Chosen | None:
    """The columns of a known pair and those with usual names; None without any."""
    usual: dict[str, list[str]] = {}
    further: list[str] = []
    pair, weak = _pair_of(names, PAIRS), _pair_of(names, ALONE)
    is_weak = not pair and bool(weak) and {*sentences} <= set(weak.values())
    pair = weak if is_weak else pair
    for role, known in usual_names.items():
        found = [pair[role]] if role in pair else _named(names, known)
        if found and role == "negative" and (others := numbered(names, found[0], where)):
            raise UserError(f"{where}: has {found[0]!r} and {others[0]!r}; set data.columns.negative to the one to use")
        if not found and role == "negative":
            found = further = next(filter(None, (_numbered(names, name, where) for name in known)), [])
        if found:
            usual[role] = found
    if not usual:
        return None
    named = {name for found in usual.values() for name in found}
    others = [name for name in sentences if name not in named]
    is_left = "anchor" not in usual and len(others) == 1
    if is_left:
        usual, others = {"anchor": others, **usual}, []
    if missing := next((role for role in list(usual_names)[: len(usual)] if role not in usual), None):
        last = usual[list(usual)[-1]][0]
        raise UserError(
            f"{where}: has {last!r}, but which column is the {missing}? There are {', '.join(names)}; set "
            "data.columns.anchor (and positive, negative)"
        )
    missed = next((known for role, known in usual_names.items() if role not in usual), ())
    unsure = (0, 1) if is_weak else (0,) if is_left else ()
    chosen = _chosen(names, usual, further)
    return chosen._replace(unsure=unsure, missed=frozenset(missed), unread=tuple(others))


def _by_order(
    names: Sequence[str], sentences: Sequence[str], content: Sequence[str], where: str, ordered: bool
) -> Chosen:
    """Up to three columns of sentences; only one if the order means nothing."""
    count = len(sentences)
    if not 1 <= count <= (3 if ordered else 1):
        raise UserError(
            f"{where}: which columns to use? It has {', '.join(names)}; set data.columns.anchor (and positive, "
            "negative)"
        )
    check_header(sentences, where, "the columns, e.g. sent0,sent1,hard_neg (or set data.columns.anchor)")
    left_out = tuple(name for name in content if name not in sentences)
    places = [list(names).index(name) for name in sentences]
    return Chosen(places, Negatives(min(2, count), count), tuple(range(count)), unread=left_out)


def check_header(names: Sequence[str], where: str, remedy: str) -> None:
    """Refuses a table of a text file whose first line is a sentence, which would be lost."""
    for name in names if where.lower().endswith((".csv", ".tsv")) else ():
        if len(name.split()) > 3 or len(name) > 60 or name.strip().endswith(ENDS):
            raise UserError(
                f"{where}: {name!r:.60} looks like a sentence, not like a column's name; the first line must name "
                f"{remedy}"
            )


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]", "", name.lower())


def _pair_of(names: Sequence[str], pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The anchor and positive columns with the first of these pairs of names that the table has; empty if none."""
    written = {_plain(name): name for name in reversed(names)}
    found = next((pair for pair in pairs if pair[0] in written and pair[1] in written), ())
    return dict(zip(ROLES, (written[name] for name in found), strict=False))


def _named(names: Sequence[str], usual: Sequence[str]) -> list[str]:
    """The column with the first of these names, spelled exactly or else similarly; empty if there is none."""
    for written in (str, _plain):
        for wanted in map(written, usual):
            if found := next((name for name in names if written(name) == wanted), None):
                return [found]
    return []


def _numbered(names: Sequence[str], name: str | None, where: str) -> list[str]:
    """The columns NAME_1, NAME_2, … of a table without a column NAME."""
    return numbered(names, name, where) if name and name not in names else []


def _chosen(names: Sequence[str], by_role: Mapping[str, list[str]], further: list[str]) -> Chosen:
    """The choice of columns by role; numbered columns of negatives, if any, replace a single one."""
    by_role = {**by_role, **({"negative": further} if further else {})}
    places: list[int] = []
    first = end = 0
    for role in ROLES:
        if role == "negative":
            first = len(places)
        places += [list(names).index(name) for name in by_role.get(role, ())]
        if role == "negative":
            end = len(places)
    return Chosen(places, Negatives(first, end, numbered=bool(further)))


def fitting(rows: Iterator[Row], chosen: Chosen, names: Sequence[str], where: str) -> Iterator[Row]:
    """The same rows, if they fit the choice of columns."""
    rows = only_sentences(rows, chosen, names, where)
    return _without_late(rows, chosen) if where.lower().endswith(".jsonl") else rows


def only_sentences(rows: Iterator[Row], chosen: Chosen, names: Sequence[str], where: str) -> Iterator[Row]:
    """The same rows; refuses a column chosen without its name that has numbers, dates, links, or category names."""
    first = list(itertools.islice(rows, LOOKED_AT if chosen.unsure else 0))
    for place in (chosen.places[each] for each in chosen.unsure if each < len(chosen.places)):
        values = [value.strip() for row in first if isinstance(value := row.fields[place], str) and value.strip()]
        if values and (what := _other_than_sentences(values, chosen.alone)):
            raise UserError(
                f"{where}: the field {names[place]!r} holds {what}; which columns to use? There are "
                f"{', '.join(names)}; set data.columns.anchor (and positive, negative)"
            )
    return itertools.chain(first, rows)


def _other_than_sentences(values: Sequence[str], alone: bool) -> str:
    """What a column holds instead of sentences; "" if sentences. A table's only column is refused only for numbers."""
    for kind, is_one in NOT_SENTENCES.items():
        if all(map(is_one, values)) and not (alone and kind != "numbers"):
            return f"{kind}, e.g. {values[0]:.20}"
    distinct = len(set(values))
    are_short = sum(map(_words, values)) <= 3 * len(values)
    if not alone and len(values) >= MANY and distinct <= len(values) // (3 if are_short else 16):
        return f"{distinct} different values in {len(values)} rows, e.g. {values[0]:.20}"
    return ""


def _words(text: str) -> int:
    """The number of words in a text, counting two characters as one in scripts without spaces (Chinese, Japanese)."""
    return len(text.split()) + sum(each >= "\u2e80" for each in text) // 2


def _without_late(rows: Iterator[Row], chosen: Chosen) -> Iterator[Row]:
    for row in rows:
        for name in row.late:
            if (chosen.unsure and is_sentences(name)) or {name, stem_of(name)} & chosen.missed:
                raise UserError(
                    f"{row.where}: has the field {name!r}, which the first line lacks; name the columns to read, "
                    "data.columns.anchor (and positive, negative), or give it there too"
                )
        yield row


def warn_of_unread(names: Sequence[str], chosen: Chosen, where: str) -> None:
    """Warns about columns that are not read: further sentences, and labels or scores, without which all pairs count."""
    if chosen.unread:
        listed = ", ".join(map(repr, chosen.unread[:3])) + (", …" if len(chosen.unread) > 3 else "")
        alone = len(chosen.places) == 1
        read = ", ".join(repr(names[place]) for place in chosen.places[:3]) + (", …" if len(chosen.places) > 3 else "")
        which = f"column {read} is" if alone else f"columns {read} are"
        cure = (
            "data.columns.anchor and positive name those of pairs" if alone else "data.columns.negative names another"
        )
        warnings.warn(f"{where}: only its {which} read, and not {listed}; {cure}", stacklevel=2)
    if len(chosen.places) > 1:
        cure = "data.positives chooses by label, data.columns.anchor and positive name the columns"
        warn_of_labels(names, f"{where}: ", f"; {cure}")


def warn_of_labels(names: Sequence[str], before: str, after: str) -> None:
    """Warns, between two texts, about an unread column of labels or scores: all pairs then count as positives."""
    unread = next((name for name in names if name.strip().lower() in (*USUAL_VALUES["label"], "score")), None)
    if unread is not None:
        said = f"its column {unread!r} is not read, so every pair counts as a positive"
        warnings.warn(f"{before}{said}{after}", stacklevel=3)


def choose_values(
    kind: str, names: Sequence[str], columns: Mapping[str, str], needed_by: str, where: str
) -> int | None:
    """The index of the column of labels or scores (`kind`: label, score): the mapped one, or one with a usual name.

    None if none is mapped, and `needed_by`, the setting that needs one, is empty.
    """
    name = columns.get(kind)
    if name:
        _check_mapped(names, {kind: name}, where)
    elif not needed_by:
        return None
    elif found := _named(names, USUAL_VALUES[kind]):
        (name,) = found
    else:
        raise UserError(
            f"{where}: no {kind}s, but {needed_by} needs them; it has {', '.join(names)}: set data.columns.{kind}"
        )
    check_unique(names, name, where)
    return list(names).index(name)


def choose_candidate_scores(names: Sequence[str], columns: Mapping[str, str], needed_by: str, where: str) -> list[int]:
    """The indices of the columns with the scores of a row's positive and its hard negatives: two, or one of lists.

    `columns` may map the score to a column of lists, or to one of two that belong together.
    """
    mapped = columns.get("score")
    if mapped:
        _check_mapped(names, {"score": mapped}, where)
    known = [pair for pair in SCORED_APART if not mapped or mapped in pair]
    found = next((list(pair) for pair in known if {*pair} <= {*names}), [mapped] if mapped else [])
    found = found or _named(names, SCORED_TOGETHER)
    if not found:
        raise UserError(
            f"{where}: no scores of positives and hard negatives, but {needed_by} needs them; it has "
            f"{', '.join(names)}: set data.columns.score, or teacher.model to a model that gives them"
        )
    for name in found:
        check_unique(names, name, where)
    return [list(names).index(name) for name in found]


def check_unique(names: Sequence[str], name: str, where: str) -> None:
    """Refuses a column name that is not unique."""
    if list(names).count(name) > 1:
        raise UserError(f"{where}: {list(names).count(name)} columns are called {name!r}; rename them")


def _check_mapped(names: Sequence[str], mapped: Mapping[str, str], where: str) -> None:
    for role, name in mapped.items():
        if name not in names:
            raise UserError(f"{where}: no column {name!r} (data.columns.{role}); it has {', '.join(names)}")
