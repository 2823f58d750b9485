"""The results of extrapolation.py as a Markdown table and as one SVG with a panel for each way to encode positions."""
import statistics

from chart_parts import STYLE, text
from kinds import KINDS
from lengths import ALPHA, FACTORS, SCALINGS
from methods import METHODS
from table import row, rule

LINES = (("source", 1, "solid"), ("lowrank-calibrated", 2, "2 2"), ("lowrank-calibrated", 4, "7 3"), ("lowrank-calibrated", 8, "10 3 2 3"))
COLOURS = {1: "first", 2: "second", 4: "third", 8: "fourth"}
WIDTH, HEIGHT, LEFT, TOP, GAP = 240, 150, 64, 104, 62
COLUMNS = 3
MOST = 2.0  # nats above the loss at the training length; larger values are drawn here
LEAST = -0.25


def groups(results):
    """{(kind, positions, scaling, method, ratio, alpha): the losses of each seed}, in the order of the results."""
    grouped = {}
    for entry in results:
        key = tuple(entry[name] for name in ("kind", "positions", "scaling", "method", "ratio", "alpha"))
        grouped.setdefault(key, []).append(entry["losses"])
    return grouped


def label(kind, positions, scaling):
    name = KINDS[kind].label
    return name + (f", {SCALINGS[scaling]}" if scaling else "") + (", replaced by ALiBi" if positions == "alibi" else "")


def cell(values):
    spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.3f}{spread}"


def markdown(study, results):
    length = study.scale.sequence
    head = ["model", "kv heads", "method", "α", *(f"{factor * length}" for factor in FACTORS), "longest − trained"]
    lines = ["# Reading beyond the training length\n",
             f"Held-out loss in nats per byte of models trained on windows of {length} bytes, in windows that do not overlap; "
             f"seeds: {len(study.seeds)} (± the standard deviation between them). The encoder-decoder's windows are twice as long.\n",
             row(head), rule(len(head), 4)]
    for (kind, positions, scaling, method, ratio, alpha), seeds in groups(results).items():
        name = "–" if method == "source" else METHODS[method].label
        drift = [losses[-1] - losses[0] for losses in seeds]
        lines.append(row([label(kind, positions, scaling), str(8 // ratio), name, f"{alpha:g}",
                          *(cell([losses[i] for losses in seeds]) for i in range(len(FACTORS))), f"{statistics.fmean(drift):+.3f}"]))
    return "\n".join([*lines, ""])


def chart(study, results):
    """Loss minus that at the training length, against the length, of the MHA model and of uptrained grouped ones."""
    grouped = groups(results)
    panels = list(dict.fromkeys((kind, positions, scaling) for kind, positions, scaling, *_ in grouped if positions == "keep"))
    rows = -(-len(panels) // COLUMNS)
    width, height = LEFT + COLUMNS * (WIDTH + 24), TOP + rows * (HEIGHT + GAP)
    title = f"Loss in longer windows than the {study.scale.sequence} bytes of training, minus the loss in those"
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
             f"<title>{title}</title><style>{STYLE}</style>", text(LEFT, 24, title, "font-size='16'"), *legend()]
    for place, panel in enumerate(panels):
        x, y = LEFT + place % COLUMNS * (WIDTH + 24), TOP + place // COLUMNS * (HEIGHT + GAP)
        parts += frame(x, y, label(*panel), study.scale.sequence, place % COLUMNS == 0)
        for method, ratio, dashes in LINES:
            seeds = grouped.get((*panel, method, ratio, ALPHA))
            if seeds:
                parts.append(line(x, y, [statistics.fmean(losses[i] - losses[0] for losses in seeds) for i in range(len(FACTORS))],
                                  COLOURS[ratio], dashes))
    return "\n".join([*parts, "</svg>", ""])


def legend():
    parts, x = [], LEFT
    for method, ratio, dashes in LINES:
        name = "MHA" if method == "source" else f"{ratio}:1"
        parts.append(f"<path class='series {COLOURS[ratio]}' stroke-dasharray='{dash(dashes)}' d='M{x} 44h30'/>")
        parts.append(text(x + 38, 48, name))
        x += 100
    note = f"lowrank, calibrated; all uptrained for α = {ALPHA:g} at the training length; above {MOST:g}: drawn at {MOST:g}"
    return [*parts, text(LEFT, 68, note, "class='minor'")]


def dash(dashes):
    return "" if dashes == "solid" else dashes


def column(x, i):
    return x + 14 + i * (WIDTH - 28) / (len(FACTORS) - 1)


def level(y, value):
    return y + HEIGHT * (MOST - min(max(value, LEAST), MOST)) / (MOST - LEAST)


def frame(x, y, title, length, first_column):
    parts = [text(x, y - 8, title, "font-weight='600'")]
    for tick in (0.0, 0.5, 1.0, 1.5, 2.0):
        parts.append(f"<path class='grid' d='M{x} {level(y, tick):.1f}h{WIDTH}'/>")
        if first_column:
            parts.append(text(x - 6, level(y, tick) + 4, f"{tick:+.1f}" if tick else "0", "class='minor' text-anchor='end'"))
    for i, factor in enumerate(FACTORS):
        parts.append(text(column(x, i), y + HEIGHT + 16, str(factor * length), "class='minor' text-anchor='middle'"))
    parts.append(text(x + WIDTH / 2, y + HEIGHT + 32, "bytes in a window", "class='minor' text-anchor='middle'"))
    return parts


def line(x, y, values, colour, dashes):
    points = "L".join(f"{column(x, i):.1f} {level(y, value):.1f}" for i, value in enumerate(values))
    return f"<path class='series {colour}' stroke-dasharray='{dash(dashes)}' d='M{points}'/>"
