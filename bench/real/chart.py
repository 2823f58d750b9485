"""SVGs of this folder's measurements: rows of real.py, lines of curve.py, and the answers in a page's table. Colours follow
the reader's theme.

    python3 bench/real/chart.py docs/results.md > docs/images/answers.svg
"""

import math
import re
import sys
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, TOP, ROW, BOTTOM = 720, 200, 70, 64, 26, 48
STYLE = """
svg { background: #ffffff; font: 13px system-ui, sans-serif }
text { fill: #1c1f24 } .minor { fill: #57606a } .grid { stroke: #d9dde3 } .mark { fill: #0b62c4 }
.line { fill: none; stroke-width: 1.8 } .c0 { stroke: #57606a } .c1 { stroke: #b42318 } .c2 { stroke: #0b62c4 } .c3 { stroke: #1a7f37 }
.c4 { stroke: #8250df }
@media (prefers-color-scheme: dark) {
svg { background: #14171c } text { fill: #e8eaed } .minor { fill: #a3abb5 } .grid { stroke: #333a44 }
.mark { fill: #79b8ff } .c0 { stroke: #b8c0ca } .c1 { stroke: #ff8a80 } .c2 { stroke: #79b8ff } .c3 { stroke: #6fdd8b }
.c4 { stroke: #c297ff }
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


def svg(title, axis, rows, marks=None):
    """`rows`: pairs of a name and values. The axis is linear with those `marks`, or else logarithmic, of values above 0."""
    scale = float if marks else math.log10
    every = [value for _, values in rows for value in values]
    marks = marks or ticks(min(every), max(every))
    low, high = scale(marks[0]), scale(marks[-1])
    height = TOP + ROW * len(rows) + BOTTOM
    bottom = TOP + ROW * len(rows)

    def column(value):
        return LEFT + (scale(value) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        text(16, 28, title, "font-size='16' font-weight='600'"),
    ]
    for mark in marks:
        parts.append(f"<path class='grid' d='M{column(mark):.1f} {TOP - 10}V{bottom}'/>")
        parts.append(text(column(mark), bottom + 16, f"{mark:g}", "class='minor' text-anchor='middle'"))
    for i, (name, values) in enumerate(rows):
        y = TOP + ROW * i + ROW / 2 - 4
        parts.append(f"<path class='grid' d='M{LEFT} {y:.1f}H{WIDTH - RIGHT}'/>")
        parts.append(text(LEFT - 12, y + 4, name, "text-anchor='end'"))
        for value in values:
            parts.append(f"<circle class='mark' cx='{column(value):.1f}' cy='{y:.1f}' r='5'/>")
            side, anchor = (10, "start") if value == values[-1] else (-10, "end")
            parts.append(text(column(value) + side, y + 4, f"{value:.3g}", f"text-anchor='{anchor}'"))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, bottom + 36, axis, "class='minor' text-anchor='middle'"))
    return "\n".join([*parts, "</svg>", ""])


def panel(left, title, lines, label, top):
    """A panel of 340 by 300 at `left`: `lines` of pairs (tokens, value), tokens on a logarithmic axis, values from 0 to `top`."""
    tokens = sorted({x for _, points in lines for x, _ in points})
    low, high = math.log10(tokens[0]), math.log10(tokens[-1])

    def place(x, y):
        return left + 50 + (math.log10(x) - low) / (high - low) * 270, 290 - min(y / top, 1) * 220

    parts = [text(left + 16, 54, title, "font-weight='600'")]
    for x in tokens:
        parts.append(f"<path class='grid' d='M{place(x, 0)[0]:.1f} 70V290'/>")
        parts.append(text(place(x, 0)[0], 306, label(x), "class='minor' text-anchor='middle'"))
    for part in range(5):
        y = place(tokens[0], top * part / 4)[1]
        parts.append(f"<path class='grid' d='M{left + 50} {y:.1f}H{left + 320}'/>")
        parts.append(text(left + 44, y + 4, f"{top * part / 4:.3g}", "class='minor' text-anchor='end'"))
    for number, (_, points) in enumerate(lines):
        path = "L".join("{:.1f} {:.1f}".format(*place(x, y)) for x, y in sorted(points))
        parts.append(f"<path class='line c{number}' d='M{path}'/>")
        for x, y in points:
            parts.append("<circle class='line c{}' cx='{:.1f}' cy='{:.1f}' r='3'/>".format(number, *place(x, y)))
    return parts


def curves(title, panels, label):
    """`panels`: two of a title, the largest value and lines; a line is a name and pairs (tokens, value)."""
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 370" width="720" height="370" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        text(16, 28, title, "font-size='16' font-weight='600'"),
    ]
    for number, (heading, top, lines) in enumerate(panels):
        parts += panel(360 * number, heading, lines, label, top)
    x = 16
    for number, (name, _) in enumerate(panels[0][2]):
        parts.append(f"<path class='line c{number}' d='M{x} 344H{x + 22}'/>")
        parts.append(text(x + 28, 348, name))
        x += 44 + 7.5 * len(name)
    return "\n".join([*parts, "</svg>", ""])


def answers(page):
    """The right answers by share of the cache, of the first table of docs/results.md."""
    table = page.split("## What will I lose?")[1].split("\n\n")[2]
    cells = [[cell.strip() for cell in line.split("|")[1:]] for line in table.split("\n") if line.startswith("| ")]
    rows = [(kept, [int(number) for number in re.findall("[0-9]+", right)]) for kept, _, right, *_ in cells[1:]]
    return svg("SmolLM2-135M-Instruct: right answers, by the KV cache kept",
               "percent of the source's right answers to 118 questions", rows, marks=range(0, 121, 20))


if __name__ == "__main__":
    print(answers(open(sys.argv[1]).read()), end="")
