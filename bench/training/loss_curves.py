#!/usr/bin/env python3
"""The loss curves of one run in fp32, in bf16 and in bf16 with --memory compact: a table in docs/defaults.md.

    bench/training/loss_curves.py MODEL --data tokens.bin --eval-data held-out.bin [--steps 500] [--plot CURVES.svg]
        [--regroup PROGRAM] [OPTIONS]

Trains MODEL with the same data, and with further OPTIONS of `regroup uptrain`, in each way. A second bf16 run with another order of the
data shows how far curves lie apart by chance. Prints the mean loss of parts of the run, the held-out loss, and the mean distance of
each curve from that of bf16. --plot also draws the curves.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

BF16 = ["--dtype", "bf16", "--memory", "full"]
WAYS = {"fp32": ["--dtype", "fp32"], "bf16, full": BF16, "bf16, compact": ["--dtype", "bf16", "--memory", "compact"],
        "bf16, full, other order of the data": [*BF16, "--seed", "1"]}
PARTS = 5


def losses_of(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    held_out = [line["eval_loss"] for line in lines if "eval_loss" in line]
    return [line["loss"] for line in lines if "loss" in line], held_out[-1]


def train(options, way, output):
    command = [options.regroup, "uptrain", options.model, "--data", options.data, "--eval-data", options.eval_data, "--steps",
               str(options.steps), "--output", str(output), "--save-every", "0", "--quiet", *options.more, *WAYS[way]]
    subprocess.run(command, check=True)
    return losses_of(Path(f"{output}.run"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", required=True)
    parser.add_argument("--eval-data", required=True)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--plot", help="file to draw the curves to, .svg or .html")
    parser.add_argument("--regroup", default="build/release/regroup")
    options, options.more = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as scratch:
        curves = {way: train(options, way, Path(scratch) / way) for way in WAYS}
        if options.plot:
            runs = [str(Path(scratch) / way) for way in WAYS]
            subprocess.run([options.regroup, "plot", *runs, "-o", options.plot], check=True)
    length = options.steps // PARTS
    bounds = [(i * length, (i + 1) * length) for i in range(PARTS)]
    print("| | " + " | ".join(f"steps {a + 1} to {b}" for a, b in bounds) + " | held out | mean distance from bf16, full |")
    print("|---|" + "--:|" * (PARTS + 2))
    reference, _ = curves["bf16, full"]
    for way, (losses, held_out) in curves.items():
        means = [f"{statistics.mean(losses[a:b]):.4f}" for a, b in bounds]
        distance = statistics.mean(abs(x - y) for x, y in zip(losses, reference))
        print(f"| {way} | " + " | ".join(means) + f" | {held_out:.4f} | {distance:.5f} |")


if __name__ == "__main__":
    main()
