#!/usr/bin/env python3
"""Compares the time of `regroup convert` with a plain copy and with tools that do the same conversion.

    bench/conversion/conversion.py --work DIR [--shape tiny|1b|7b|70b] [--pairs 5] [--kv-heads 8]
                                   [--cache cold|warm] [--peers cp,transformers] [--sparse]
                                   [--regroup PROGRAM] [--python PYTHON]

Makes a Llama of that shape in DIR if it does not exist: bf16 noise in shards, with --sparse holes. Then runs regroup
and each peer alternately. `cp` is `cp -r --reflink=never` of the input and a sync. `transformers` loads, pools and
saves the model with PYTHON; its tensors are compared with regroup's. Each run starts with a synced device. Cold runs
start with an empty page cache, which needs root. Finally measures one run each for peak memory, bytes read through
user space (strace) and bytes written to the device.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import measure
import shapes

HERE = Path(__file__).resolve().parent


class Bench:
    def __init__(self, options):
        self.options = options
        self.source = Path(options.work) / (options.shape + ("-sparse" if options.sparse else ""))
        self.result = Path(options.work) / "result"
        self.cold = options.cache == "cold"

    def ours(self):
        return [self.options.regroup, "convert", str(self.source), str(self.result), "--kv-heads",
                str(self.options.kv_heads), "--quiet"]

    def peer(self, name):
        if name == "cp":
            return ["cp", "-r", "--reflink=never", str(self.source), str(self.result)]
        return [self.options.python, str(HERE / "in_transformers.py"), str(self.source),
                str(self.result), str(self.options.kv_heads)]

    def clear(self):
        shutil.rmtree(self.result, ignore_errors=True)

    def same_result(self, name):
        """Whether our result has the same tensors as a fresh result of the peer."""
        theirs = self.result.with_name("result-of-peer")
        self.clear()
        measure.seconds(self.peer(name))
        self.result.rename(theirs)
        measure.seconds(self.ours())
        done = subprocess.run([self.options.python, str(HERE / "same_result.py"), str(self.result),
                               str(theirs)], capture_output=True, text=True)
        print(f"regroup's result compared with {name}'s: {done.stdout.strip() or done.stderr.strip()}",
              flush=True)
        shutil.rmtree(theirs)

    def seconds(self, command, then_sync):
        self.clear()
        if not self.cold:
            self.read_source()
        measure.settle(self.cold)
        return measure.seconds(command, then_sync)

    def read_source(self):
        for path in sorted(self.source.iterdir()):
            with open(path, "rb", buffering=0) as file:
                while file.read(8 << 20):
                    pass

    def compare(self):
        """Alternating runs. Regroup comes first in every other pair."""
        for name in filter(None, self.options.peers.split(",")):
            ours, theirs = [], []
            for i in range(self.options.pairs):
                turns = [(self.ours(), ours, False), (self.peer(name), theirs, True)]
                for command, times, then_sync in turns if i % 2 == 0 else reversed(turns):
                    times.append(self.seconds(command, then_sync))
                print(f"  {self.options.cache}, pair {i + 1}: regroup {ours[-1]:7.2f} s, "
                      f"{name} {theirs[-1]:7.2f} s", flush=True)
            ratio = statistics.median(ours) / statistics.median(theirs)
            print(f"{self.options.cache}: regroup {statistics.median(ours):.2f} s, {name} "
                  f"{statistics.median(theirs):.2f} s, medians of {self.options.pairs}: "
                  f"{ratio:.3f}", flush=True)
            if name == "transformers":
                self.same_result(name)

    def costs(self):
        self.clear()
        measure.settle(False)
        baseline = measure.peak_bytes([self.options.regroup, "convert", "--help"])
        device = measure.device_of(self.options.work)
        before = measure.bytes_written(device)
        peak = measure.peak_bytes(self.ours())
        measure.settle(False)
        written = measure.bytes_written(device) - before
        kv = shapes.kv_bytes(self.options.shape)
        new = kv * self.options.kv_heads // shapes.SHAPES[self.options.shape][2]
        print(f"peak memory {peak / 2**20:.1f} MiB, {(peak - baseline) / 2**20:.1f} above the "
              f"program's own")
        print(f"bytes to the device {written:,}: {written / new:.3f} of the new K and V ({new:,})")
        if shutil.which("strace"):
            self.clear()
            read = measure.bytes_read(self.ours(), self.source)
            headers = sum(map(shapes.header_bytes, self.source.glob("*.safetensors")))
            print(f"bytes read through user space {read:,}: {read / (kv + headers):.5f} of K, V and "
                  f"headers ({kv + headers:,})")


def main():
    root = HERE.parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--work", required=True)
    parser.add_argument("--shape", choices=shapes.SHAPES, default="7b")
    parser.add_argument("--sparse", action="store_true")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--cache", choices=["cold", "warm"], default="warm")
    parser.add_argument("--peers", default="cp")
    parser.add_argument("--regroup", default=str(root / "build/release/regroup"))
    parser.add_argument("--python", default=str(root / ".venv/bin/python"))
    parser.add_argument("--no-costs", action="store_true")
    options = parser.parse_args()
    if options.cache == "cold" and not measure.can_drop_caches():
        sys.exit("--cache cold: only root can drop the page cache")
    os.makedirs(options.work, exist_ok=True)
    bench = Bench(options)
    total = shapes.put_model(bench.source, options.shape, options.sparse)
    print(f"Llama of {options.shape} shape, {total:,} bytes, {options.kv_heads} kv heads", flush=True)
    bench.compare()
    if not options.no_costs:
        bench.costs()
    bench.clear()


if __name__ == "__main__":
    main()
