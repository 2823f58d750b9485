#!/usr/bin/env python3
"""What `regroup inspect` says to malformed safetensors files and indices, how long it takes and how
much memory; beside that, whether Python's safetensors opens the same file, where it is installed.

    bench/bad_inputs.py [--regroup PROGRAM]

Each refusal must have exit code 3, one line that names the file, at most 100 ms and 64 MiB beyond
the program's own. The files are made on the spot from the descriptions below.
"""

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "conversion"))
import measure  # noqa: E402

MOST_SECONDS, MOST_BYTES = 0.1, 64 << 20

try:
    from safetensors import safe_open
except ImportError:
    safe_open = None


def file_of(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype="F32", shape="[2]", offsets="[0,8]", more=""):
    return f'{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}{more}}}'


def one(**changes):
    return file_of('{"w":' + entry(**changes) + "}", bytes(8))


def two(first, second, data=16):
    return file_of(f'{{"a":{entry(offsets=first)},"b":{entry(offsets=second)}}}', bytes(data))


NESTED = 100_000
MANY = 1_000_001

# What is wrong, and the file.
FILES = {
    "empty file": b"",
    "shorter than 8 bytes": b"1234567",
    "header length 0": file_of(""),
    "header longer than the file": file_of("{}", length=1000),
    "header over the cap": file_of("{}", length=100_000_001),
    "length 2^64-1": file_of("{}", length=2**64 - 1),
    "invalid UTF-8": file_of(b'{"\xff":' + entry().encode() + b"}", bytes(8)),
    "invalid JSON": file_of('{"w":', bytes(8)),
    "leading white space": file_of(' {"w":' + entry() + "}", bytes(8)),
    "top level an array": file_of("[]"),
    "tensor named twice": file_of(f'{{"w":{entry()},"w":{entry()}}}', bytes(8)),
    "field given twice": one(more=',"dtype":"F32"'),
    "named twice through escapes": file_of(f'{{"w":{entry()},"\\u0077":{entry()}}}', bytes(8)),
    "bytes after the JSON": file_of('{"w":' + entry() + "}x", bytes(8)),
    "NULs after the JSON": file_of('{"w":' + entry() + "}\0\0", bytes(8)),
    "nesting 100,000 deep": file_of('{"w":' + "[" * NESTED + "]" * NESTED + "}"),
    "no dtype": file_of('{"w":{"shape":[2],"data_offsets":[0,8]}}', bytes(8)),
    "no shape": file_of('{"w":{"dtype":"F32","data_offsets":[0,8]}}', bytes(8)),
    "no offsets": file_of('{"w":{"dtype":"F32","shape":[2]}}', bytes(8)),
    "unknown dtype": one(dtype="F31"),
    "unknown field": one(more=',"stride":[1]'),
    "negative dimension": one(shape="[-2]"),
    "float dimension": one(shape="[2.0]"),
    "number above 2^64": one(shape="[18446744073709551618]"),
    "one offset": one(offsets="[8]"),
    "begin after end": one(offsets="[8,0]"),
    "end past the file": one(shape="[4]", offsets="[0,16]"),
    "overlap": two("[0,8]", "[4,12]", 12),
    "hole": two("[0,8]", "[12,20]", 20),
    "bytes behind the last": file_of('{"w":' + entry() + "}", bytes(9)),
    "span and shape disagree": one(shape="[3]"),
    "shape overflows": one(shape="[4294967296,4294967296,2]"),
    "bytes overflow": one(shape="[9223372036854775807]"),
    "sub-byte misaligned": one(dtype="F4", shape="[3]", offsets="[0,2]"),
    "metadata not a string": file_of('{"__metadata__":{"a":1},"w":' + entry() + "}", bytes(8)),
    "NUL in a name": file_of(f'{{"a\\u0000b":{entry(shape="[3]")}}}', bytes(8)),
    "escape codes in a name": file_of(f'{{"\\u001b[31m":{entry(shape="[3]")}}}', bytes(8)),
    "65 dimensions": one(shape="[" + ",".join(["1"] * 64 + ["2"]) + "]"),
    "over a million tensors": file_of(
        "{" + ",".join(f'"{i}":{entry(shape="[0]", offsets="[0,0]")}' for i in range(MANY)) + "}"),
    "git-LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    "HTML page": b"<!DOCTYPE html><html><body>404</body></html>",
    "gzip": b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03",
    "GGUF, cut off": b"GGUF\x03\x00\x00\x00\x01",
}


