"""The demo page: the answers of its three parts, as HTML for people and as JSON for programs."""

import html
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from simcse_jax.index.index import Result

if TYPE_CHECKING:
    import gradio

MOST_CHARACTERS = 20_000  # of a sentence
MOST_LINES = 200  # of the heat map
MOST_RESULTS = 50  # of a search
WITH_NUMBERS = 12  # the most lines of a heat map whose cells have room for their numbers
MOST_OF_AN_EXAMPLE = 200  # characters
SHADES = 32
LIGHT, DARK = np.array([247, 251, 255]), np.array([8, 48, 107])  # the ends of the heat map's colours

CSS = Path(__file__).with_name("demo.css").read_text(encoding="utf-8")


@runtime_checkable
class DemoModel(Protocol):
    """The model of a page; `SimCSE` is one."""

    @property
    def max_length(self) -> int:
        """The tokens that are read of a sentence; the rest is cut off."""

    def search(self, query: str, /, *, top_k: int, threshold: float) -> list[Result]:
        """The nearest sentences of the index, best first."""

    def similarity(self, first: list[str], second: list[str], /) -> Float[np.ndarray, "N M"]:
        """The cosines of all pairs: N and M sentences to (N, M)."""


def shade_rules() -> str:
    """The colours of the heat map's scale and cells, s0 (the lowest cosine) to s31 (the highest), with legible text."""
    ends = (f"rgb({','.join(map(str, end))})" for end in (LIGHT, DARK))
    rules = [f".scale {{ background: linear-gradient(to right, {', '.join(ends)}); }}"]
    for shade in range(SHADES):
        red, green, blue = np.rint(LIGHT + (DARK - LIGHT) * shade / (SHADES - 1)).astype(int)
        text = "#fff" if shade > 0.45 * SHADES else "#1a202c"
        rules.append(f".heat .s{shade} {{ background: rgb({red},{green},{blue}); color: {text}; }}")
    return "\n".join(rules)


def message(text: str) -> str:
    """A hint in place of an answer."""
    return f'<p class="message" role="status">{html.escape(text)}</p>'


def sentence_problem(sentence: Any, label: str) -> str | None:
    """Why a sentence is refused; None if it is not."""
    if not isinstance(sentence, str):
        return f"{label} is {sentence!r:.40}; it must be a text."
    if not sentence.strip():
        return f"{label} is empty; type one."
    if len(sentence) > MOST_CHARACTERS:
        return f"{label} has {len(sentence):,} characters; at most {MOST_CHARACTERS:,} are allowed."
    return None


def bar(score: float) -> str:
    """A line as long as the score, none for one below zero."""
    width = 100 * min(max(score, 0), 1)
    return f'<span class="track"><span class="bar" style="width: {width:.0f}%"></span></span>'


def pair_problem(first: Any, second: Any) -> str | None:
    """Why one of two sentences is refused; None if neither is."""
    return sentence_problem(first, "The first sentence") or sentence_problem(second, "The second sentence")


def lines_problem(lines: Any) -> str | None:
    """Why sentences cannot be compared with each other; None if they can."""
    if not isinstance(lines, list):
        return f"The sentences are {lines!r:.40}; they must be a list of texts."
    if len(lines) < 2:
        return f"There {'is one line' if lines else 'are no lines'}; enter two or more to compare."
    if len(lines) > MOST_LINES:
        return f"There are {len(lines):,} lines; at most {MOST_LINES} are allowed."
    return next(filter(None, (sentence_problem(line, f"Line {n}") for n, line in enumerate(lines, 1))), None)


def count_problem(top_k: Any) -> str | None:
    """Why a program's number of results is refused; None if it is not."""
    if type(top_k) is int and 1 <= top_k <= MOST_RESULTS:
        return None
    return f"top_k is {top_k!r:.40}; it must be a whole number from 1 to {MOST_RESULTS}."


def search(model: DemoModel, query: str | None, count: float) -> str:
    """The nearest sentences of the index, best first, as a table."""
    query = query or ""
    if wrong := sentence_problem(query, "The query"):
        return message(wrong)
    rows = [
        f'<tr><td>{html.escape(result.sentence)}</td><td class="score">{result.score:.3f}{bar(result.score)}</td>'
        f'<td class="row">{result.row}</td></tr>'
        for result in find(model, query, count)
    ]
    head = '<tr><th>sentence</th><th class="score">cosine</th><th class="row">row</th></tr>'
    return f'<div class="found"><table><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table></div>'


def find(model: DemoModel, query: str, count: float) -> list[Result]:
    """The nearest sentences of the index, best first, whatever their cosine."""
    return model.search(query.strip(), top_k=int(count), threshold=-np.inf)


def compare(model: DemoModel, first: str | None, second: str | None) -> str:
    """The cosine of two sentences."""
    first, second = first or "", second or ""
    if wrong := pair_problem(first, second):
        return message(wrong)
    score = cosine(model, first, second)
    return f'<div class="one">{score:.3f}{bar(score)}</div><p class="note">The cosine of their embeddings.</p>'


def cosine(model: DemoModel, first: str, second: str) -> float:
    """The cosine of two sentences' embeddings."""
    return float(model.similarity([first.strip()], [second.strip()])[0, 0])


