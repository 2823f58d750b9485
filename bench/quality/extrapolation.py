#!/usr/bin/env python3
"""Does a model still read beyond its training length after its heads are grouped?

Trains one small MHA model for each way to encode positions, converts it with two methods, uptrains the results at the same length, and
evaluates all of them on windows of up to 16 times that length. Uses only public `regroup` commands and the standard library; see
bench/README.md.
"""
import argparse
import json
import os
import sys
from pathlib import Path

import lengths
from kinds import KINDS, POSITION_KINDS
from length_report import chart, markdown
from program import Program, write_atomically
from runner import Runner, comma_list, exit_code_of, only_user_of
from stages import calibrate, convert, pretrain
from study import Study

METHODS = ("mean", "lowrank-calibrated")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--regroup", default="build/release/regroup", type=Path, help="the program to measure")
    add("--work", required=True, type=Path, help="folder for data, models and records; a stopped study continues there")
    add("--text", nargs="+", required=True, type=Path, help="files to train and calibrate on; their last tenth is held out")
    add("--length", choices=("128", "512", "smoke"), default="128", help="training length in bytes (default: 128)")
    add("--kinds", type=comma_list(str, KINDS), default=list(POSITION_KINDS))
    add("--seeds", type=comma_list(int, None), default=[1])
    add("--ratios", type=comma_list(int, (2, 4, 8)), default=[2, 4, 8])
    add("--jobs", type=int, default=os.cpu_count() or 1, help="number of commands at a time")
    add("--threads", type=int, default=1, help="CPU threads of each")
    add("--device", default="cpu", help="cpu, cuda or cuda:N")
    return parser.parse_args()


def run_study(study, runner):
    runner.run("pretrain", [(model.name, lambda m=model: pretrain(study, m)) for model in study.models])
    runner.run("calibrate", [(model.name, lambda m=model: calibrate(study, m, "calibration")) for model in study.models])
    runner.run("convert", [(cell.folder, lambda c=cell: convert(study, c)) for cell in study.conversions()])
    runner.run("uptrain", [(cell.label, lambda c=cell: lengths.make(study, c)) for cell in lengths.cells(study)])
    runner.run("evaluate", [(cell.label, lambda c=cell: lengths.measure(study, c)) for cell in lengths.cells(study)])


def write_report(study, runner):
    folder = study.work / "report"
    results = lengths.results(study)
    write_atomically(folder / "extrapolation.md", markdown(study, results))
    write_atomically(folder / "extrapolation.svg", chart(study, results))
    write_atomically(folder / "extrapolation.json", json.dumps(results, indent=1) + "\n")
    runner.tell(f"wrote {len(results)} cells to {folder}/extrapolation.md, .json and .svg")


def main():
    options = parse_arguments()
    work = options.work / options.length
    program = Program(options.regroup.resolve(), work.resolve(), options.device, options.threads)

    def run():
        study = Study(work, f"length-{options.length}", program, options.kinds, options.seeds, METHODS, options.ratios, [])
        runner = Runner(options.jobs, program)
        with only_user_of(study.work):
            study.write_data(options.text)
            run_study(study, runner)
            write_report(study, runner)

    return exit_code_of("extrapolation", run)


if __name__ == "__main__":
    sys.exit(main())
