"""Chooses a table's columns of sentences by role, and its columns of labels and scores."""

import decimal
import itertools
import numbers
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from shlex import quote
from typing import NamedTuple

from simcse_jax.data.row_lists import Negatives, numbered
from simcse_jax.data.rows import Row, is_number
from simcse_jax.data.scores import parse_score
from simcse_jax.errors import UserError, near

ROLES = ("anchor", "positive", "negative", "neutral")
# Column names recognized without `data.columns`, ignoring case, spaces and punctuation. Pairs of anchor and positive
# come first; then names of a single role, those of the reference data first.
SENTENCE_PAIRS = (  # of two sentences, neither of which asks for the other
    *(("sent0", "sent1"), ("sentence1", "sentence2"), ("sentencea", "sentenceb"), ("premise", "hypothesis")),
    *(("text1", "text2"), ("texta", "textb"), ("sent1", "sent2"), ("s1", "s2"), ("caption1", "caption2")),
    ("title1", "title2"),
)
PAIRS = (
    *(*SENTENCE_PAIRS, ("anchor", "positive"), ("anchor", "pos"), ("query", "positive"), ("query", "pos")),
    *(("query", "passage"), ("query", "document"), ("query", "answer"), ("query", "response")),
    *(("question", "answer"), ("question", "passage"), ("question", "positive"), ("question1", "question2")),
    *(("prompt", "response"), ("prompt", "completion"), ("prompt", "chosen")),
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
SCORES = (  # of pairs; the last are 0 or 1
    *("score", "similarity", "similarity_score", "sim", "relatedness", "relatedness_score", "rating", "human_score"),
    *("gold", "gold_score", "relevance", "relevance_score"),
    *("is_duplicate", "is_paraphrase", "duplicate", "paraphrase_label"),
)
USUAL_VALUES = {"label": ("label", "gold_label"), "score": ("score", "pos_scores", *SCORES[1:])}
AMBIGUOUS = {"gold", "duplicate"}  # also names of sentences: the right answer, another question
# Scores of a row's positive and of its hard negatives: in a column each (of `mine` with a judge, of FlagEmbedding, of
# `mine` alone), or in one column of lists, as sentence-transformers names it.
SCORED_APART = (
    ("positive_judged", "negative_judged"),
    ("pos_scores", "neg_scores"),
    ("positive_score", "negative_scores"),
)
SCORED_TOGETHER = ("scores", "score", "labels", "label")
# The last words of columns that number the rows, unless these are needed: `text_id` is Indonesian.
IDENTIFIERS = {"id", "ids", "idx", "index", "nr", "guid", "uid", "uuid", "pid", "qid", "pairid", "docid"}
NUMBERING = IDENTIFIERS - {"ids"} | {"", "no", "row", "queryid", "passageid"}  # names that surely number the rows
# Columns of metadata, read as sentences only if mapped, or if there is nothing else.
METADATA = {"genre", "source", "lang", "language", "url", "uri", "link", "date", "time", "timestamp", "year", "split"}
METADATA |= {"category", "topic", "domain", "dataset", "subset", "type", "tag", "tags", "author", "file", "filename"}
METADATA |= {"labels", "scores", "negativerows", *(name.replace("_", "") for name in itertools.chain(*SCORED_APART))}
LOOKED_AT = 1000  # rows examined to see whether a column chosen without its name holds sentences
MANY = 12  # in this many rows, sentences are rarely all alike
CODE = re.compile(  # a date, a link or an identifier
    r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4} \d\S*|(\w+://|www\.)\S+|(?=\D*\d)[\w.:/#-]+", re.ASCII
)
CURE = "set data.columns.anchor (and positive, negative)"
ENDS = tuple(".!?。！？")  # of sentences
SHOWN = 12  # names of columns in an error


def is_sentences(name: str) -> bool:
    """Whether a column's name allows sentences."""
    return is_content(name) and plain(name) not in METADATA


def is_content(name: str) -> bool:
    """Whether a column's name is none of those for labels, scores and row numbers."""
    is_value = any(of_values([name], usual) for usual in USUAL_VALUES.values())
    return not _is_numbering(name) and (not is_value or plain(name) in AMBIGUOUS)


def _is_numbering(name: str) -> bool:
    """Whether a column surely numbers the rows, as unnamed ones do, under pandas' names for them too."""
    return plain(name) in NUMBERING or bool(re.fullmatch(r"(unnamed|indexlevel)[\d.]+", plain(name)))


def _last_word(name: str) -> str:
    """The last word of a column's name, without digits: `id` of `questionID2`."""
    words = re.findall(r"[^\W\d_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())
    return words[-1] if words else ""


def listed(names: Sequence[str], wanted: str = "") -> str:
    """The names of a table's columns for a message: of many, the first or those like `wanted`, and their number."""
    many = len(names) > SHOWN
    some = (many and near(wanted, names)) or names[:SHOWN]
    return ", ".join(one_line(name, 60) for name in some) + f", … ({len(names)} columns)" * many


def one_line(text: object, most: int = 20) -> str:
    """The beginning of a text for a message, without line breaks."""
    return re.sub(r"\s*[\r\n\t]+\s*", " ", str(text).strip())[:most].strip()


class Chosen(NamedTuple):
    """The columns that hold sentences."""

    places: list[int]  # of the anchor, the positive, the hard negatives and the neutral hypothesis
    negatives: Negatives  # which of these are hard negatives
    unsure: tuple[int, ...] = ()  # which of `places` were not chosen by name
    alone: bool = False  # the table has no other column
    unread: tuple[str, ...] = ()  # further columns that may hold sentences
    scored: bool = False  # not named, and next to a column of scores


def choose_columns(
    names: Sequence[str], columns: Mapping[str, str], where: str, ordered: bool = True, graded: bool = False
) -> Chosen:
    """The indices in `names` of the anchor, positive, negative and neutral columns.

    In this order of preference: the columns that `columns` maps; a known pair of names; columns with usual names, with
    the only other column as the anchor if it has none; up to three columns by their order (only one if `ordered` is
    False). Columns of labels, scores, row numbers and metadata do not count. Neutral hypotheses are used only if
    mapped. `graded` pairs have no negatives. Columns NAME_1, NAME_2, … are used if there is no NAME for negatives.
    """
    roles = {role: spellings for role, spellings in USUAL_NAMES.items() if not (graded and role == "negative")}
    if mapped := {role: columns[role] for role in ROLES if columns.get(role)}:
        chosen = _mapped(names, mapped, where)
    else:
        read = (columns.get("label"), columns.get("score"))
        content = [name for name in names if is_content(name) and name not in read]
        rest = [name for name in content if _last_word(name) not in IDENTIFIERS]
        content = rest if sum(map(is_sentences, rest)) > 1 else content
        sentences = [name for name in content if is_sentences(name)] or (content if len(content) == 1 else [])
        chosen = _by_name(names, sentences, where, roles) or _by_order(names, sentences, content, where, ordered)
    for place in chosen.places:
        place_of(names, names[place], where)
    return chosen._replace(alone=len(names) == 1, scored=not mapped and bool(of_values(names, SCORES)))


def place_of(names: Sequence[str], name: str, where: str, field: str = "") -> int:
    """The index of a column, whose name must be there, and only once; `field` is the setting that names it."""
    if name not in names:
        said = f" ({field})" if field else ""
        raise UserError(f"{where}: no column {name!r:.60}{said}; it has {listed(names, name)}")
    if list(names).count(name) > 1:
        raise UserError(f"{where}: {list(names).count(name)} columns are called {name!r}; rename them")
    return list(names).index(name)


def choose_column(names: Sequence[str], column: str | None, where: str) -> str:
    """The one column of sentences to encode or to search: the named one, one with a usual name, or the only one.

    Refuses a first line that is a sentence.
    """
    if column is None:
        usual = _named(names, ("sentence", "text", *USUAL_NAMES["anchor"]))
        candidates = usual or [name for name in names if is_sentences(name) or len(names) == 1]
        if len(candidates) != 1:
            raise UserError(f"{where}: which column to use? It has {listed(names)}; name one with column (--column)")
        column = candidates[0]
        remedy = "name the column in the first line, e.g. sentence (a .txt has no such line), or this one with --column"
        check_header(column, [], where, remedy)
    place_of(names, column, where)
    return column


def _mapped(names: Sequence[str], mapped: Mapping[str, str], where: str) -> Chosen:
    further = _numbered(names, mapped.get("negative"))
    for role, name in mapped.items():
        if role != "negative" or not further:
            place_of(names, name, where, f"data.columns.{role}")
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
    for role, spellings in usual_names.items():
        columns = [pair[role]] if role in pair else _named(names, spellings)
        if columns and role == "negative" and (more := numbered(names, columns[0])):
            raise UserError(f"{where}: has {columns[0]!r} and {more[0]!r}; set data.columns.negative to the one to use")
        if not columns and role == "negative":
            columns = further = next(filter(None, (_numbered(names, name) for name in spellings)), [])
        if columns:
            usual[role] = columns
    if not usual:
        return None
    named = {name for columns in usual.values() for name in columns}
    unread = [name for name in sentences if name not in named]
    is_left = "anchor" not in usual and len(unread) == 1
    if is_left:
        usual, unread = {"anchor": unread, **usual}, []
    if missing := next((role for role in list(usual_names)[: len(usual)] if role not in usual), None):
        has = f"has {usual[list(usual)[-1]][0]!r:.60}, but which column is the {missing}?"
        raise UserError(f"{where}: {has} There are {listed(names)}; {CURE}")
    unsure = (0, 1) if is_weak else (0,) if is_left else ()
    return _chosen(names, usual, further)._replace(unsure=unsure, unread=tuple(unread))


def _by_order(
    names: Sequence[str], sentences: Sequence[str], content: Sequence[str], where: str, ordered: bool
) -> Chosen:
    """Up to three columns of sentences; only one if the order means nothing."""
    count = len(sentences)
    if not 1 <= count <= (3 if ordered else 1):
        raise UserError(f"{where}: which columns to use? It has {listed(names)}; {CURE}")
    left_out = tuple(name for name in content if name not in sentences)
    places = [list(names).index(name) for name in sentences]
    return Chosen(places, Negatives(min(2, count), count), tuple(range(count)), unread=left_out)


def check_header(name: str, values: Sequence[str], where: str, remedy: str) -> None:
    """Refuses a table of a text file whose first line is a sentence, which would be lost.

    One that is shorter than nearly all of many `values` below it is taken for a name, such as a form's question, with
    a warning.
    """
    is_long = len(name.split()) > 3 or len(name) > 60 or name.strip().endswith(ENDS)
    if not (where.lower().endswith((".csv", ".tsv")) and is_long):
        return
    if len(values) < MANY or len(name) >= sorted(map(len, values))[len(values) // 20]:
        raise UserError(f"{where}: {remedy}: {name!r:.60} in the first line looks like a sentence")
    warnings.warn(f"{where}: {name!r:.60} in the first line is read as the name of a column", stacklevel=2)


def plain(name: str) -> str:
    """A column's name as names are compared: without case, spaces and punctuation, but with pandas' `.1`."""
    return re.sub(r"(?!\.\d)[\W_]", "", name.lower())


def _pair_of(names: Sequence[str], pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The anchor and positive columns with the first of these pairs of names that the table has; empty if none."""
    written = {plain(name): name for name in reversed(names)}
    for anchor, positive in pairs:
        if anchor in written and positive in written:
            return {"anchor": written[anchor], "positive": written[positive]}
    return {}


def _named(names: Sequence[str], usual: Sequence[str]) -> list[str]:
    """The column with the first of these names, spelled exactly or else similarly; empty if there is none."""
    for written in (str, plain):
        by_name = {written(name): name for name in reversed(names)}
        if found := [by_name[written(name)] for name in usual if written(name) in by_name]:
            return found[:1]
    return []


def of_values(names: Sequence[str], usual: Sequence[str]) -> list[str]:
    """The columns with usual names of labels or scores, perhaps with a range in brackets, the likeliest first."""
    written = {plain(re.sub(r"\s*[(\[][^)\]]*\d.*", "", name) or name): name for name in reversed(names)}
    return [name if name in names else written[plain(name)] for name in usual if plain(name) in written]


def _numbered(names: Sequence[str], name: str | None) -> list[str]:
    """The columns NAME_1, NAME_2, … of a table without a column NAME."""
    return numbered(names, name) if name and name not in names else []


def _chosen(names: Sequence[str], by_role: Mapping[str, list[str]], further: list[str]) -> Chosen:
    """The choice of columns by role; numbered columns of negatives, if any, replace a single one."""
    by_role = {**by_role, **({"negative": further} if further else {})}
    places = {role: [list(names).index(name) for name in by_role.get(role, ())] for role in ROLES}
    first = len(places["anchor"] + places["positive"])
    negatives = Negatives(first, first + len(places["negative"]), numbered=bool(further))
    return Chosen(list(itertools.chain.from_iterable(places.values())), negatives)


def only_sentences(rows: Iterator[Row], chosen: Chosen, names: Sequence[str], where: str) -> Iterator[Row]:
    """The same rows; refuses a column chosen without its name that has numbers, dates, links, or category names.

    Also a first line that is a sentence, and one column of two lines a cell next to scores: what seems to be a pair.
    """
    alone = len(chosen.places) == 1 and chosen.scored
    first = list(itertools.islice(rows, LOOKED_AT if chosen.unsure or alone else 0))
    cells = {place: _written(row.fields[place] for row in first) for place in chosen.places}
    for place in (chosen.places[index] for index in chosen.unsure if index < len(chosen.places)):
        values, name = cells[place], names[place]
        if len(chosen.unsure) >= len(chosen.places):
            check_header(
                name, values, where, f"name the columns in the first line, e.g. sent0,sent1,hard_neg, or {CURE}"
            )
        if len(chosen.places) > 2 and holds_numbers(values):
            pair = [names[index] for index in chosen.places if index != place]
            raise UserError(f"{where}: the field {name!r:.60} {perhaps_scores(name, values, pair)}")
        if values and (content := _other_than_sentences(values, chosen.alone)):
            field = f"the field {name!r:.60} holds {content}"
            raise UserError(f"{where}: {field}; which columns to use? There are {listed(names)}; {CURE}")
    if alone and (values := cells[chosen.places[0]]) and all(len(value.splitlines()) == 2 for value in values):
        name = names[chosen.places[0]]
        raise UserError(
            f"{where}: each cell of {name!r:.60} holds two lines, as of a pair; write them in two columns, or set "
            f"data.columns.anchor={quote(name)} if they are one text"
        )
    return itertools.chain(first, rows)


def _written(values: Iterable[object]) -> list[str]:
    """Text and numbers as text, without what is blank."""
    kinds = (str, numbers.Real, decimal.Decimal)
    texts = (str(value).strip() for value in values if isinstance(value, kinds) and value == value)
    return [text for text in texts if text]


def holds_numbers(values: Sequence[str]) -> bool:
    """Whether the cells of a column are different numbers, perhaps percentages, but do not count the rows."""
    try:
        scores = [parse_score(value.removesuffix("%"), "") or 0.0 for value in values]
    except UserError:
        return False
    steps = [after - score for score, after in itertools.pairwise(scores)]
    return any(steps) and not (all(map(str.isdecimal, values)) and set(steps) == {1})


def perhaps_scores(name: str, values: Sequence[str], pair: Sequence[str]) -> str:
    """A message about a column of numbers next to a pair's: what it may be, and what to set."""
    first = "write them without % and " * any(value.endswith("%") for value in values)
    anchor, positive = map(quote, pair)
    return (
        f"holds numbers, perhaps scores; if so, {first}set data.columns.score={quote(name)} or, to train on every "
        f"pair, data.columns.anchor={anchor} data.columns.positive={positive}"
    )


def numbers_of(chosen: Chosen, rows: Iterable[Row], names: Sequence[str]) -> dict[str, list[str]]:
    """The unread columns next to those of sentences that hold numbers, perhaps scores, and the first of these.

    Args:
      rows: the first ones.
    """
    first = list(itertools.islice(rows, LOOKED_AT))
    unread = [name for name in chosen.unread if is_sentences(name) and _last_word(name) not in (*IDENTIFIERS, "no")]
    values = {name: _written(row.fields[names.index(name)] for row in first) for name in unread}
    return {name: texts for name, texts in values.items() if holds_numbers(texts)}


def _other_than_sentences(values: Sequence[str], alone: bool) -> str:
    """The kind of a column without sentences; "" for sentences. A table's only column is refused for numbers alone."""
    if all(map(is_number, values)):
        return f"numbers, e.g. {one_line(values[0])}"
    if not alone and all(map(CODE.fullmatch, values)):
        return f"no sentences, e.g. {one_line(values[0])}"
    distinct = len(set(values))
    if not alone and len(values) >= MANY and distinct <= len(values) // (16 if are_long(values) else 3):
        return f"{distinct} different values in {len(values)} rows, e.g. {one_line(values[0])}"
    return ""


def are_long(values: Collection[str]) -> bool:
    """Whether the texts have more than three words on average."""
    return sum(map(_words, values)) > 3 * len(values)


def _words(text: str) -> int:
    """The number of words in a text, counting two characters as one in scripts without spaces (Chinese, Japanese)."""
    return len(text.split()) + sum(character >= "\u2e80" for character in text) // 2


def warn_of_unread(names: Sequence[str], chosen: Chosen, scores: Collection[str], where: str) -> None:
    """Warns about columns that are not read: further sentences, and labels or scores, without which all pairs count.

    Args:
      scores: those that hold numbers (`numbers_of`).
    """
    places = chosen.places
    if unread := [name for name in chosen.unread if name not in scores]:
        more, read = (
            ", ".join(map(repr, some[:3])) + ", …" * (len(some) > 3)
            for some in (unread, [names[place] for place in places])
        )
        verb = "s {} are" if places[1:] else " {} is"
        cure = "data.columns.negative names another" if places[1:] else "data.columns.anchor and positive name pairs"
        warnings.warn(f"{where}: only its column{verb.format(read)} read, and not {more}; {cure}", stacklevel=2)
    if places[1:]:
        unread = [name for place, name in enumerate(names) if place not in places]
        warn_of_values(unread, f"{where}: ", scores=scores)


def warn_of_values(names: Sequence[str], before: str, cure: str = "", scores: Collection[str] = ()) -> None:
    """Warns about an unread column of labels or scores: all pairs then count as positives.

    Args:
      names: of the unread columns.
      before: what the warning begins with.
      cure: what to do; empty: what a run can.
      scores: further columns of numbers.
    """
    if found := [*of_values(names, (*USUAL_VALUES["label"], *SCORES)), *scores]:
        cure = cure or "data.positives chooses by label, the recipe graded learns from scores, data.columns.score="
        cure += quote(found[0]) if cure.endswith("=") else ""
        so = "is not read, so every pair counts as a positive"
        warnings.warn(f"{before}its column {found[0]!r} {so}; {cure}", stacklevel=3)


def choose_values(
    kind: str, names: Sequence[str], columns: Mapping[str, str], needed_by: str, where: str
) -> int | None:
    """The index of the column of labels or scores (`kind`: label, score): the mapped one, or one with a usual name.

    None if none is mapped, and `needed_by`, the setting that needs one, is empty.
    """
    name = columns.get(kind)
    usual = of_values(names, USUAL_VALUES[kind]) if needed_by and not name else []
    if needed_by and not (name or usual):
        raise UserError(
            f"{where}: no {kind}s, but {needed_by} needs them; it has {listed(names)}: set data.columns.{kind}"
        )
    return place_of(names, name or usual[0], where, f"data.columns.{kind}") if name or usual else None


def choose_candidate_scores(names: Sequence[str], columns: Mapping[str, str], needed_by: str, where: str) -> list[int]:
    """The indices of the columns with the scores of a row's positive and its hard negatives: two, or one of lists.

    `columns` may map the score to a column of lists, or to one of two that belong together.
    """
    mapped = columns.get("score")
    if mapped:
        place_of(names, mapped, where, "data.columns.score")
    apart = [pair for pair in SCORED_APART if not mapped or mapped in pair]
    score_columns = next((list(pair) for pair in apart if {*pair} <= {*names}), [mapped] if mapped else [])
    score_columns = score_columns or _named(names, SCORED_TOGETHER)
    if not score_columns:
        raise UserError(
            f"{where}: no scores of positives and hard negatives, but {needed_by} needs them; it has "
            f"{listed(names)}: set data.columns.score, or teacher.model to a model that gives them"
        )
    return [place_of(names, name, where) for name in score_columns]
