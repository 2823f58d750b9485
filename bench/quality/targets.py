"""The targets for the conversions, each checked with the measurements.

Excess is the held-out loss minus the MHA model's, averaged over seeds. Factors compare such means.
"""
import dataclasses

from methods import BEST, CLOSED_FORM
from results import label_of
from study import TOTAL_ALPHA

# Highest allowed excess over mean pooling's, right after conversion: {ratio: {kind: factor}}.
CLOSED_FORM_LIMITS = {2: {"alibi": 0.06, "learned": 0.06, "rope": 0.18},
                      4: {"alibi": 0.10, "learned": 0.10, "rope": 0.25}}
REFIT_LIMITS = {2: {"alibi": 0.015, "learned": 0.015, "rope": 0.02},
                4: {"alibi": 0.03, "learned": 0.03, "rope": 0.045}}
DISTILLED_LIMITS = {2: 0.005, 4: 0.01, 8: 0.02}
# Lowest factor between the mean's excess after uptraining and ours after a short distillation, which costs 0.01.
SHORT_FACTOR = 3
OTHER_TEXT_LIMIT = 1.25  # the meaning of "a little"
COMPARED_ALPHA = 0.05
CLOSE_RATIO, CLOSE_NATS = 2, 0.01


@dataclasses.dataclass(frozen=True)
class Target:
    point: int
    kind: str
    ratio: int
    claim: str
    measured: str
    reached: bool


def check_targets(results):
    """All targets whose numbers were measured, in order."""
    targets = []
    for check in (check_order, check_closed_form, check_refit, check_distillation, check_compute,
                  check_other_text, check_budget):
        for kind in (kind.key for kind in results.study.kinds):
            for ratio in results.study.ratios:
                targets += check(results, kind, ratio)
    return sorted(targets, key=lambda target: target.point)


def value(results, kind, method, ratio, alpha=0.0):
    excess = results.excess(kind, method, ratio, alpha) if method else None
    return None if excess is None else excess.mean


def compare(point, kind, ratio, claim, left, right, limit=1.0):
    """A target "left is at most (for limit 1: below) limit × right", if both were measured."""
    if left is None or right is None:
        return []
    reached = left < right if limit == 1.0 else left <= limit * right
    factor = f" ({left / right:.3f}×)" if right > 0 else ""
    return [Target(point, kind, ratio, claim, f"{left:+.4f} to {right:+.4f}{factor}", reached)]


def check_order(results, kind, ratio):
    def at(method):
        return value(results, kind, method, ratio)
    claims = [("first below mean", at("first")),
              ("lowrank below mean", at("lowrank"))]
    return [target for claim, left in claims
            for target in compare(1, kind, ratio, claim, left, at("mean"))]


def check_closed_form(results, kind, ratio):
    ours = results.best_of(kind, CLOSED_FORM)
    if ours is None:
        return []
    excess = value(results, kind, ours, ratio)
    limit = CLOSED_FORM_LIMITS.get(ratio, {}).get(kind)
    if limit is None:
        return []
    return compare(2, kind, ratio, f"{label_of(ours)} at most {limit:g}× mean", excess,
                   value(results, kind, "mean", ratio), limit)


def check_refit(results, kind, ratio):
    limit = REFIT_LIMITS.get(ratio, {}).get(kind)
    if limit is None:
        return []
    return compare(2, kind, ratio, f"with refit at most {limit:g}× mean",
                   value(results, kind, "lowrank-refit", ratio),
                   value(results, kind, "mean", ratio), limit)


def check_distillation(results, kind, ratio):
    mean = value(results, kind, "mean", ratio)
    uptrained = value(results, kind, "mean", ratio, COMPARED_ALPHA)
    limit = DISTILLED_LIMITS[ratio]
    return (compare(2, kind, ratio, f"distilled at most {limit:g}× mean",
                    value(results, kind, "distillation", ratio), mean, limit) +
            compare(3, kind, ratio, f"short distillation at most 1/{SHORT_FACTOR} of mean at α = {COMPARED_ALPHA:g}",
                    value(results, kind, "short-distillation", ratio), uptrained, 1 / SHORT_FACTOR))


def check_compute(results, kind, ratio):
    """Compares the first of our methods, in order of preference, that TOTAL_ALPHA pays for. Steps that are left are one
    or two. They are not taken, because they would only disturb the model."""
    costs = {method: results.preparation(kind, method, ratio) for method in BEST}
    ours = next((method for method in BEST
                 if costs[method] is not None and costs[method] <= TOTAL_ALPHA), None)
    if ours is None:
        return []
    excess = value(results, kind, ours, ratio)
    spent = f"{label_of(ours)}, {costs[ours]:.4f} in total, no uptraining"
    targets = compare(3, kind, ratio, f"{spent}, below mean at α = {COMPARED_ALPHA:g}", excess,
                      value(results, kind, "mean", ratio, COMPARED_ALPHA))
    if ratio == CLOSE_RATIO:
        targets.append(Target(3, kind, ratio, f"stretch: {spent}, within {CLOSE_NATS:g} nats of "
                              "MHA", f"{excess:+.4f}", excess <= CLOSE_NATS))
    return targets


def check_budget(results, kind, ratio):
    return compare(7, kind, ratio, "layers by budget below uniform at equal bytes",
                   value(results, kind, "lowrank-budget", ratio),
                   value(results, kind, "lowrank-similar", ratio))


def check_other_text(results, kind, ratio):
    own = value(results, kind, "lowrank-calibrated", ratio)
    other = value(results, kind, "lowrank-other-text", ratio)
    free = value(results, kind, "lowrank", ratio)
    return (compare(4, kind, ratio, f"calibrated on other text at most {OTHER_TEXT_LIMIT:g}× of "
                    "on its own", other, own, OTHER_TEXT_LIMIT) +
            compare(4, kind, ratio, "calibrated on other text below data-free", other, free))
