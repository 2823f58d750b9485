"""The study as one SVG: excess loss against α, with a panel for each kind of model and ratio.

Methods differ by marker, dash and colour. Colours follow the reader's theme.
"""
import math

from chart_parts import text
from results import TOTAL, label_of
from study import TOTAL_ALPHA

PANEL_WIDTH, PANEL_HEIGHT = 250, 170
LEFT, TOP, GAP_X, GAP_Y = 92, 118, 26, 58
FLOOR = 1e-3  # nats; smaller values are drawn here
STYLES = {  # marker, dashes; the colour is the class with the same name in STYLE
    "mean": ("circle", ""),
    "first": ("plus", "1 3"),
    "lowrank-calibrated": ("triangle", "2 2"),
    "lowrank-similar": ("diamond", "10 3 2 3"),
    "lowrank-refit": ("star", ""),
    "lowrank-short-refit": ("plus", "4 2"),
}
STYLE = """
svg { background: #ffffff; font: 12px system-ui, sans-serif }
text { fill: #1c1f24 } .minor { fill: #57606a } .grid { stroke: #d9dde3 } .axis { stroke: #57606a }
.series { fill: none; stroke-width: 1.8 } .mark { stroke-width: 1.4 } .hollow { fill: #ffffff }
.mean { stroke: #b42318; color: #b42318 } .first { stroke: #7a6a00; color: #7a6a00 }
.lowrank-calibrated { stroke: #1a7f37; color: #1a7f37 }
.lowrank-similar { stroke: #0b62c4; color: #0b62c4 }
.lowrank-refit { stroke: #8250df; color: #8250df }
.lowrank-short-refit { stroke: #bf3989; color: #bf3989 } .solid { fill: currentColor }
@media (prefers-color-scheme: dark) {
svg { background: #14171c }
text { fill: #e8eaed } .minor { fill: #a3abb5 } .grid { stroke: #333a44 } .axis { stroke: #a3abb5 }
.hollow { fill: #14171c }
.mean { stroke: #ff8a80; color: #ff8a80 } .first { stroke: #e3cf57; color: #e3cf57 }
.lowrank-calibrated { stroke: #6fdd8b; color: #6fdd8b }
.lowrank-similar { stroke: #79b8ff; color: #79b8ff }
.lowrank-refit { stroke: #c8a6ff; color: #c8a6ff }
.lowrank-short-refit { stroke: #ff9bce; color: #ff9bce }
}
"""


def svg(results):
    study = results.study
    methods = [method.key for method in study.methods if method.key in STYLES]
    width = LEFT + len(study.ratios) * (PANEL_WIDTH + GAP_X) + 10
    height = TOP + len(study.kinds) * (PANEL_HEIGHT + GAP_Y) + 14
    scale = LossScale(results, methods)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
             f'width="{width}" height="{height}" role="img">',
             "<title>Excess loss of converted models against the share of the pretraining that is "
             f"repeated</title><style>{STYLE}</style>",
             text(LEFT, 22, "Excess loss after conversion and uptraining", "font-size='16'"),
             *legend(methods, width)]
    for i, kind in enumerate(study.kinds):
        for j, ratio in enumerate(study.ratios):
            panel = Panel(LEFT + j * (PANEL_WIDTH + GAP_X), TOP + i * (PANEL_HEIGHT + GAP_Y),
                          scale, study.alphas)
            parts += panel.frame(f"{kind.label}, {ratio}:1", first_column=j == 0)
            for method in methods:
                parts += panel.series(results, kind.key, ratio, method)
    return "\n".join([*parts, "</svg>", ""])


def legend(methods, width):
    parts, x, y = [], LEFT, 46
    for method in methods:
        label = label_of(method)
        if x + 44 + 6.4 * len(label) > width:
            x, y = LEFT, y + 18
        dashes = STYLES[method][1]
        parts.append(f"<path class='series {method}' stroke-dasharray='{dashes}' "
                     f"d='M{x} {y - 4}h30'/>" + marker(method, x + 15, y - 4))
        parts.append(text(x + 36, y, label))
        x += 60 + 6.4 * len(label)
    note = f"hollow: {TOTAL_ALPHA:g} in total, calibration and refit paid for out of it"
    return [*parts, text(LEFT, y + 18, note, "class='minor'")]


