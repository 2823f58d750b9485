"""Four panels in one SVG: loss against α, methods, time against kv heads, loss against time."""
import math

from chart_parts import STYLE, text
from methods import METHODS

WIDTH, HEIGHT, LEFT, TOP, GAP_X, GAP_Y = 330, 190, 70, 64, 92, 84
COLOURS = {"source": "first", "mean": "fourth", "best": "third"}
DASHES = {1: "", 2: "2 2", 4: "7 3", 8: "10 3 2 3"}


class Axes:
    """A panel with linear axes. `xs` and `ys` are the values that must fit."""

    def __init__(self, column, line, xs, ys):
        self.x, self.y = LEFT + column * (WIDTH + GAP_X), TOP + line * (HEIGHT + GAP_Y)
        self.span_x, self.y_ticks = (min(xs), max(xs)), round_ticks(min(ys), max(ys))
        self.span_y = (self.y_ticks[0], self.y_ticks[-1])

    def at(self, x, y):
        low, high = self.span_x
        across = 16 + (WIDTH - 32) * ((x - low) / (high - low) if high > low else 0.5)
        low, high = self.span_y
        return self.x + across, self.y + HEIGHT * (high - y) / (high - low)

    def frame(self, title, x_name, y_name, x_ticks):
        bottom = self.y + HEIGHT
        parts = [text(self.x, self.y - 10, title, "font-weight='600'")]
        for value in self.y_ticks:
            y = self.at(0, value)[1]
            parts.append(f"<path class='grid' d='M{self.x} {y:.1f}h{WIDTH}'/>")
            parts.append(text(self.x - 6, y + 4, f"{value:g}", "class='minor' text-anchor='end'"))
        for value, name in x_ticks:
            parts.append(text(self.at(value, 0)[0], bottom + 16, name, "class='minor' text-anchor='middle'"))
        parts.append(text(self.x + WIDTH / 2, bottom + 34, x_name, "class='minor' text-anchor='middle'"))
        middle = f"{self.x - 50} {self.y + HEIGHT / 2}"
        parts.append(text(self.x - 50, self.y + HEIGHT / 2, y_name,
                          f"class='minor' text-anchor='middle' transform='rotate(-90 {middle})'"))
        return parts

    def line(self, points, colour, dashes=""):
        path = "L".join("{:.1f} {:.1f}".format(*self.at(*point)) for point in points)
        return f"<path class='series {colour}' stroke-dasharray='{dashes}' d='M{path}'/>"

    def dot(self, point, colour, name, beside):
        x, y = self.at(*point)
        anchor = "end" if x > self.x + WIDTH / 2 else "start"
        return [f"<circle class='series {colour}' cx='{x:.1f}' cy='{y:.1f}' r='4'/>",
                text(*((x + 9, y + 4) if beside else (x, y - 9)), name, f"class='minor' text-anchor='{anchor}'")]


def round_ticks(low, high):
    """About five round numbers, the first at most `low` and the last at least `high`."""
    rough = max(high - low, 1e-9) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)
    return [round(i * step, 9) for i in range(math.floor(low / step), math.ceil(high / step) + 1)]


def best_of(cells):
    """The last method of the list that is not the mean: lists go from simple to good."""
    return next((method for method in reversed(cells.methods) if method != "mean"), "mean")


def series(cells):
    """(method, ratio, colour) of the lines over α."""
    best = best_of(cells)
    lines = [("source", 1, COLOURS["source"]), *(("mean", ratio, COLOURS["mean"]) for ratio in cells.ratios)]
    return lines + ([(best, ratio, COLOURS["best"]) for ratio in cells.ratios] if best != "mean" else [])


def points_of(cells, method, ratio):
    losses = ((alpha, cells.loss(method, ratio, alpha)) for alpha in cells.alphas)
    return [(alpha, loss) for alpha, loss in losses if loss is not None]


