"""The stages of the study as `regroup` commands: pretrain, convert, tune, uptrain.

Each function runs the missing commands for one model or cell, and returns the last record.
"""
import json
import math
import shutil

from kinds import KINDS
from methods import METHODS, filled_in
from program import read_record, write_atomically
from study import SOURCE, TUNING_ALPHA, TUNING_RATIO, TOTAL_ALPHA, Conversion, Model

CALIBRATION_TEXTS = {"calibration": "training", "other_calibration": "other"}
UPTRAIN_SEEDS = 100  # added to the model's own seed: for the order of the data in uptraining


def pretrain(study, model):
    """Random weights, training, held-out loss."""
    scale, kind = study.scale, KINDS[model.kind]
    config = f"{model.name}/config.json"
    text = json.dumps(kind.config(scale), indent=2) + "\n"
    write_atomically(study.work / config, text)
    run = study.program.run_once
    untrained = f"{model.name}/untrained"
    run(f"{untrained}.json", ["init", config, untrained, "--seed", str(model.seed)], untrained)
    run(f"{model.trained}.json",
        uptrain_command(study, model, untrained, model.trained,
                        ["--steps", str(kind.pretrain_steps(scale))], scale.pretrain_rate,
                        seed=model.seed),
        model.trained)
    return evaluate(study, model, model.trained)


def uptrain_command(study, model, source, output, length, rate, seed=None):
    """The same recipe before and after conversion: AdamW, cosine decay to a tenth, warm-up over a 50th of the steps.
    The data have another order after conversion. Without `rate`, the program finds one by short trials."""
    kind = KINDS[model.kind]
    return ["uptrain", source, "--data", study.data("training"), *length,
            "--sequence", str(kind.window(study.scale)), "--batch", str(kind.batch(study.scale)),
            *(["--lr", f"{rate:g}"] if rate else []), "--seed", str(seed or UPTRAIN_SEEDS + model.seed),
            *([] if study.scale.dtype == "fp32" else ["--dtype", study.scale.dtype]),
            "--save-every", "0", "--output", output, *kind.task_options]


def evaluate(study, model, path):
    """Held-out loss on the same windows for all models."""
    scale, kind = study.scale, KINDS[model.kind]
    return study.program.run_once(
        f"{path}.eval.json",
        ["eval", path, "--data", study.data("held-out"), "--context", str(kind.window(scale)),
         "--max-tokens", str(scale.eval_windows * scale.sequence), *kind.task_options])


def calibration_path(model, name):
    return f"{model.name}/{name}.safetensors"


def calibrate(study, model, name):
    """Statistics of the trained model on the training text, or on the other text."""
    path = calibration_path(model, name)
    return study.program.run_once(
        f"{path}.json",
        ["calibrate", model.trained, "--data", study.data(CALIBRATION_TEXTS[name]),
         "--context", str(KINDS[model.kind].window(study.scale)),
         "--max-tokens", str(study.scale.calibration_tokens), "--output", path], path)


