"""The study as one Markdown table, followed by the targets and the settings."""
from results import SOURCE, TOTAL, label_of
from study import TOTAL_ALPHA, TUNING_ALPHA, TUNING_RATIO
from targets import COMPARED_ALPHA, check_targets

INTRODUCTION = """\
Excess loss: held-out loss minus that of the MHA model, in nats per predicted token, {seeds}; in
parentheses the factor to mean pooling at the same α. α is the fraction of the pretraining steps
that is trained after conversion. In the rows “{total:g} in total” calibration and refit are paid
for out of α, and the factor is to mean pooling at α = {compared:g}.
"""


def markdown(results):
    study = results.study
    seeds = (f"of seed {study.seeds[0]}" if len(study.seeds) == 1 else
             f"mean over {len(study.seeds)} seeds ± the standard deviation between them")
    introduction = INTRODUCTION.format(seeds=seeds, total=TOTAL_ALPHA, compared=COMPARED_ALPHA)
    return "\n".join([
        "# Quality of conversions\n", introduction, *main_table(results), "",
        *compute_notes(results), "## Targets\n", *target_table(results), "",
        "## How it was made\n", *origins(results), ""])


def row(cells):
    return "| " + " | ".join(cells) + " |"


def rule(columns, left):
    return row(["---"] * left + ["--:"] * (columns - left))


def excess_text(excess, base=None):
    if excess is None:
        return "–"
    text = f"{excess.mean:+.3f}"
    if excess.spread is not None:
        text += f" ± {excess.spread:.3f}"
    if base is not None and base.mean > 0:
        text += f" ({excess.mean / base.mean:.3f}×)"
    return text


def alphas_of(study):
    return [(0.0, "0"), *((alpha, f"{alpha:g}") for alpha in study.alphas),
            (TOTAL, f"{TOTAL_ALPHA:g} in total")]


def main_table(results):
    study = results.study
    ratios = [f"{ratio}:1" for ratio in study.ratios]
    lines = [row(["model", "α", "method", *ratios]), rule(3 + len(ratios), 3)]
    for kind in study.kinds:
        for alpha, name in alphas_of(study):
            for method in study.methods:
                cells = method_cells(results, kind.key, method.key, alpha)
                if any(cell != "–" for cell in cells):
                    lines.append(row([kind.label, name, method.label, *cells]))
            source = results.excess(kind.key, SOURCE, 1, alpha)
            if source is not None:
                lines.append(row([kind.label, name, label_of(SOURCE), excess_text(source),
                                  *[""] * (len(ratios) - 1)]))
    return lines


def method_cells(results, kind, method, alpha):
    cells = []
    compared = COMPARED_ALPHA if alpha == TOTAL else alpha
    for ratio in results.study.ratios:
        base = results.excess(kind, "mean", ratio, compared) if method != "mean" else None
        cells.append(excess_text(results.excess(kind, method, ratio, alpha), base))
    return cells


def compute_notes(results):
    """Steps that total-compute cells had left, and what refits took."""
    labels = {kind.key: kind.label for kind in results.study.kinds}
    steps, refits = {}, {}
    for cell in results.cells:
        name = f"{labels[cell['kind']]}, {label_of(cell['method'])}"
        if cell["alpha"] == TOTAL:
            steps.setdefault(name, set()).add(cell["uptraining_steps"])
        if "refit" in cell:
            refits.setdefault(name, set()).add(
                cell["refit"]["train_token_equivalents"] / results.study.scale.tokens_per_step)
    return [f"“{TOTAL_ALPHA:g} in total”: calibration, refit and uptraining together cost as many "
            f"FLOPs as {TOTAL_ALPHA:g} of the pretraining steps on the converted model, a forward "
            "pass a third of training. Left for uptraining, and taken by refits, in steps:", "",
            *(f"- {name}: {span(left)} left" for name, left in steps.items()),
            *(f"- {name}: the refit takes {span(taken)}" for name, taken in refits.items()), ""]


def span(numbers):
    low, high = min(numbers), max(numbers)
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def target_table(results):
    labels = {kind.key: kind.label for kind in results.study.kinds}
    lines = [row(["point", "model", "ratio", "target", "measured", "reached"]), rule(6, 6)]
    for target in check_targets(results):
        lines.append(row([str(target.point), labels[target.kind], f"{target.ratio}:1",
                          target.claim, target.measured, "yes" if target.reached else "**no**"]))
    return lines


def tried_text(losses):
    tried = ", ".join(f"{rate}: {loss:.4f}" for rate, loss in losses.items())
    return f", the best at {TUNING_RATIO}:1 and α = {TUNING_ALPHA:g} ({tried})" if tried else ""


def origins(results):
    study, scale = results.study, results.study.scale
    lines = [f"- Pretraining: AdamW at {scale.pretrain_rate:g}, cosine to a tenth."]
    for kind in study.kinds:
        loss = results.source_excess(kind.key)
        tuning = results.tuning(kind.key)
        if loss is not None:
            spread = "" if loss.spread is None else f" ± {loss.spread:.3f}"
            lines.append(f"- {kind.label}: {kind.pretrain_steps(scale)} steps of "
                         f"{kind.batch(scale)} windows of {kind.window(scale)} tokens; the MHA "
                         f"model's loss is {loss.mean:.3f}{spread}.")
            lines += [f"- {kind.label}, learning rate of {label_of(method)}: {found['chosen']:g}{tried_text(found['losses'])}."
                      for method, found in tuning.items() if found["chosen"]]
    lines.append("- Uptraining is the same for all methods: that learning rate, warm-up over a "
                 "fiftieth of the steps, cosine to a tenth, AdamW, all weights.")
    lines += [f"- {note}." for note in study.notes]
    lines += [f"- {kind}, {label_of(method)}: refused, {why}"
              for (kind, method), why in sorted(results.refused.items())]
    lines.append(f"- All commands together took {results.seconds() / 60:.0f} minutes, "
                 f"{study.program.threads} thread each.")
    return lines
