"""What the columns of a run's data allow: some objectives need hard negatives, labelled pairs, or views that differ."""

from simcse_jax.config.sections import Section
from simcse_jax.data.corpora import AnyCorpus
from simcse_jax.data.documents import SPANS
from simcse_jax.data.sources import Examples
from simcse_jax.errors import UserError
from simcse_jax.objectives.objective import Columns, Objective
from simcse_jax.objectives.registry import needing, trained


def positives_of(config: Section) -> int:
    """The columns whose mean embedding is an anchor's positive."""
    return int(config.data.spans.positives) if config.data.positives == SPANS else 1


def check_corpus(config: Section, corpus: AnyCorpus) -> None:
    """As `check_columns`, where a batch has rows of one source for each of the sources.

    Raises:
      UserError: naming the field.
    """
    for name, part in zip(corpus.names, corpus.parts, strict=True):
        check_columns(config, part.num_columns, part.fewest_columns, data=name, most=corpus.num_columns)


def check_columns(config: Section, num_columns: int, fewest: int, *, data: str = "", most: int = 0) -> None:
    """Refuses objectives that need columns that the data lacks, and pairs of a sentence with itself without dropout.

    Args:
      config: the run's.
      num_columns: of the data.
      fewest: the sentences of a row that has the fewest: one that is its own positive, or fewer hard negatives.
      data: the source that they are of; empty: all of `data.train`.
      most: the columns of the source that has the most; 0: `num_columns`.

    Raises:
      UserError: naming the field.
    """
    data, several = data or config.data.train, positives_of(config) - 1  # the mean of several is one
    if fewest == 1:
        _check_views_differ(config)
    if fewest < num_columns and config.projector.widths:
        raise UserError(
            f"config.projector.widths={config.projector.widths!r}: its batch norm would count what stands in for hard "
            f"negatives that some rows of {data} lack; leave it empty, or choose other columns with data.columns"
        )
    columns = Columns(data, num_columns - several, fewest - several, (most or num_columns) - several)
    for objective in trained(config.objective).values():
        check_needs(objective, columns)
        objective.check_columns(config.objective[objective.name], columns)


def check_needs(objective: Objective, columns: Columns) -> None:
    """Refuses data without the columns that an objective declares that it needs."""
    field = f"config.objective.{objective.name}.weight"
    if objective.hard_negatives and columns.number < 3:
        raise UserError(
            f"{field}: needs hard negatives, but {columns.data} has no column of them; set data.columns.negative"
        )
    if objective.hard_negatives and columns.fewest < 3:
        raise UserError(
            f"{field}: needs a hard negative in every row, but some rows of {columns.data} have none; leave these rows "
            "out"
        )
    if (objective.labels or objective.scores) and columns.number != 2:
        kind = "labelled pairs" if objective.labels else "pairs with scores"
        raise UserError(
            f"{field}: needs {kind}, but {columns.data} has {columns.number} column(s) of sentences; choose two "
            "with data.columns.anchor and data.columns.positive"
        )


def check_scores(config: Section, examples: Examples) -> None:
    """Refuses scores that are all the same, where pairs are compared by them.

    Raises:
      UserError: naming the data and the score.
    """
    scores = examples.scores
    ranking = [one.name for one in needing(config.objective, "scores") if one.scores == "ranked"]
    if scores is not None and ranking and len(scores) > 1 and not scores.max() > scores.min():
        raise UserError(
            f"{config.data.train}: all {len(scores)} scores are {scores[0]:g}, so objective.{ranking[0]} has no two "
            "pairs to compare"
        )


def _check_views_differ(config: Section) -> None:
    """Refuses masks that are meant to make a sentence's two views differ, and drop nothing."""
    views, model = config.views, config.model
    paired = needing(config.objective, "compares_views")
    rates = [model.dropout, model.attention_dropout, views.positive_dropout, model.lora.rank and model.lora.dropout]
    noise = views.positive == "noisy" and views.noise
    changed = {views.anchor_change, views.positive_change} - ({"none"} if views.cutoff else {"none", "cutoff"})
    if (
        paired
        and views.positive in ("independent", "mean", "noisy")
        and max(rates) <= 0  # -1: the same as another one
        and not noise
        and not changed
        and views.positive_template in ("", model.template)
        and not model.dual_encoder
    ):
        raise UserError(
            f"config.model.dropout={model.dropout}: all dropout rates are 0, so both views of a sentence would be the "
            "same; set views.positive=off if that is meant, or a rate above 0"
        )