def heat_map(models: Mapping[str, DemoModel], text: str | None) -> str:
    """The cosines of all pairs of lines, a table of coloured cells for each model; blank lines are left out.

    All have one scale, from the lowest to the highest cosine of two different lines, so that differences are seen.
    """
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    if wrong := lines_problem(lines):
        return message(wrong)
    cosines_by_title = {title: model.similarity(lines, lines) for title, model in models.items()}
    off_diagonal = np.concatenate([cosines[~np.eye(len(lines), dtype=bool)] for cosines in cosines_by_title.values()])
    low, high = float(off_diagonal.min()), float(off_diagonal.max())
    tables = [
        f"<figure><figcaption>{html.escape(title)}</figcaption>{cells(lines, cosines, low, high)}</figure>"
        for title, cosines in cosines_by_title.items()
    ]
    scale = f'cosine {low:.2f} <span class="scale"></span> {high:.2f}, the ends of what two different lines have'
    return f'<div class="heat">{"".join(tables)}</div><p class="note">{scale}</p>'


def cells(lines: Sequence[str], cosines: Float[np.ndarray, "N N"], low: float, high: float) -> str:
    """N lines and their cosines (N, N) to a table; `low` has the palest colour, `high` the darkest."""
    shades = np.rint(np.clip((cosines - low) / max(high - low, 1e-6), 0, 1) * (SHADES - 1)).astype(int)
    numbers = len(lines) <= WITH_NUMBERS
    rows = []
    for number, line in enumerate(lines):
        label = html.escape(line if len(line) <= 100 else line[:99] + "…")
        row = "".join(
            f"<td class=s{shade}>{score:.2f}</td>" if numbers else f"<td class=s{shade} title={score:.2f}></td>"
            for shade, score in zip(shades[number], cosines[number], strict=True)
        )
        rows.append(f"<tr><th title='{label}'><i>{number + 1}</i> {label}</th>{row}</tr>")
    interval = 1 if numbers else 5  # narrow columns have no room for all numbers
    marks = "".join(f"<th>{n if n == 1 or n % interval == 0 else ''}</th>" for n in range(1, len(lines) + 1))
    kind = " class=numbers" if numbers else ""
    return f"<table{kind}><thead><tr><th></th>{marks}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def build(models: Mapping[str, DemoModel], count: int, examples: Sequence[str]) -> "gradio.Blocks":
    """The page, which opens with the results of the first example.

    Args:
      models: by their titles; the first one searches, and the heat maps of the others stand beside its own.
      count: how many sentences it searches.
    """
    import gradio as gr

    title, model = next(iter(models.items()))
    # Requests from all parts reach the model one at a time.
    one_at_a_time: dict[str, Any] = {"concurrency_limit": 1, "concurrency_id": "model"}
    of_page: dict[str, Any] = one_at_a_time | {"show_progress": "minimal", "api_visibility": "private"}
    examples = [example[:MOST_OF_AN_EXAMPLE] for example in examples]
    results = min(10, max(count, 2))
    with gr.Blocks(title=f"simcse_jax: {title}", analytics_enabled=False) as page:
        reads = f"which reads {model.max_length} tokens at most"
        gr.Markdown(f"## simcse_jax\n{count:,} sentences, model `{title}`, {reads}.")
        with gr.Tab("Search"):
            query = gr.Textbox(
                label="Query", placeholder="Type a sentence and press Enter", elem_id="query", value=examples[0]
            )
            most = gr.Slider(1, min(max(count, 2), MOST_RESULTS), value=results, step=1, label="Results")
            button = gr.Button("Search", variant="primary", elem_id="search")
            results_html = gr.HTML(search(model, examples[0], results), elem_id="found", render=False)

            def ask(query: str | None, most: float) -> str:
                return search(model, query, most)

            gr.Examples(
                [[example] for example in examples],
                query,
                results_html,
                lambda query: search(model, query, results),
                cache_examples=False,
                run_on_click=True,
                label="Example queries",
                elem_id="examples",
                api_visibility="private",
            )
            results_html.render()
            gr.on([button.click, query.submit], ask, [query, most], results_html, **of_page)
        with gr.Tab("Compare"):
            first = gr.Textbox(label="First sentence", elem_id="first", value=examples[0])
            second = gr.Textbox(label="Second sentence", elem_id="second", value=examples[1 % len(examples)])
            button = gr.Button("Compare", variant="primary", elem_id="compare")
            score = gr.HTML(elem_id="score")
            asks = [button.click, first.submit, second.submit]
            gr.on(asks, lambda *asked: compare(model, *asked), [first, second], score, **of_page)
        with gr.Tab("Heat map"):
            lines = gr.Textbox(label="Sentences, one per line", lines=6, max_lines=12, elem_id="lines")
            lines.value = "\n".join(examples)
            button = gr.Button("Draw", variant="primary", elem_id="draw")
            picture = gr.HTML(elem_id="picture")
            button.click(lambda text: heat_map(models, text), lines, picture, **of_page)
        for name, endpoint in endpoints(model).items():
            gr.api(endpoint, api_name=name, **one_at_a_time)
    return page


def endpoints(model: DemoModel) -> dict[str, Callable[..., Any]]:
    """The functions that programs call, by their names; a refused sentence raises `gradio.Error`."""
    import gradio as gr

    def refuse(wrong: str | None) -> None:
        if wrong:
            raise gr.Error(wrong, print_exception=False)

    def search(query: str, top_k: int = 10) -> list[dict[str, Any]]:
        """The nearest sentences of the index, best first: `sentence`, `row` and `score`, the cosine."""
        refuse(sentence_problem(query, "The query"))
        refuse(count_problem(top_k))
        return [result._asdict() for result in find(model, query, top_k)]

    def compare(first: str, second: str) -> float:
        """The cosine of two sentences."""
        refuse(pair_problem(first, second))
        return cosine(model, first, second)

    def similarities(sentences: list[str]) -> list[list[float]]:
        """The cosines of all pairs of sentences: a row for each sentence."""
        refuse(lines_problem(sentences))
        return model.similarity(sentences, sentences).astype(float).tolist()

    return {"search": search, "compare": compare, "similarities": similarities}
