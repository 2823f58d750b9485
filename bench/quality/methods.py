"""The ways to convert, as data: a name and the options of `regroup convert`.

If the program lacks an option in `needs`, the method is skipped with a note. In options, {calibration} and
{other_calibration} are files of `regroup calibrate`, {training} the training tokens, {text} the same as text, with its
{tokenizer}, {seed} the model's seed, {percent} the part of the cache that remains at the ratio, and {distilled} and
{distill_steps} the tokens and steps of a whole distillation.
"""
from dataclasses import dataclass

CALIBRATED = ("--calibration", "{calibration}")
SIMILAR = ("--grouping", "similar")
REFIT = ("--refit", "{training}", "--refit-context", "{context}", "--refit-batch", "8",
         "--refit-tokens", "102400", "--refit-steps", "200")
# Small enough to leave steps for uptraining when alpha = 0.01 pays for everything.
SHORT_REFIT = ("--refit", "{training}", "--refit-context", "{context}", "--refit-batch", "4",
               "--refit-tokens", "16384", "--refit-steps", "40", "--refit-lr", "0.15")
# The attention's weight helps models as small as these; on a real one it does not clearly (docs/defaults.md).
DISTIL = ("--text", "{text}", "--tokenizer", "{tokenizer}", "--refit-context", "{context}", "--distill-attention", "1")
WHOLE = ("--refit-batch", "8", "--refit-tokens", "{distilled}", "--distill-steps", "{distill_steps}")
# With the teacher's passes and the calibration about 0.01 of what a small model was trained with. Without trials, because
# they would take all of it: the rate is the best one at 8:1.
SHORT = ("--effort", "quick", "--refit-batch", "4", "--refit-tokens", "9216", "--distill-steps", "16", "--distill-lr", "0.02")


@dataclass(frozen=True)
class Method:
    key: str
    label: str
    options: tuple
    uptrained: bool = False  # also trained, at every alpha
    needs: tuple = ()

    @property
    def has_budget(self):
        """Whether the method has a budget in bytes instead of one number of heads for all layers."""
        return "--kv-budget" in self.options

    @property
    def calibrations(self):
        """The statistics that must exist first."""
        return [name for name in ("calibration", "other_calibration")
                if "{" + name + "}" in self.options]


METHODS = {method.key: method for method in (
    Method("mean", "mean", ("--pool", "mean"), uptrained=True),
    Method("first", "first", ("--pool", "first"), uptrained=True),
    Method("random", "random", ("--pool", "random", "--pool-seed", "{seed}"), uptrained=True),
    Method("lowrank", "lowrank", ("--pool", "lowrank")),
    Method("lowrank-calibrated", "lowrank, calibrated", ("--pool", "lowrank", *CALIBRATED),
           uptrained=True),
    Method("lowrank-other-text", "lowrank, calibrated on other text",
           ("--pool", "lowrank", "--calibration", "{other_calibration}")),
    Method("lowrank-similar", "lowrank, calibrated, similar heads",
           ("--pool", "lowrank", *CALIBRATED, *SIMILAR), uptrained=True, needs=("--grouping",)),
    Method("lowrank-budget", "lowrank, calibrated, similar heads, layers by budget",
           ("--pool", "lowrank", *CALIBRATED, *SIMILAR, "--kv-budget", "{percent}%",
            "--kv-budget-data", "{training}", "--kv-budget-tokens", "4096",
            "--refit-context", "{context}"),
           needs=("--kv-budget",)),
    Method("mean-refit", "mean, refit", ("--pool", "mean", *REFIT),
           needs=("--refit",)),
    Method("lowrank-refit", "lowrank, calibrated, similar heads, refit",
           ("--pool", "lowrank", *CALIBRATED, *SIMILAR, *REFIT), uptrained=True,
           needs=("--grouping", "--refit")),
    Method("lowrank-short-refit", "lowrank, calibrated, similar heads, short refit",
           ("--pool", "lowrank", *CALIBRATED, *SIMILAR, *SHORT_REFIT), uptrained=True,
           needs=("--grouping", "--refit")),
    Method("short-distillation", "lowrank, calibrated, similar heads, short distillation", (*DISTIL, *SIMILAR, *SHORT),
           needs=("--distill-attention",)),
    Method("distillation", "lowrank, calibrated, similar heads, distillation", (*DISTIL, *SIMILAR, *WHOLE),
           needs=("--distill-attention",)),
)}

# The best without and with refitting: the first method in the list that was measured.
CLOSED_FORM = ("lowrank-similar", "lowrank-calibrated")
BEST = ("lowrank-short-refit", "lowrank-refit", "lowrank-similar", "lowrank-calibrated")


def filled_in(options, **places):
    """Options with {name} replaced."""
    return [option.format(**places) for option in options]