def with_index(weight_map, prepare=lambda directory: None):
    def make(directory):
        for name in "ab":
            (directory / name).write_bytes(file_of(f'{{"{name}w":{entry()}}}', bytes(8)))
        prepare(directory)
        text = weight_map if isinstance(weight_map, str) else json.dumps({"weight_map": weight_map})
        (directory / "model.safetensors.index.json").write_text(text)
    return make


GOOD = {"aw": "a", "bw": "b"}

# What is wrong, and what makes the directory.
DIRECTORIES = {
    "index: ../ in a name": with_index({"aw": "../a"}),
    "index: absolute path": with_index({"aw": "/etc/passwd"}),
    "index: link in a circle": with_index(GOOD | {"c": "c"}, lambda d: (d / "c").symlink_to("c")),
    "index: FIFO as shard": with_index(GOOD | {"c": "c"}, lambda d: os.mkfifo(d / "c")),
    "index: directory as shard": with_index(GOOD | {"c": "c"}, lambda d: (d / "c").mkdir()),
    "index: missing shard": with_index(GOOD | {"c": "c"}),
    "index: tensor not in its shard": with_index(GOOD | {"c": "a"}),
    "index: tensor of a shard not named": with_index({"aw": "a", "bw": "a"}),
    "index: tensor in two shards": with_index({"aw": "a"}, lambda d: (
        (d / "b").write_bytes((d / "a").read_bytes()))),
    "index: no weight_map": with_index("{}"),
    "index: weight_map a list": with_index('{"weight_map":[]}'),
}


def theirs(path):
    if safe_open is None:
        return "?"
    if path.is_dir():
        return "-"  # reads no index
    try:
        with safe_open(path, "np") as file:
            list(file.keys())
        return "opens"
    except Exception:
        return "refuses"


def refusal(program, path):
    begin = time.perf_counter()
    done = subprocess.run([program, "inspect", str(path)], capture_output=True, text=True, timeout=60)
    return done, time.perf_counter() - begin


def faults_of(done, took, extra, path):
    faults = []
    if done.returncode != 3:
        faults.append(f"exit code {done.returncode}")
    if done.stdout or done.stderr.count("\n") != 1 or not done.stderr.rstrip("\n").isprintable():
        faults.append("not one printable line")
    if str(path) not in done.stderr:
        faults.append("names no file")
    if took > MOST_SECONDS:
        faults.append(f"{1e3 * took:.0f} ms")
    if extra > MOST_BYTES:
        faults.append(f"{extra / 2**20:.0f} MiB")
    return faults


def main():
    root = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--regroup", default=str(root / "build/release/regroup"))
    program = parser.parse_args().regroup
    baseline = measure.peak_bytes([program, "--version"], 0)
    wrong = 0
    print(f"{'':32} {'ms':>6} {'MiB':>6}  safetensors  regroup")
    for number, (name, made) in enumerate((FILES | DIRECTORIES).items()):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / f"bad-{number}.safetensors"
            if callable(made):
                path = Path(directory)
                made(path)
            else:
                path.write_bytes(made)
            done, took = min((refusal(program, path) for _ in range(3)), key=lambda run: run[1])
            extra = max(0, measure.peak_bytes([program, "inspect", str(path)], 3) - baseline)
            faults = faults_of(done, took, extra, path)
            wrong += bool(faults)
            said = done.stderr.strip().replace(f"{directory}/", "").removeprefix("regroup: ")
            print(f"{name:32} {1e3 * took:6.1f} {extra / 2**20:6.1f}  {theirs(path):11}  "
                  f"{'!! ' + ', '.join(faults) + ': ' if faults else ''}{said[:100]}")
    print(f"{len(FILES | DIRECTORIES)} bad inputs, {wrong} not refused as promised")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