class LossScale:
    """Decades of excess loss that all panels share."""

    def __init__(self, results, methods):
        values = [cell["excess"] for cell in results.cells if cell["method"] in methods]
        self.low = math.log10(FLOOR)
        self.high = math.log10(max([*values, 10 * FLOOR]) * 1.3)

    def y(self, loss):
        share = (math.log10(max(loss, FLOOR)) - self.low) / (self.high - self.low)
        return PANEL_HEIGHT * (1 - share)

    def ticks(self):
        return [10.0 ** power for power in range(round(self.low), math.floor(self.high) + 1)]


class Panel:
    def __init__(self, x, y, scale, alphas):
        self.x, self.y, self.scale = x, y, scale
        self.alphas = [0.0, *alphas]

    def column(self, alpha):
        margin = 18
        at = self.alphas.index(alpha) / max(1, len(self.alphas) - 1)
        return self.x + margin + at * (PANEL_WIDTH - 2 * margin)

    def frame(self, title, first_column):
        bottom = self.y + PANEL_HEIGHT
        parts = [text(self.x, self.y - 8, title, "font-weight='600'")]
        for tick in self.scale.ticks():
            y = self.y + self.scale.y(tick)
            parts.append(f"<path class='grid' d='M{self.x} {y:.1f}h{PANEL_WIDTH}'/>")
            if first_column:
                number = ("≤ " if tick == FLOOR else "") + f"{tick:g}"
                parts.append(text(self.x - 5, y + 4, number, "class='minor' text-anchor='end'"))
        for alpha in self.alphas:
            parts.append(text(self.column(alpha), bottom + 15, f"{alpha:g}",
                              "class='minor' text-anchor='middle'"))
        parts.append(f"<path class='axis' fill='none' d='M{self.x} {self.y}V{bottom}"
                     f"h{PANEL_WIDTH}'/>")
        middle = self.x + PANEL_WIDTH / 2
        parts.append(text(middle, bottom + 31, "α, fraction of the pretraining steps",
                          "class='minor' text-anchor='middle'"))
        if first_column:
            x, y = self.x - 52, self.y + PANEL_HEIGHT / 2
            parts.append(text(x, y, "excess loss, nats per token",
                              f"text-anchor='middle' transform='rotate(-90 {x} {y})'"))
        return parts

    def series(self, results, kind, ratio, method):
        points, parts = [], []
        for alpha in self.alphas:
            excess = results.excess(kind, method, ratio, alpha)
            if excess is not None:
                points.append((self.column(alpha), self.y + self.scale.y(excess.mean)))
        if len(points) > 1:
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            parts.append(f"<path class='series {method}' stroke-dasharray='{STYLES[method][1]}' "
                         f"d='M{path}'/>")
        parts += [marker(method, x, y) for x, y in points]
        total = results.excess(kind, method, ratio, TOTAL)
        if total is not None and TOTAL_ALPHA in self.alphas:
            parts.append(marker(method, self.column(TOTAL_ALPHA),
                                self.y + self.scale.y(total.mean), hollow=True))
        return parts


def marker(method, x, y, hollow=False):
    shape = STYLES[method][0]
    fill = "hollow" if hollow else "solid"
    if shape == "circle":
        return f"<circle class='mark {method} {fill}' cx='{x:.1f}' cy='{y:.1f}' r='4'/>"
    outlines = {"square": "M-4-4h8v8h-8z", "triangle": "M0-5L5 4H-5z", "diamond": "M0-5.5L5 0 0 "
                "5.5-5 0z", "plus": "M-4.5 0h9M0-4.5v9", "cross": "M-4-4l8 8M4-4l-8 8",
                "star": "M0-6l1.5 4 4.5.2-3.5 2.8 1.3 4.4L0 3-3.8 5.4l1.3-4.4L-6-1.8l4.5-.2z"}
    return (f"<path class='mark {method} {fill}' transform='translate({x:.1f} {y:.1f})' "
            f"d='{outlines[shape]}'/>")
