#!/usr/bin/env python3
"""What ranks that share sequences take: memory over context length, time, and how far losses are from those of one process.

    bench/training/sequences.py MODEL --data tokens.bin [--contexts 1024,2048,4096,8192] [--ranks 1,2,4] [--steps 3]
        [--regroup PROGRAM] [OPTIONS]

Trains MODEL with each context in one process, and in several that share each sequence (--sequence-parallel), on this
machine, with further OPTIONS of `regroup uptrain`. Memory is the largest resident set of a rank, less that of a rank
that computes nothing (--steps 1 of 16 tokens). Processes share the machine's cores, so the time says only what sharing costs.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import tempfile
import threading
from pathlib import Path

GIB = 2 ** 30


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def run_rank(command, environment, peaks):
    process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    message = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    peaks.append((process.returncode, 1024 * usage.ru_maxrss, message))


def train(options, context, ranks, steps):
    """Losses, seconds per step and the largest resident set of a rank."""
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "out"
        command = [options.regroup, "uptrain", options.model, "--data", options.data, "--steps", str(steps), "--context",
                   str(context), "--batch", "1", "--accumulate", "1", "--lr", "1e-4", "--save-every", "0", "--quiet",
                   "--output", str(output), "--threads", str(max(1, os.cpu_count() // ranks)), *options.more]
        if ranks > 1:
            command += ["--sequence-parallel", str(ranks)]
        port, peaks, threads = free_port(), [], []
        for rank in range(ranks):
            environment = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks),
                           "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)} if ranks > 1 else {}
            threads.append(threading.Thread(target=run_rank, args=(command, environment, peaks)))
            threads[-1].start()
        for thread in threads:
            thread.join()
        for code, _, message in peaks:
            if code != 0:
                raise SystemExit(f"{' '.join(command)}: {message}")
        lines = [json.loads(line) for line in (output.with_name("out.run") / "metrics.jsonl").read_text().splitlines()]
        return ([line["loss"] for line in lines], statistics.median(line["seconds"] for line in lines[1:] or lines),
                max(peak for _, peak, _ in peaks))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", required=True)
    parser.add_argument("--contexts", default="1024,2048,4096,8192")
    parser.add_argument("--ranks", default="1,2,4")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--regroup", default="build/release/regroup")
    options, options.more = parser.parse_known_args()
    numbers = [int(ranks) for ranks in options.ranks.split(",")]
    still = {ranks: train(options, 16, ranks, 1)[2] for ranks in numbers}
    print("| context | ranks | memory of a rank, GiB | of it for the sequence | s per step | largest difference of losses |\n"
          "|--:|--:|--:|--:|--:|--:|")
    for context in map(int, options.contexts.split(",")):
        alone = None
        for ranks in numbers:
            losses, seconds, peak = train(options, context, ranks, options.steps)
            alone = alone or losses
            difference = max(abs(loss - other) for loss, other in zip(losses, alone))
            print(f"| {context} | {ranks} | {peak / GIB:.2f} | {(peak - still[ranks]) / GIB:.2f} | {seconds:.1f} | "
                  f"{difference:.1e} |", flush=True)


if __name__ == "__main__":
    main()
