"""The models of extrapolation.py, and their losses on windows longer than those they were trained on."""
import json
import os
import shutil
from dataclasses import dataclass

from kinds import KINDS
from program import read_record, write_atomically
from stages import UPTRAIN_SEEDS, length_of, uptrain_command
from study import Conversion

ALPHA = 0.05
REPLACED_ALPHAS = (0.05, 0.1)  # for models whose positions became ALiBi
FACTORS = (1, 2, 4, 8, 16)  # windows, in training lengths
SCALINGS = {"linear": "position interpolation", "yarn": "YaRN"}  # ways to stretch RoPE without training


@dataclass(frozen=True)
class Cell:
    """One model to evaluate. `source` is the model it is trained from, or None if it exists already."""

    model: object
    path: str
    method: str  # a key of METHODS; "source" for the MHA model itself
    ratio: int
    alpha: float
    source: str = None
    positions: str = "keep"

    @property
    def label(self):
        return self.path


def cells(study):
    """All models in the order of the table."""
    listed = []
    for model in study.models:
        listed += [Cell(model, model.trained, "source", 1, 0.0), uptrained(model, model.trained, f"{model.name}/source", "source", 1)]
        for conversion in study.conversions():
            if conversion.model == model:
                listed += cells_of(conversion)
        if model.kind == "rope":
            listed += cells_with_alibi(study, model)
    return listed


def cells_of(conversion):
    model, method, ratio = conversion.model, conversion.method, conversion.ratio
    return [Cell(model, conversion.converted, method, ratio, 0.0),
            uptrained(model, conversion.converted, conversion.folder, method, ratio)]


def uptrained(model, source, folder, method, ratio, alpha=ALPHA, positions="keep"):
    return Cell(model, f"{folder}/alpha-{alpha:g}", method, ratio, alpha, source, positions)


def cells_with_alibi(study, model):
    """RoPE replaced by ALiBi: with all heads, and with a fourth of them."""
    listed = []
    for ratio in sorted({1, *study.ratios} & {1, 4}):
        folder = Conversion(model, "alibi", ratio).folder
        listed += [uptrained(model, f"{folder}/converted", folder, "mean" if ratio > 1 else "source", ratio, alpha, "alibi")
                   for alpha in REPLACED_ALPHAS]
    return listed


def make(study, cell):
    """Converts what convert() did not, and trains. Cells that differ in alpha share their source. Returns None, since
    nothing is measured yet."""
    if cell.positions != "keep":
        study.program.run_once(
            f"{cell.source}.json",
            ["convert", cell.model.trained, cell.source, "--kv-heads", str(Conversion(cell.model, "", cell.ratio).kv_heads),
             "--positions", cell.positions], cell.source)
    if cell.source is not None:
        command = uptrain_command(study, cell.model, cell.source, cell.path, length_of(study, cell.model, cell.alpha), None,
                                  seed=UPTRAIN_SEEDS + cell.model.seed)
        study.program.run_once(f"{cell.path}.json", command, cell.path)


def measure(study, cell):
    """Losses at all lengths, as stored, and for RoPE with each scaling."""
    evaluate(study, cell.model, cell.path, f"{cell.path}.lengths.json", FACTORS)
    if cell.model.kind == "rope" and cell.positions == "keep":
        for scaling in SCALINGS:
            for factor in FACTORS[1:]:
                stretched(study, cell, scaling, factor)


def evaluate(study, model, path, record, factors):
    """Windows do not overlap. The last windows of the text are left out if they are not whole, so that each length reads
    the same tokens."""
    scale, kind = study.scale, KINDS[model.kind]
    contexts = ",".join(str(factor * kind.window(scale)) for factor in factors)
    return study.program.run_once(
        record, ["eval", path, "--data", study.data("held-out"), "--context", contexts, "--batch", "1",
                 "--max-tokens", str(scale.eval_windows * scale.sequence), *kind.task_options])


def stretched(study, cell, scaling, factor):
    """The model with other RoPE frequencies: the same weights, another config."""
    record = f"{cell.path}.{scaling}-{factor}.json"
    path = f"{cell.path}.{scaling}-{factor}"
    if (study.work / record).exists():
        return
    shutil.rmtree(study.work / path, ignore_errors=True)
    shutil.copytree(study.work / cell.path, study.work / path, copy_function=os.link)
    config = json.loads((study.work / path / "config.json").read_text(encoding="utf-8"))
    config["rope_scaling"] = {"rope_type": scaling, "factor": float(factor),
                              "original_max_position_embeddings": study.scale.sequence}
    write_atomically(study.work / path / "config.json", json.dumps(config, indent=1) + "\n")
    evaluate(study, cell.model, path, record, [factor])
    shutil.rmtree(study.work / path)


def losses(record):
    report = record["report"]
    return [entry["loss"] for entry in report.get("contexts", [report])]


def results(study):
    """One entry per model and way to read it: {kind, seed, method, ratio, alpha, positions, scaling, losses at FACTORS}."""
    entries = []
    for cell in cells(study):
        plain = losses(read_record(study.work / f"{cell.path}.lengths.json"))
        facts = {"kind": cell.model.kind, "seed": cell.model.seed, "method": cell.method, "ratio": cell.ratio,
                 "alpha": cell.alpha, "positions": cell.positions}
        entries.append({**facts, "scaling": "", "losses": plain})
        for scaling in SCALINGS if cell.model.kind == "rope" and cell.positions == "keep" else ():
            records = [read_record(study.work / f"{cell.path}.{scaling}-{factor}.json") for factor in FACTORS[1:]]
            entries.append({**facts, "scaling": scaling, "losses": [plain[0], *(losses(record)[0] for record in records)]})
    return entries