def loss_over_alpha(cells):
    lines = [(points_of(cells, method, ratio), colour, DASHES[ratio]) for method, ratio, colour in series(cells)]
    axes = Axes(0, 0, cells.alphas, [loss for points, *_ in lines for _, loss in points])
    return [*axes.frame("Loss against α (the paper's figure 5)", "α, fraction of the pretraining steps", "nats per token",
                        [(alpha, f"{alpha:g}") for alpha in cells.alphas if alpha != 0.01]),
            *(axes.line(*line) for line in lines)]


def methods(cells, alpha):
    """A bar for each method and ratio, from the MHA model's loss after as much training."""
    base = cells.loss("source", 1, alpha)
    bars = [(f"{METHODS[method].label.split(',')[0]}, {ratio}:1", cells.loss(method, ratio, alpha) - base,
             COLOURS["mean" if method == "mean" else "best" if method == best_of(cells) else "source"])
            for ratio in cells.ratios for method in cells.methods if cells.loss(method, ratio, alpha) is not None]
    x, y = LEFT + WIDTH + GAP_X, TOP
    most, step = max([excess for _, excess, _ in bars] + [1e-9]), HEIGHT / max(1, len(bars))
    parts = [text(x, y - 10, f"Methods at α = {alpha:g} (figure 4): loss over MHA's", "font-weight='600'")]
    for i, (name, excess, colour) in enumerate(bars):
        middle = y + step * (i + 0.5)
        width = max(0.0, excess) / most * (WIDTH - 150)
        parts += [text(x + 92, middle + 4, name, "class='minor' text-anchor='end'"),
                  f"<path class='{colour}' stroke-width='{0.6 * step:.1f}' d='M{x + 100} {middle:.1f}h{width:.1f}'/>",
                  text(x + 106 + width, middle + 4, f"{excess:+.3f}")]
    return parts


def time_over_heads(shape):
    heads = sorted(shape)
    axes = Axes(0, 1, [0, len(heads) - 1], [0.0, *(1000 * time for time in shape.values())])
    return [*axes.frame(f"Time per token, {heads[-1]} query heads (figure 6)", "kv heads", "ms",
                        [(i, str(count)) for i, count in enumerate(heads)]),
            axes.line([(i, 1000 * shape[count]) for i, count in enumerate(heads)], COLOURS["best"])]


def loss_over_time(cells, models, alpha):
    dots = [("MHA" if method == "source" else f"{METHODS[method].label.split(',')[0]}, {ratio}:1", models[ratio], loss, colour, ratio == 4)
            for method, ratio, colour in series(cells) if (loss := cells.loss(method, ratio, alpha)) is not None]
    times = [1000 * time for _, time, *_ in dots]
    axes = Axes(1, 1, times, [loss for _, _, loss, *_ in dots])
    parts = axes.frame(f"Loss at α = {alpha:g} against time per token (figure 3)", "ms", "nats per token",
                       [(time, f"{time:.1f}") for time in sorted(set(times))])
    return [*parts, *(part for name, time, loss, colour, beside in dots
                     for part in axes.dot((1000 * time, loss), colour, name, beside))]


def legend(cells):
    parts, x = [], LEFT
    for method, ratio, colour in series(cells):
        name = "MHA, trained on" if method == "source" else f"{METHODS[method].label.split(',')[0]}, {ratio}:1"
        parts += [f"<path class='series {colour}' stroke-dasharray='{DASHES[ratio]}' d='M{x} 22h26'/>", text(x + 32, 26, name)]
        x += 60 + 7 * len(name)
    return parts


def chart(cells, models, shape, alpha):
    width, height = LEFT + 2 * WIDTH + GAP_X + 24, TOP + 2 * HEIGHT + GAP_Y + 52
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        f"<title>The GQA paper's figures</title><style>{STYLE}</style>", *legend(cells), *loss_over_alpha(cells),
        *methods(cells, alpha), *time_over_heads(shape), *loss_over_time(cells, models, alpha), "</svg>", ""])
