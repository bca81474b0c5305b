"""The demo page: search, comparison and a heat map, for people and as an API."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from simcse_jax.index.index import Result

if TYPE_CHECKING:
    import gradio

MOST_CHARACTERS = 20_000  # of a sentence
MOST_LINES = 200  # of the heat map
MOST_RESULTS = 50  # of a search
WITH_NUMBERS = 12  # the most lines of a heat map whose cells have room for their numbers
SHADES = 32
LIGHT, DARK = np.array([247, 251, 255]), np.array([8, 48, 107])  # the ends of the heat map's colours

CSS = Path(__file__).with_name("demo.css").read_text(encoding="utf-8")


DemoModel = Any  # `SimCSE`, or what has its `max_length`, `search` and `similarity`


def shade_rules() -> str:
    """The colours of the heat map's scale and cells, s0 (the lowest cosine) to s31 (the highest), with legible text."""
    ends = (f"rgb({','.join(map(str, end))})" for end in (LIGHT, DARK))
    rules = [f".scale {{ background: linear-gradient(to right, {', '.join(ends)}); }}"]
    for shade in range(SHADES):
        red, green, blue = np.rint(LIGHT + (DARK - LIGHT) * shade / (SHADES - 1)).astype(int)
        text = "#fff" if shade > 0.45 * SHADES else "#1a202c"
        rules.append(f".heat .s{shade} {{ background: rgb({red},{green},{blue}); color: {text}; }}")
    return "\n".join(rules)


def with_bar(score: float) -> str:
    """A score above a line of its length, none below zero."""
    width = 100 * min(max(score, 0), 1)
    return f'{score:.3f}<span class="track"><span class="bar" style="width: {width:.0f}%"></span></span>'


def found_tables(found: Mapping[str, Sequence[Result]]) -> str:
    """The results of a search, best first: a table for each model, by its title."""
    return _side_by_side("found", {title: _table(results) for title, results in found.items()})


def _table(results: Sequence[Result]) -> str:
    rows = "".join(
        f'<tr><td>{html.escape(result.sentence)}</td><td class="score">{with_bar(result.score)}</td>'
        f'<td class="row">{result.row}</td></tr>'
        for result in results
    )
    head = '<tr><th>sentence</th><th class="score">cosine</th><th class="row">row</th></tr>'
    return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"


def _side_by_side(kind: str, tables: Mapping[str, str]) -> str:
    """A table for each model, with its title where there are several."""
    titles = {title: f"<figcaption>{html.escape(title)}</figcaption>" * (len(tables) > 1) for title in tables}
    figures = "".join(f"<figure>{titles[title]}{table}</figure>" for title, table in tables.items())
    return f'<div class="models {kind}">{figures}</div>'


def heat_map(models: Mapping[str, DemoModel], lines: Sequence[str]) -> str:
    """The cosines of all pairs of lines, a table of coloured cells for each model; the first one shows the lines too.

    All use the same scale, from 0 (or the lowest cosine, if negative) to 1.
    """
    cosines = {title: model.similarity([*lines], [*lines]) for title, model in models.items()}
    low = min(0.0, *(float(matrix.min()) for matrix in cosines.values()))
    tables = {title: cells(lines, matrix, low, not place) for place, (title, matrix) in enumerate(cosines.items())}
    note = f'<p class="note">cosine {low:.2f} <span class="scale"></span> 1.00</p>'
    return _side_by_side("heat", tables) + note


