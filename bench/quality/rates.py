#!/usr/bin/env python3
"""What uptraining with the rate that `uptrain` finds does, beside fixed rates.

    python3 bench/quality/rates.py --work study --kinds rope,alibi,learned --methods mean,lowrank-similar,lowrank-refit

Uses models of a study that `quality.py --only pretrain` and `--only convert` have made in WORK (the first seed), and the trained
models themselves. Prints a row of held-out losses for each: before uptraining, and after --steps steps at each rate.
"""
import argparse
import json
import subprocess
import tempfile
from pathlib import Path

BATCH = 8


def uptrain(options, model, rate, output):
    words = ["uptrain", model, "--data", options.work / "data/training.bin", "--steps", options.steps, "--context",
             options.context, "--batch", BATCH, "--seed", 101, "--save-every", 0, "--threads", options.threads, "--dtype",
             options.dtype, "--json", "--quiet", "--output", output,
             "--eval-data", options.work / "data/held-out.bin", "--eval-max-tokens", 32768]
    words += [] if rate == "found" else ["--lr", rate]
    done = subprocess.run([options.regroup, *map(str, words)], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def row(options, name, model):
    cells, before, found = [], None, None
    for rate in options.rates:
        with tempfile.TemporaryDirectory() as folder:
            report = uptrain(options, model, rate, Path(folder) / "out")
        before = report["before"]["loss"]
        if rate == "found":
            found = report["recipe"]["learning_rate"]
        cells.append(f"{report['after']['loss']:.3f}")
    print(f"| {name} | {before:.3f} | {cells[0]} | {found:.0e} | {' | '.join(cells[1:])} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--regroup", default="build/release/regroup", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--kinds", default="rope,alibi,learned")
    parser.add_argument("--methods", default="mean,lowrank-similar,lowrank-refit")
    parser.add_argument("--heads", default="4,2,1")
    parser.add_argument("--steps", type=int, default=70)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rates", default="2e-4,2e-3", help="beside the one found")
    options = parser.parse_args()
    options.rates = ["found", *options.rates.split(",")]
    print("| | before | found | its rate | " + " | ".join(options.rates[1:]) + " |\n|---|--:|--:|--:|--:|--:|")
    for kind in options.kinds.split(","):
        folder = options.work / f"{kind}-1"
        row(options, f"{kind}, source", folder / "trained")
        for method in options.methods.split(","):
            for heads in options.heads.split(","):
                converted = folder / f"{method}-{heads}/converted"
                if converted.exists():
                    row(options, f"{kind}, {method}, {heads} kv heads", converted)


if __name__ == "__main__":
    main()