def distill_steps(study, model):
    """Steps of 8 windows that train on the tokens of a distillation once."""
    return max(1, study.scale.distilled_tokens // (8 * KINDS[model.kind].window(study.scale)))


def convert(study, conversion):
    """One cell right after conversion. A kind of model may not support a method."""
    model, method = conversion.model, METHODS[conversion.method]
    places = {name: calibration_path(model, name) for name in method.calibrations}
    options = filled_in(method.options, seed=model.seed, training=study.data("training"),
                        text=study.text("training"), tokenizer=study.text_tokenizer,
                        context=KINDS[model.kind].window(study.scale), distilled=study.scale.distilled_tokens,
                        distill_steps=distill_steps(study, model),
                        percent=f"{100 / conversion.ratio:g}", **places)
    heads = [] if method.has_budget else ["--kv-heads", str(conversion.kv_heads)]
    record = study.program.run_once(
        f"{conversion.converted}.json",
        ["convert", model.trained, conversion.converted, *heads, *options], conversion.converted, may_refuse=bool(method.needs))
    if "refused" in record:
        return record
    return evaluate(study, model, conversion.converted)


def uptrained_path(folder, name, rate):
    return f"{folder}/{name}-lr-{rate:g}"


def source_folder(model):
    """The folder where training of the MHA model continues, to measure the effect of the same steps."""
    return f"{model.name}/source"


def uptrain(study, conversion, alpha, rate):
    """One cell after training for a fraction `alpha` of the pretraining steps."""
    return train_and_evaluate(study, conversion.model, conversion.converted,
                              uptrained_path(conversion.folder, f"alpha-{alpha:g}", rate),
                              length_of(study, conversion.model, alpha), rate)


def uptrain_source(study, model, alpha, rate):
    """The MHA model, trained further in the same way."""
    return train_and_evaluate(study, model, model.trained,
                              uptrained_path(source_folder(model), f"alpha-{alpha:g}", rate),
                              length_of(study, model, alpha), rate)


def length_of(study, model, alpha):
    steps = KINDS[model.kind].pretrain_steps(study.scale)
    return ["--alpha", f"{alpha:g}", "--pretrain-steps", str(steps)]


def train_and_evaluate(study, model, source, path, length, rate):
    """Trains `source`, evaluates the result, and keeps the numbers, not the weights."""
    evaluation = read_record(study.work / f"{path}.eval.json")
    if evaluation is not None:
        return evaluation
    study.program.run_once(f"{path}.json",
                           uptrain_command(study, model, source, path, length, rate), path)
    evaluation = evaluate(study, model, path)
    shutil.rmtree(study.work / path, ignore_errors=True)
    return evaluation


def tune(study, kind, method, rate):
    """One method with one of the candidate learning rates; None if the kind does not support the method."""
    model = Model(kind, study.tuning_seed())
    if method == SOURCE:
        return uptrain_source(study, model, TUNING_ALPHA, rate)
    cell = Conversion(model, method, TUNING_RATIO)
    return None if "refused" in convert(study, cell) else uptrain(study, cell, TUNING_ALPHA, rate)


def tuned_losses(study, kind, method):
    """Held-out loss by candidate learning rate, as far as tune() was called."""
    model = Model(kind, study.tuning_seed())
    folder = source_folder(model) if method == SOURCE else Conversion(model, method, TUNING_RATIO).folder
    records = ((rate, read_record(study.work / f"{uptrained_path(folder, f'alpha-{TUNING_ALPHA:g}', rate)}.eval.json"))
               for rate in study.scale.uptrain_rates)
    return {rate: record["report"]["loss"] for rate, record in records if record is not None}


def chosen_rate(study, kind, method):
    """The learning rate that is best for a method at one ratio and alpha; it is used at all. None if it was not measured."""
    rates = study.scale.uptrain_rates
    if len(rates) == 1:
        return rates[0]
    losses = tuned_losses(study, kind, method)
    return min(losses, key=losses.get) if len(losses) == len(rates) else None


def preparation_flops(study, conversion):
    """Floating-point operations before uptraining: for each token of the calibration a forward pass, which is a third
    of training, and the refit as convert reports it."""
    pretraining = read_record(study.work / f"{conversion.model.trained}.json")["report"]
    per_token = pretraining["flops"] / pretraining["tokens"]
    tokens = sum(calibrate(study, conversion.model, name)["report"]["tokens"] / 3
                 for name in METHODS[conversion.method].calibrations)
    converted = read_record(study.work / f"{conversion.converted}.json")["report"]
    tokens += converted.get("refit", {}).get("train_token_equivalents", 0)
    return per_token * tokens


def steps_at_total(study, conversion, rate):
    """The steps that TOTAL_ALPHA leaves after calibration and refit, or 0."""
    steps = KINDS[conversion.model.kind].pretrain_steps(study.scale)
    full = math.ceil(round(TOTAL_ALPHA * steps, 6))
    plan = study.program.run_once(
        f"{conversion.folder}/plan.json",
        [*uptrain_command(study, conversion.model, conversion.converted,
                          f"{conversion.folder}/planned", ["--steps", str(full)], rate),
         "--dry-run"])["report"]
    per_step = plan["flops"] / plan["steps"]
    return max(0, math.floor(full - preparation_flops(study, conversion) / per_step))


def uptrain_at_total(study, conversion, rate):
    """The cell that costs TOTAL_ALPHA including calibration and refit. None if these cost all of it."""
    steps = steps_at_total(study, conversion, rate)
    if steps == 0:
        return None
    return train_and_evaluate(study, conversion.model, conversion.converted,
                              uptrained_path(conversion.folder, f"total-{TOTAL_ALPHA:g}", rate),
                              ["--steps", str(steps)], rate)
