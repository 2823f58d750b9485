#!/usr/bin/env python3
"""Compares the training speed of `regroup uptrain` with PyTorch and transformers.

    bench/training/training.py --work DIR [--shape 0.1b] [--rounds 3] [--batch 4] [--sequence 512] [--steps 5]
                               [--device cpu] [--peers autocast,bf16,autocast-compiled,bf16-compiled]
                               [--peak-flops N] [--prepare-only | --one PROGRAM] [--regroup PROGRAM] [--python PYTHON]

Makes a model with random weights of that shape and random tokens in DIR if they do not exist. In each round, regroup
and each peer take the same steps on batches of the same size, one program after the other. The table has medians over
rounds. A ratio compares regroup with the peer in the same round. --one runs one of the programs once (regroup, or a
peer) and prints its numbers as JSON.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
from array import array
from pathlib import Path

import shapes

HERE = Path(__file__).resolve().parent
PEERS = {"fp32": ["--precision", "fp32"], "autocast": ["--precision", "autocast"], "bf16": ["--precision", "bf16"],
         "autocast-compiled": ["--precision", "autocast", "--compile"],
         "bf16-compiled": ["--precision", "bf16", "--compile"]}


class Bench:
    def __init__(self, options):
        self.options = options
        self.model = Path(options.work) / options.shape
        self.tokens = Path(options.work) / "tokens.bin"
        self.common = ["--batch", str(options.batch), "--sequence", str(options.sequence), "--steps", str(options.steps),
                       "--warmup", str(options.warmup), "--device", options.device]
        if options.threads:
            self.common += ["--threads", str(options.threads)]

    def prepare(self):
        self.model.parent.mkdir(parents=True, exist_ok=True)
        config = self.model.with_name(self.options.shape + ".config.json")  # a shape's name has a dot
        config.write_text(json.dumps(shapes.SHAPES[self.options.shape]))
        if not self.model.exists():
            subprocess.run([self.options.regroup, "--quiet", "init", str(config), str(self.model)], check=True)
        if not self.tokens.exists():
            vocabulary = min(shape["vocab_size"] for shape in shapes.SHAPES.values())
            numbers = random.Random(0).choices(range(vocabulary), k=2_000_000)
            self.tokens.write_bytes(array("H", numbers).tobytes())

    def ours(self):
        extra = ["--peak-flops", str(self.options.peak_flops)] if self.options.peak_flops else []
        return run([self.options.regroup, "--quiet", "bench", "train", str(self.model), "--data", str(self.tokens),
                    "--dtype", self.options.dtype, "--json", *self.common, *extra, *self.options.ours])

    def peer(self, name):
        return run([self.options.python, str(HERE / "in_transformers.py"), str(self.model), str(self.tokens),
                    *self.common, *PEERS[name]])


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()[-800:]}")
    return json.loads(done.stdout[done.stdout.index("{"):])


def median(rounds, key):
    return statistics.median(found[key] for found in rounds)


def report(options, ours, peers):
    print(f"{options.shape}, {options.device}, {options.dtype}: {options.rounds} rounds of {options.steps} steps of "
          f"{options.batch} x {options.sequence} tokens\n")
    print("| | tokens/s | peak memory | regroup's speed, times |")
    print("|---|--:|--:|--:|")
    print(f"| regroup | {median(ours, 'tokens_per_second'):,.0f} | {median(ours, 'peak_memory_bytes') / 2**30:.2f} GiB | |")
    for name, rounds in peers.items():
        ratios = [a["tokens_per_second"] / b["tokens_per_second"] for a, b in zip(ours, rounds)]
        print(f"| transformers, {name} | {median(rounds, 'tokens_per_second'):,.0f} | "
              f"{median(rounds, 'peak_memory_bytes') / 2**30:.2f} GiB | {statistics.median(ratios):.2f} |")
    print(f"\nregroup computes at {median(ours, 'flops_per_second') / 1e12:.3g} TFLOP/s, "
          f"{100 * median(ours, 'fraction_of_matmul'):.0f} % of a large matrix product in the same run", end="")
    if options.peak_flops:
        print(f", {100 * median(ours, 'model_flops_utilisation'):.1f} % of {options.peak_flops / 1e12:.4g} TFLOP/s", end="")
    print(".")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--work", required=True)
    add("--shape", choices=shapes.SHAPES, default="0.1b")
    add("--rounds", type=int, default=3)
    add("--batch", type=int, default=4)
    add("--sequence", type=int, default=512)
    add("--steps", type=int, default=5)
    add("--warmup", type=int, default=2)
    add("--dtype", choices=("bf16", "fp32"), default="bf16")
    add("--device", default="cpu")
    add("--threads", type=int, default=0)
    add("--peak-flops", type=float, default=0.0)
    add("--peers", default="autocast,bf16")
    add("--ours", nargs=argparse.REMAINDER, default=[], help="further options of regroup bench train; must come last")
    add("--prepare-only", action="store_true", help="make the model and the tokens without measuring")
    add("--one", choices=("regroup", *PEERS))
    add("--regroup", default="build/release/regroup")
    add("--python", default=sys.executable)
    return parser.parse_args()


def main():
    options = parse_arguments()
    bench = Bench(options)
    bench.prepare()
    if options.prepare_only:
        return
    if options.one:
        print(json.dumps(bench.ours() if options.one == "regroup" else bench.peer(options.one)))
        return
    names = [name for name in options.peers.split(",") if name]
    ours, peers = [], {name: [] for name in names}
    for _ in range(options.rounds):
        ours.append(bench.ours())
        for name in names:
            peers[name].append(bench.peer(name))
    report(options, ours, peers)


if __name__ == "__main__":
    main()
