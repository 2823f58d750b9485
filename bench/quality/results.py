"""All measurements of a study, collected from its records."""
import dataclasses
import statistics

from kinds import KINDS
from methods import METHODS
from program import read_record
from stages import CALIBRATION_TEXTS, chosen_rate, source_folder, tuned_losses, uptrained_path
from study import SOURCE, TOTAL_ALPHA

TOTAL = "total"  # instead of an alpha: all costs are paid from TOTAL_ALPHA


@dataclasses.dataclass(frozen=True)
class Excess:
    """Loss minus the MHA model's loss, in nats per predicted token, for all seeds."""

    values: tuple

    @property
    def mean(self):
        return statistics.fmean(self.values)

    @property
    def spread(self):
        """Standard deviation between seeds; None for a single seed."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None


class Results:
    def __init__(self, study):
        self.study = study
        self.source_loss = {}  # (kind, seed) -> loss
        self.cells = []
        for model in study.models:
            record = read_record(study.work / f"{model.trained}.eval.json")
            if record is not None:
                self.source_loss[model.kind, model.seed] = record["report"]["loss"]
                self.add_source_(model)
        self.refused = {}  # (kind, method) -> why
        for conversion in study.conversions():
            if (conversion.model.kind, conversion.model.seed) in self.source_loss:
                self.add_conversion_(conversion)
        self.by_key_ = {}
        for cell in self.cells:
            key = cell["kind"], cell["method"], cell["ratio"], cell["alpha"]
            self.by_key_.setdefault(key, []).append(cell)

    def excess(self, kind, method, ratio, alpha):
        """The excess over all measured seeds, or None."""
        cells = self.by_key_.get((kind, method, ratio, alpha))
        return Excess(tuple(cell["excess"] for cell in cells)) if cells else None

    def cells_of(self, kind, method, ratio, alpha):
        return self.by_key_.get((kind, method, ratio, alpha), [])

    def preparation(self, kind, method, ratio):
        """The cost of calibration and refit as a fraction of pretraining, the maximum over seeds. Reading a token costs
        a third of training on it. None if nothing was measured."""
        cells = self.cells_of(kind, method, ratio, 0.0)
        if not cells:
            return None
        scale = self.study.scale
        tokens = max(cell.get("refit", {}).get("train_token_equivalents", 0) for cell in cells)
        tokens += len(METHODS[method].calibrations) * scale.calibration_tokens / 3
        return tokens / (scale.tokens_per_step * KINDS[kind].pretrain_steps(scale))

    def source_excess(self, kind):
        losses = [loss for (key, _), loss in self.source_loss.items() if key == kind]
        return Excess(tuple(losses)) if losses else None

    def best_of(self, kind, keys):
        """The first of these methods that was measured for a kind, or None."""
        measured = {cell["method"] for cell in self.cells if cell["kind"] == kind}
        return next((key for key in keys if key in measured), None)

    def tuning(self, kind):
        """For each trained method: held-out loss at each candidate learning rate, and the one chosen."""
        keys = [SOURCE, *(method.key for method in self.study.methods if method.uptrained)]
        return {key: {"losses": {f"{rate:g}": loss for rate, loss in tuned_losses(self.study, kind, key).items()},
                      "chosen": chosen_rate(self.study, kind, key)} for key in keys}

    def model_reports(self):
        """The MHA models: held-out loss, and the commands that made them and their statistics."""
        reports = []
        for model in self.study.models:
            if (model.kind, model.seed) not in self.source_loss:
                continue
            paths = ["untrained", "trained", "trained.eval",
                     *(f"{name}.safetensors" for name in CALIBRATION_TEXTS)]
            records = [read_record(self.study.work / f"{model.name}/{path}.json")
                       for path in paths]
            reports.append({"kind": model.kind, "seed": model.seed,
                            "loss": self.source_loss[model.kind, model.seed],
                            "commands": [" ".join(record["command"]) for record in records
                                         if record is not None]})
        return reports

    def seconds(self):
        """The time of all commands, each on its own threads."""
        records = (read_record(path) for path in self.study.work.glob("*-*/**/*.json"))
        return sum(record["seconds"] for record in records if "command" in record)

    def add_(self, model, method, ratio, alpha, evaluation, paths):
        loss = evaluation["report"]["loss"]
        records = [read_record(self.study.work / f"{path}.json") for path in paths]
        cell = {"kind": model.kind, "seed": model.seed, "method": method, "ratio": ratio,
                "alpha": alpha, "loss": loss,
                "excess": loss - self.source_loss[model.kind, model.seed],
                "commands": [" ".join(record["command"]) for record in [*records, evaluation]]}
        steps = records[-1]["report"].get("steps") if records else None
        if steps is not None:
            cell["uptraining_steps"] = steps
        refit = next((record["report"]["refit"] for record in records
                      if "refit" in record.get("report", {})), None)
        if refit is not None:
            cell["refit"] = refit
        self.cells.append(cell)

    def add_trained_(self, model, method, ratio, folder, before):
        rate = chosen_rate(self.study, model.kind, method)
        names = [(alpha, f"alpha-{alpha:g}") for alpha in self.study.alphas]
        for alpha, name in [*names, (TOTAL, f"total-{TOTAL_ALPHA:g}")] if rate else []:
            path = uptrained_path(folder, name, rate)
            evaluation = read_record(self.study.work / f"{path}.eval.json")
            if evaluation is not None:
                self.add_(model, method, ratio, alpha, evaluation, [*before, path])

    def add_source_(self, model):
        self.add_trained_(model, SOURCE, 1, source_folder(model), [])

    def add_conversion_(self, conversion):
        model, path = conversion.model, conversion.converted
        record = read_record(self.study.work / f"{path}.json")
        if record is None:
            return
        if "refused" in record:
            self.refused[model.kind, conversion.method] = record["refused"]
            return
        evaluation = read_record(self.study.work / f"{path}.eval.json")
        if evaluation is None:
            return
        self.add_(model, conversion.method, conversion.ratio, 0.0, evaluation, [path])
        self.add_trained_(model, conversion.method, conversion.ratio, conversion.folder, [path])


def label_of(method):
    return "MHA model, trained on" if method == SOURCE else METHODS[method].label
