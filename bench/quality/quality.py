#!/usr/bin/env python3
"""Trains small MHA models, converts them with every method, uptrains them and compares the losses.

Uses only public `regroup` commands and the standard library; see bench/README.md.
"""
import argparse
import json
import os
import shutil
import sys
from pathlib import Path

from kinds import COMPARED_KINDS, KINDS, QUERY_HEADS, SCALES
from methods import BEST, METHODS
from plot import svg
from program import Program, write_atomically
from results import Results
from runner import Runner, comma_list, exit_code_of, only_user_of
from stages import (calibrate, chosen_rate, convert, pretrain, source_folder, tune, uptrain,
                    uptrain_at_total, uptrain_source)
from study import ALPHAS, RATIOS, SEEDS, SOURCE, Study
from table import markdown
from targets import check_targets

STAGES = ("pretrain", "convert", "uptrain", "report")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--regroup", default="build/release/regroup", type=Path, help="the program to measure")
    add("--work", required=True, type=Path,
        help="folder for data, models and records; a stopped study continues there")
    add("--text", nargs="+", required=True, type=Path,
        help="files to train and calibrate on; their last tenth is held out")
    add("--other-text", nargs="+", required=True, type=Path,
        help="files for the calibration from another text")
    add("--tokenizer", type=Path,
        help="tokenizer.json that cuts the texts into tokens (default: bytes are tokens)")
    add("--report", type=Path, help="folder for quality.md, .json and .svg (default: WORK/report)")
    add("--scale", choices=SCALES, default="small", help="size of the models (default: small)")
    add("--smoke", action="store_true", help="a scale that takes seconds, with one ratio, alpha and seed")
    add("--only", choices=STAGES, help="run only this stage (default: all)")
    add("--kinds", type=comma_list(str, KINDS), default=list(COMPARED_KINDS))
    add("--seeds", type=comma_list(int, None), default=list(SEEDS))
    add("--methods", type=comma_list(str, METHODS), default=list(METHODS))
    add("--ratios", type=comma_list(int, (2, 4, 8)), default=list(RATIOS))
    add("--alphas", type=comma_list(float, None), default=list(ALPHAS))
    add("--redo", action="store_true",
        help="measure the selected results of --only convert or uptrain again")
    add("--jobs", type=int, default=os.cpu_count() or 1, help="number of commands at a time")
    add("--threads", type=int, default=1, help="CPU threads of each")
    add("--device", default="cpu", help="cpu, cuda or cuda:N")
    options = parser.parse_args()
    if options.redo and options.only not in ("convert", "uptrain"):
        parser.error("--redo needs --only convert or --only uptrain")
    if options.smoke:
        options.scale, options.seeds, options.ratios = "smoke", [1], [2]
        options.alphas = [0.05]
    return options


def run_pretrain(study, runner):
    # The slowest kind is last in the table but runs first, so that all cores stay busy.
    models = sorted(study.models, key=lambda model: (model.seed, model.kind != "t5"))
    runner.run("pretrain", [(model.name, lambda model=model: pretrain(study, model))
                            for model in models])


def run_convert(study, runner, redo):
    needed = sorted({name for method in study.methods for name in method.calibrations})
    runner.run("calibrate", [(f"{model.name} {name}",
                              lambda model=model, name=name: calibrate(study, model, name))
                             for model in study.models for name in needed])
    for conversion in study.conversions() if redo else []:
        shutil.rmtree(study.work / conversion.folder, ignore_errors=True)
    runner.run("convert", [(conversion.folder, lambda cell=conversion: convert(study, cell))
                           for conversion in study.conversions()])


def run_uptrain(study, runner, redo):
    run_tuning(study, runner)
    rates = {(kind.key, method): chosen_rate(study, kind.key, method)
             for kind in study.kinds for method in trained_methods(study)}
    for folder in trained_folders(study) if redo else []:
        for record in folder.glob("alpha-*"), folder.glob("total-*"):
            for path in record:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    tasks = []
    for model in study.models:
        rate = rates[model.kind, SOURCE]
        tasks += [(f"{model.name} trained on, alpha {alpha:g}",
                   lambda m=model, a=alpha, r=rate: uptrain_source(study, m, a, r))
                  for alpha in study.alphas]
    for cell in study.conversions(uptrained=True):
        if not (study.work / cell.converted).is_dir():
            continue  # refused
        rate = rates[cell.model.kind, cell.method]
        tasks += [(f"{cell.folder}, alpha {alpha:g}",
                   lambda c=cell, a=alpha, r=rate: uptrain(study, c, a, r))
                  for alpha in study.alphas]
        if cell.method in BEST:
            tasks.append((f"{cell.folder}, in total",
                          lambda c=cell, r=rate: uptrain_at_total(study, c, r)))
    runner.run("uptrain", tasks)


def trained_folders(study):
    return [*(study.work / source_folder(model) for model in study.models),
            *(study.work / cell.folder for cell in study.conversions(uptrained=True))]


def trained_methods(study):
    return [SOURCE, *(method.key for method in study.methods if method.uptrained)]


def run_tuning(study, runner):
    untuned = [(kind.key, method) for kind in study.kinds for method in trained_methods(study)
               if chosen_rate(study, kind.key, method) is None]
    runner.run("tune", [(f"{kind}, {method}, rate {rate:g}", lambda k=kind, m=method, r=rate: tune(study, k, m, r))
                        for kind, method in untuned for rate in study.scale.uptrain_rates])


def write_report(study, folder):
    results = Results(study)
    write_atomically(folder / "quality.md", markdown(results))
    write_atomically(folder / "quality.svg", svg(results))
    report = {
        "settings": json.loads((study.work / "settings.json").read_text(encoding="utf-8")),
        "notes": study.notes,
        "models": results.model_reports(),
        "learning_rates": {kind.key: results.tuning(kind.key) for kind in study.kinds},
        "cells": results.cells,
        "targets": [vars(target) for target in check_targets(results)],
        "seconds_of_all_commands": results.seconds()}
    write_atomically(folder / "quality.json", json.dumps(report, indent=1) + "\n")
    return results


def run_study(study, options, runner):
    study.write_data(options.text, options.other_text)
    stages = {"pretrain": lambda: run_pretrain(study, runner),
              "convert": lambda: run_convert(study, runner, options.redo),
              "uptrain": lambda: run_uptrain(study, runner, options.redo)}
    for stage, run in stages.items():
        if options.only in (None, stage):
            run()
    folder = options.report or study.work / "report"
    if options.only in (None, "report"):
        results = write_report(study, folder)
        runner.tell(f"wrote {len(results.cells)} cells to {folder}/quality.md, .json and .svg")


def main():
    options = parse_arguments()
    program = Program(options.regroup.resolve(), options.work.resolve(), options.device,
                      options.threads)

    def run():
        study = Study(options.work, options.scale, program, options.kinds, options.seeds,
                      options.methods, options.ratios, options.alphas, options.tokenizer)
        with only_user_of(study.work):
            run_study(study, options, Runner(options.jobs, program))

    return exit_code_of("quality", run)


if __name__ == "__main__":
    sys.exit(main())
