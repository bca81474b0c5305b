"""Small charts of a report as SVG in the page itself, which takes the page's colours, light and dark."""

import html
import math
from collections.abc import Callable, Iterable, Sequence

WIDE, HIGH, LEFT, RIGHT, TOP, BOTTOM = 440, 240, 54, 26, 12, 44  # of a chart and its edges
MOST_POINTS = 400


def curve(points: Sequence[tuple[float, float]], name: str, best: float | None = None) -> str:
    """A line over the steps, of points (step, value) that rise in step; a ring around the one of the step `best`.

    Values that are not finite are left out, and counted in the caption.
    """
    finite = [(x, y) for x, y in points if math.isfinite(y)]
    left_out = len(points) - len(finite)
    caption = name + (f" (NaN or infinite, and left out: {left_out})" if left_out else "")
    if not finite:
        return _figure('<p class="note">no other value</p>', caption)
    shown = finite[:: -(-len(finite) // MOST_POINTS)]
    shown += finite[-1:] if shown[-1] != finite[-1] else []
    values = [y for _, y in shown]
    x = _scale(shown[0][0], shown[-1][0], LEFT, WIDE - RIGHT)
    y = _scale(min(values), max(values), HIGH - BOTTOM, TOP)
    parts = [_grid(value, LEFT, WIDE - RIGHT, y(value)) for value in ticks(min(values), max(values))]
    for step in ticks(shown[0][0], shown[-1][0], whole=True):
        parts.append(f'<text x="{x(step):.1f}" y="{HIGH - BOTTOM + 18}" text-anchor="middle">{step:,.0f}</text>')
    parts.append(f'<text x="{(LEFT + WIDE - RIGHT) / 2:.0f}" y="{HIGH - 6}" text-anchor="middle">step</text>')
    line = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in shown)
    parts.append(f'<polyline class="curve" points="{line}"/>')
    few = shown if len(shown) <= 40 else shown[-1:]
    parts += [f'<circle class="after" cx="{x(step):.1f}" cy="{y(value):.1f}" r="3"/>' for step, value in few]
    for step, value in finite:
        if step == best:
            parts.append(f'<circle class="found" cx="{x(step):.1f}" cy="{y(value):.1f}" r="7"/>')
    return _figure(_svg(HIGH, f"{name} over the steps", parts), caption)


def changes(rows: Sequence[tuple[str, float, float]], name: str) -> str:
    """A line from each row's score before to the one after: (label of a few letters, before, after)."""
    high = 30 * len(rows) + BOTTOM + 8
    lowest, highest = min(min(row[1:]) for row in rows), max(max(row[1:]) for row in rows)
    left, right = 92, 128
    x = _scale(lowest, highest, left, WIDE - right)
    parts = []
    for number, (label, before, after) in enumerate(rows):
        y = 30 * number + 20
        kind = "good" if after > before else "bad"
        parts.append(f'<text x="{left - 12}" y="{y + 4}" text-anchor="end">{label}</text>')
        parts.append(f'<line class="link {kind}" x1="{x(before):.1f}" x2="{x(after):.1f}" y1="{y}" y2="{y}"/>')
        parts.append(f'<circle class="before" cx="{x(before):.1f}" cy="{y}" r="5"/>')
        parts.append(f'<circle class="after" cx="{x(after):.1f}" cy="{y}" r="5"/>')
        values = f"{before:.1f} → {after:.1f}"
        parts.append(f'<text x="{WIDE - 4}" y="{y + 4}" text-anchor="end">{values}</text>')
    for value in ticks(lowest, highest, most=4):
        parts.append(f'<text x="{x(value):.1f}" y="{high - 28}" text-anchor="middle">{value:g}</text>')
    legend = '<circle class="before" cx="20" cy="{0}" r="5"/><text x="30" y="{1}">before</text>'
    legend += '<circle class="after" cx="90" cy="{0}" r="5"/><text x="100" y="{1}">after</text>'
    parts.append(legend.format(high - 10, high - 6))
    return _figure(_svg(high, f"{name} before and after", parts), name)


def interval(low: float, middle: float, high: float, name: str) -> str:
    """A difference and its interval, with a line at 0."""
    least, most = min(low, 0.0), max(high, 0.0)
    x = _scale(least, most, 40, WIDE - 40)
    kind = "good" if low > 0 else "bad" if high < 0 else "before"
    parts = [
        f'<line class="zero" x1="{x(0):.1f}" x2="{x(0):.1f}" y1="8" y2="58"/>',
        f'<line class="bar {kind}" x1="{x(low):.1f}" x2="{x(high):.1f}" y1="32" y2="32"/>',
        f'<circle class="after" cx="{x(middle):.1f}" cy="32" r="7"/>',
    ]
    for value in sorted({0.0, *ticks(least, most)}):
        parts.append(f'<text x="{x(value):.1f}" y="78" text-anchor="middle">{value:+g}</text>'.replace("+0<", "0<"))
    return _figure(_svg(86, name, parts), name)


def ticks(low: float, high: float, most: int = 5, whole: bool = False) -> list[float]:
    """At most `most` + 1 round numbers from `low` to `high`."""
    span = (high - low) or abs(high) or 1.0
    size = 10.0 ** math.floor(math.log10(span / most))
    step = next(size * factor for factor in (1, 2, 5, 10) if span / (size * factor) <= most)
    step = max(step, 1.0) if whole else step
    first = math.ceil(low / step - 1e-9)
    return [round(first * step + number * step, 10) for number in range(math.floor(high / step + 1e-9) - first + 1)]


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """A function from values to places; those that are all the same are in the middle."""
    return lambda value: start + (end - start) * ((value - low) / (high - low) if high > low else 0.5)


def _grid(value: float, left: float, right: float, y: float) -> str:
    return (
        f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
    )


def _svg(high: float, label: str, parts: Iterable[str]) -> str:
    return f'<svg viewBox="0 0 {WIDE} {high}" role="img" aria-label="{html.escape(label)}">{"".join(parts)}</svg>'


def _figure(content: str, caption: str) -> str:
    return f"<figure><figcaption>{html.escape(caption)}</figcaption>{content}</figure>"