def cells(lines: Sequence[str], cosines: Float[np.ndarray, "N N"], low: float, with_lines: bool) -> str:
    """N lines and their cosines (N, N) to a table; `low` has the palest colour, 1 the darkest."""
    shades = np.rint((np.minimum(cosines, 1) - low) / (1 - low) * (SHADES - 1)).astype(int)
    numbers = len(lines) <= WITH_NUMBERS
    rows = []
    for number, line in enumerate(lines):
        label = html.escape(line if len(line) <= 100 else line[:99] + "…")
        row = "".join(
            f"<td class=s{shade}>{score:.2f}</td>" if numbers else f"<td class=s{shade} title={score:.2f}></td>"
            for shade, score in zip(shades[number], cosines[number], strict=True)
        )
        shown = f" {label}" if with_lines else ""
        rows.append(f"<tr><th title='{label}'><i>{number + 1}</i>{shown}</th>{row}</tr>")
    interval = 1 if numbers else 5  # narrow columns have no room for all numbers
    marks = "".join(f"<th>{n if n == 1 or n % interval == 0 else ''}</th>" for n in range(1, len(lines) + 1))
    kind = " class=numbers" if numbers else ""
    return f"<table{kind}><thead><tr><th></th>{marks}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def build(
    models: Mapping[str, DemoModel], count: int, examples: Sequence[str], queries: Sequence[str]
) -> "gradio.Blocks":
    """The page, which opens with the results of the first query.

    Args:
      models: by their titles; programs get the first one's results.
      count: how many sentences they search.
      examples: some of the sentences.
    """
    import gradio as gr

    model, *_ = models.values()

    def refuse_if(wrong: bool, why: str) -> None:
        if wrong:
            raise gr.Error(why, print_exception=False)

    def check(*sentences: str) -> None:
        for number, sentence in enumerate(sentences, 1):
            refuse_if(not sentence.strip(), f"sentence {number} is empty; type one")
            refuse_if(len(sentence) > MOST_CHARACTERS, f"sentence {number} has more than {MOST_CHARACTERS} characters")

    def search(query: str, top_k: int = 10) -> list[dict[str, Any]]:
        """The nearest sentences of the index, best first: `sentence`, `row` and `score`, the cosine."""
        return [result._asdict() for result in find(model, query, top_k)]

    def find(model: DemoModel, query: str, top_k: int) -> list[Result]:
        check(query)
        refuse_if(not 1 <= top_k <= MOST_RESULTS, f"top_k must be from 1 to {MOST_RESULTS}")
        return model.search(query.strip(), top_k=int(top_k), threshold=-np.inf)

    def show_found(query: str, top_k: int) -> str:
        return found_tables({title: find(model, query, top_k) for title, model in models.items()})

    def compare(first: str, second: str) -> float:
        """The cosine of two sentences."""
        check(first, second)
        return float(model.similarity([first.strip()], [second.strip()])[0, 0])

    def check_lines(lines: Sequence[str]) -> None:
        refuse_if(not 2 <= len(lines) <= MOST_LINES, f"enter from 2 to {MOST_LINES} lines to compare")
        check(*lines)

    def similarities(sentences: list[str]) -> list[list[float]]:
        """The cosines of all pairs of sentences: a row for each sentence."""
        check_lines(sentences)
        return model.similarity(sentences, sentences).astype(float).tolist()

    def draw(text: str) -> str:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        check_lines(lines)
        return heat_map(models, lines)

    # Requests from all parts reach the model one at a time.
    one_at_a_time: dict[str, Any] = {"concurrency_limit": 1, "concurrency_id": "model"}
    of_page: dict[str, Any] = one_at_a_time | {"show_progress": "minimal", "api_visibility": "private"}
    results = min(10, max(count, 2))
    with gr.Blocks(title=f"simcse_jax: {', '.join(models)}", analytics_enabled=False) as page:
        reads = ", ".join(f"`{title}` (at most {one.max_length} tokens)" for title, one in models.items())
        gr.Markdown(f"## simcse_jax\n{count:,} sentences; {reads}")
        with gr.Tab("Search"):
            query = gr.Textbox(queries[0], label="Query", elem_id="query")
            most = gr.Slider(1, min(max(count, 2), MOST_RESULTS), value=results, step=1, label="Results")
            button = gr.Button("Search", variant="primary", elem_id="search")
            gr.Examples([[example] for example in queries], query, label="Example queries", elem_id="examples")
            table = gr.HTML(show_found(queries[0], results), elem_id="found")
            gr.on([button.click, query.submit], show_found, [query, most], table, **of_page)
        with gr.Tab("Compare"):
            first = gr.Textbox(examples[0], label="First sentence", elem_id="first")
            second = gr.Textbox(examples[1 % len(examples)], label="Second sentence", elem_id="second")
            button = gr.Button("Compare", variant="primary", elem_id="compare")
            score = gr.HTML(elem_id="score")

            def show(first: str, second: str) -> str:
                check(first, second)
                cosines = {name: one.similarity([first], [second])[0, 0] for name, one in models.items()}
                return _side_by_side("one", {name: with_bar(cosine) for name, cosine in cosines.items()})

            gr.on([button.click, first.submit, second.submit], show, [first, second], score, **of_page)
        with gr.Tab("Heat map"):
            text = gr.Textbox("\n".join(examples), label="Sentences, one per line", lines=6, elem_id="lines")
            button = gr.Button("Draw", variant="primary", elem_id="draw")
            button.click(draw, text, gr.HTML(elem_id="picture"), **of_page)
        for endpoint in (search, compare, similarities):
            gr.api(endpoint, api_name=endpoint.__name__, **one_at_a_time)
    return page.queue(max_size=64)
