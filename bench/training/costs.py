#!/usr/bin/env python3
"""What converting and uptraining cost by model size: the tables in docs/costs.md.

    bench/training/costs.py [--regroup PROGRAM] [--cpu 1] [--gpu 450]

Memory and FLOPs are those of `regroup uptrain --dry-run` on sparse checkpoints, which take no space; nothing is computed. Times
are FLOPs over the given TFLOP/s of training. A conversion with --text is planned as what takes its time: training the attention of
the result for 262,144 tokens with the source as its teacher, a sixth more for trials, a pass over the calibration's tokens, on a GPU
solving for the heads, and writing half of the text: at half of the speed of training on a CPU (measured with SmolLM2-135M), 64
sequences at a time in 0.14 ms a layer and token on a GPU (measured on an H100, docs/decoding.md).
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import shapes
from memory import put_hollow_model

SIZES = {"1B": (2048, 16, 32, 8, 8192), "7B": (4096, 32, 32, 8, 11008), "70B": (8192, 80, 64, 8, 28672)}
DISTILLED = 262144
SEQUENCES = 64  # written at a time
SOLVING = 3.1  # seconds on an H100 for the heads of a layer with 4,096 features (docs/gpu.md)


def plan_of(options, work, size, arguments):
    command = [options.regroup, "uptrain", str(work / size), "--data", str(work / "tokens.bin"), "--output", str(work / "out"),
               "--memory-check", "off", "--dry-run", "--json", *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def duration(seconds):
    for unit, length in ("days", 86400), ("hours", 3600), ("minutes", 60):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def gibibytes(size):
    return f"{size / 2**30:.0f} GiB"


def conversion(options, work, size, dtype):
    """Time and memory of `convert --text`."""
    plan = plan_of(options, work, size, ["--teacher", str(work / f"{size}-source"), "--train", "attention", "--dtype", dtype,
                                         "--teacher-weight", "1", "--batch", "2", "--sequence", "512", "--steps", "256"])
    calibration = 2 * plan["parameters"] * max(32768, 64 * SIZES[size][0])
    # A tenth of calibration's products are those of the statistics: in fp32, eight times slower than in bf16.
    slower = 1.7 if dtype == "bf16" else 1
    seconds = (plan["flops"] * 7 / 6 + slower * calibration) / options.rates[dtype]
    written = DISTILLED / 2
    if dtype == "bf16":
        hidden, layers = SIZES[size][:2]
        seconds += SOLVING * layers * (hidden / 4096) ** 3
        seconds += written / SEQUENCES * SIZES[size][1] * 1.4e-4
    else:
        seconds += 2 * plan["parameters"] * written / (0.5 * options.rates[dtype])
    return [duration(seconds), gibibytes(plan["memory_bytes"])]


def training(options, work, size, dtype):
    """Time for a billion tokens, and memory for all weights and for K and V alone."""
    common = ["--dtype", dtype, "--steps", "122071", "--activation-checkpointing"]  # of 8 windows of 1,024 tokens
    memory = ["--memory", "compact", "--moments", "bf16"] if dtype == "bf16" else ["--memory", "full"]
    plan = plan_of(options, work, size, [*common, *memory])
    kv = plan_of(options, work, size, [*common, "--train", "kv"])
    return [duration(plan["flops"] / options.rates[dtype]), gibibytes(plan["memory_bytes"]), gibibytes(kv["memory_bytes"])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--regroup", default="build/release/regroup")
    parser.add_argument("--cpu", type=float, default=1, help="TFLOP/s of the CPU in fp32")
    parser.add_argument("--gpu", type=float, default=450, help="TFLOP/s of the GPU in bf16")
    options = parser.parse_args()
    options.rates = {"fp32": options.cpu * 1e12, "bf16": options.gpu * 1e12}
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        (work / "tokens.bin").write_bytes(bytes(2 * 2**21))
        for size, (hidden, layers, heads, kv_heads, intermediate) in SIZES.items():
            put_hollow_model(work / size, shapes.llama(hidden, layers, heads, kv_heads, intermediate))
            put_hollow_model(work / f"{size}-source", shapes.llama(hidden, layers, heads, heads, intermediate))
        for cost in conversion, training:
            print("\n" + cost.__doc__)
            for size in SIZES:
                cells = [cell for dtype in options.rates for cell in cost(options, work, size, dtype)]
                print("| " + " | ".join([size, *cells]) + " |")


if __name__ == "__main__":
    main()
