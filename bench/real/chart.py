"""Rows of real.py as one SVG: how far each conversion is from its source, on a logarithmic axis. Colours follow the reader's theme."""

import math
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, TOP, ROW, BOTTOM = 720, 200, 70, 64, 26, 48
STYLE = """
svg { background: #ffffff; font: 13px system-ui, sans-serif }
text { fill: #1c1f24 } .minor { fill: #57606a } .grid { stroke: #d9dde3 } .mark { fill: #0b62c4 }
@media (prefers-color-scheme: dark) {
svg { background: #14171c } text { fill: #e8eaed } .minor { fill: #a3abb5 } .grid { stroke: #333a44 }
.mark { fill: #79b8ff }
}
"""


def ticks(least, most):
    """1, 2 and 5 times powers of ten, from one at most `least` to one at least `most`."""
    steps = [digit * 10.0**power for power in range(-4, 4) for digit in (1, 2, 5)]
    low = max(step for step in steps if step <= least)
    high = min(step for step in steps if step >= most)
    return [step for step in steps if low <= step <= high]


def text(x, y, words, attributes=""):
    return f"<text x='{x:.1f}' y='{y:.1f}' {attributes}>{escape(words)}</text>"


def svg(title, axis, rows):
    """`rows`: pairs of a name and a value above 0."""
    marks = ticks(min(value for _, value in rows), max(value for _, value in rows))
    low, high = math.log10(marks[0]), math.log10(marks[-1])
    height = TOP + ROW * len(rows) + BOTTOM
    bottom = TOP + ROW * len(rows)

    def column(value):
        return LEFT + (math.log10(value) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        text(16, 28, title, "font-size='16' font-weight='600'"),
    ]
    for mark in marks:
        parts.append(f"<path class='grid' d='M{column(mark):.1f} {TOP - 10}V{bottom}'/>")
        parts.append(text(column(mark), bottom + 16, f"{mark:g}", "class='minor' text-anchor='middle'"))
    for i, (name, value) in enumerate(rows):
        y = TOP + ROW * i + ROW / 2 - 4
        parts.append(f"<path class='grid' d='M{LEFT} {y:.1f}H{WIDTH - RIGHT}'/>")
        parts.append(text(LEFT - 12, y + 4, name, "text-anchor='end'"))
        parts.append(f"<circle class='mark' cx='{column(value):.1f}' cy='{y:.1f}' r='5'/>")
        parts.append(text(column(value) + 10, y + 4, f"{value:.3g}"))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, bottom + 36, axis, "class='minor' text-anchor='middle'"))
    return "\n".join([*parts, "</svg>", ""])
