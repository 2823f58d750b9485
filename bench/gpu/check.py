#!/usr/bin/env python3
"""Steps of bench/gpu.sh that are no programs of their own.

    check.py programs FILE...               they exist
    check.py packages FOLDER DEVICE         nothing is missing for a build; prints as JSON what a user should know
    check.py kernels BUILD DEVICE           the fused kernels are compiled in; prints for which GPUs as JSON
    check.py profile COMMAND...             runs the command under ncu, prints the time of each kernel as JSON
    check.py timed MODEL OUTPUT COMMAND...  removes OUTPUT, runs the command, prints its seconds per layer as JSON
"""

import csv
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import machine


def programs(files):
    for name in files:
        if not Path(name).is_file():
            sys.exit(f"gpu.sh: build: {name} does not exist: BUILD must name a finished build with REGROUP_BENCH=ON")


def packages(folder, device):
    lines = machine.lacking(folder, device)
    if lines:
        sys.exit("\n".join(f"gpu.sh: build: {line}" for line in lines))
    print(json.dumps({"notes": machine.notes(device)}))


def kernels(build, device):
    cache = Path(build) / "CMakeCache.txt"
    found = re.search(r"^REGROUP_FUSED_KERNELS:INTERNAL=(.*)$", cache.read_text() if cache.exists() else "", re.MULTILINE)
    words = found[1] if found else f"unknown, {cache} does not say"
    if device.startswith("cuda") and not words.startswith("for "):
        sys.exit(f"Fused CUDA kernels: {words}")
    print(json.dumps({"kernels": words}))


def timed(model, output, *command):
    config = json.loads((Path(model) / "config.json").read_text())
    layers = config.get("num_hidden_layers") or config["n_layer"]
    if Path(output).is_dir():
        shutil.rmtree(output)
    Path(output).unlink(missing_ok=True)
    begin = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    seconds = time.monotonic() - begin
    if done.returncode != 0:
        sys.exit(done.returncode)
    print(json.dumps({"seconds": seconds, "layers": layers, "seconds_per_layer": seconds / layers}))


def profile(*command):
    """Sums of the kernels' times, in milliseconds, by name."""
    with tempfile.NamedTemporaryFile("r", suffix=".csv") as log:
        ncu = ["ncu", "--clock-control", "none", "--target-processes", "all", "--metrics", "gpu__time_duration.sum", "--csv",
               "--log-file", log.name]
        done = subprocess.run([*ncu, *command], stdout=subprocess.DEVNULL)
        lines = [line for line in log.read().splitlines() if line.startswith('"')]
    if done.returncode != 0 or not lines:
        sys.exit(done.returncode or "gpu.sh: profile: ncu wrote nothing")
    times = {}
    for row in csv.DictReader(lines):
        scale = {"ns": 1e-6, "nsecond": 1e-6, "us": 1e-3, "usecond": 1e-3, "ms": 1.0, "msecond": 1.0}[row["Metric Unit"]]
        name = re.sub(r"<.*|\(.*", "", row["Kernel Name"])[:60]
        seen = times.setdefault(name, [0, 0.0])
        seen[0] += 1
        seen[1] += scale * float(row["Metric Value"].replace(",", ""))
    most = sorted(times.items(), key=lambda item: -item[1][1])
    print(json.dumps({"kernels": [{"name": name, "launches": count, "ms": ms} for name, (count, ms) in most[:30]],
                      "ms": sum(ms for _, ms in times.values()), "launches": sum(count for count, _ in times.values())}))


def main():
    works = {"programs": lambda *files: programs(files), "packages": packages, "kernels": kernels, "timed": timed, "profile": profile}
    if len(sys.argv) < 3 or sys.argv[1] not in works:
        sys.exit(__doc__)
    works[sys.argv[1]](*sys.argv[2:])


if __name__ == "__main__":
    main()
