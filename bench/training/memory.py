#!/usr/bin/env python3
"""The memory that uptraining needs, by model size: a table in docs/costs.md.

    bench/training/memory.py [--shapes 1.5b,7b,13b,70b] [--batch 4] [--sequence 2048] [--regroup PROGRAM]

Runs `regroup uptrain --dry-run` on sparse checkpoints, which take no space. Nothing is computed.
"""

import argparse
import json
import math
import subprocess
import tempfile
from pathlib import Path

import shapes

CHECKPOINTED = ["--activation-checkpointing"]
WAYS = {"AdamW": [], "+ checkpointing": CHECKPOINTED, "+ bf16 moments": [*CHECKPOINTED, "--moments", "bf16"],
        "Adafactor, checkpointing": [*CHECKPOINTED, "--optimizer", "adafactor"],
        "K and V only, checkpointing": [*CHECKPOINTED, "--train", "kv"]}


def put_hollow_model(directory, config):
    """A checkpoint of bf16 tensors without contents."""
    directory.mkdir()
    header, at = {}, 0
    for name, shape in shapes.llama_tensors(config):
        end = at + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    with open(directory / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)
    (directory / "config.json").write_text(json.dumps(config))


def plan_of(options, work, shape, way):
    command = [options.regroup, "uptrain", str(work / shape), "--data", str(work / "tokens.bin"), "--steps", "1", "--dtype",
               "bf16", "--batch", str(options.batch), "--sequence", str(options.sequence), "--output", str(work / "out"),
               "--memory", "full", "--dry-run", "--json", *WAYS[way]]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="1.5b,7b,13b,70b")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=2048)
    parser.add_argument("--regroup", default="build/release/regroup")
    options = parser.parse_args()
    print("| parameters | " + " | ".join(WAYS) + " |\n|--:|" + "--:|" * len(WAYS))
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        (work / "tokens.bin").write_bytes(bytes(4 * options.batch * (options.sequence + 1)))
        for shape in options.shapes.split(","):
            put_hollow_model(work / shape, shapes.SHAPES[shape])
            plans = [plan_of(options, work, shape, way) for way in WAYS]
            cells = [f"{plan['memory_bytes'] / 2**30:.0f}" for plan in plans]
            print(f"| {plans[0]['parameters'] / 1e9:.2f} billion | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
