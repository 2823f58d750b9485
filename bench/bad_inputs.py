#!/usr/bin/env python3
"""Runs `regroup` on malformed safetensors files and indices, and on outputs that would damage the input. Prints the
error, time and memory. Also shows whether Python's safetensors opens the same file, if it is installed.

    bench/bad_inputs.py [--regroup PROGRAM]

Each refusal must have exit code 3 (2 for an impossible output) and one line that names the file. It may take at most
100 ms of processor time and 64 MiB in addition to the program's own (more for inputs at the limits, see
docs/robustness.md). It must not wait and must not leave files. The inputs are generated from the descriptions below.
"""

import argparse
import json
import math
import os
import resource
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "conversion"))
import measure  # noqa: E402

MOST_SECONDS, MOST_BYTES = 0.1, 64 << 20
WAITS = 5  # seconds: longer than any input takes on a busy machine

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
MANY = 100_000
EMPTY = entry(dtype="U8", shape="[0]", offsets="[0,0]")


def named(count, name, more=""):
    return file_of("{" + ",".join(f'"{name.format(i)}":{EMPTY}' for i in range(count)) + more + "}")


def gguf_text(text):
    return struct.pack("<Q", len(text)) + text.encode()


def gguf_file(tensors=0, keys=0):
    """`keys` keys of type u32 and `tensors` tensors without elements. The last tensor has an unknown type."""
    parts = [b"GGUF", struct.pack("<IQQ", 3, tensors, keys)]
    parts += [gguf_text(f"key.{i}") + struct.pack("<II", 4, i) for i in range(keys)]
    for i in range(tensors):
        last = 99 if i + 1 == tensors else 0
        parts.append(gguf_text(f"blk.{i}.ffn_gate.weight") + struct.pack("<IQIQ", 1, 0, last, 0))
    return b"".join(parts)

# A description of the error, and the file.
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
    "three offsets": one(offsets="[0,4,8]"),
    "offsets that are strings": one(offsets='["0","8"]'),
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
    "over 100,000 tensors": named(2 * MANY, "{}"),
    "100,000 tensors, the last bad": named(MANY - 1, "model.layers.0.mlp.experts.{}.w", ',"z":7'),
    "over 10,000 metadata keys": file_of(
        '{"__metadata__":{' + ",".join(f'"{i}":""' for i in range(1_000_000)) + "}}"),
    "GGUF: over 30,000 tensors": gguf_file(tensors=400_000),
    "GGUF: 30,000 tensors, the last bad": gguf_file(tensors=30_000),
    "GGUF: over 10,000 keys": gguf_file(keys=1_000_000),
    "GGUF: 10,000 keys, a bad tensor": gguf_file(tensors=1, keys=10_000),
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

# A description of the error, and the function that makes the directory.
DIRECTORIES = {
    "index: ../ in a name": with_index({"aw": "../a"}),
    "index: absolute path": with_index({"aw": "/etc/passwd"}),
    "index: link in a circle": with_index(GOOD | {"c": "c"}, lambda d: (d / "c").symlink_to("c")),
    "index: FIFO as shard": with_index(GOOD | {"c": "c"}, lambda d: os.mkfifo(d / "c")),
    "index: device as shard": with_index(GOOD | {"c": "c"}, lambda d: (d / "c").symlink_to("/dev/zero")),
    "index: directory as shard": with_index(GOOD | {"c": "c"}, lambda d: (d / "c").mkdir()),
    "index: missing shard": with_index(GOOD | {"c": "c"}),
    "index: tensor in two shards": with_index(GOOD, lambda d: (d / "b").write_bytes(
        file_of(f'{{"aw":{entry()},"bw":{entry(offsets="[8,16]")}}}', bytes(16)))),
    "index: no weight_map": with_index("{}"),
    "index: weight_map a list": with_index('{"weight_map":[]}'),
    "index: a shard that is a number": with_index('{"weight_map":{"aw":1}}'),
}


def index_of(tensors, shards):
    return with_index({f"model.layers.0.mlp.experts.{i}.down_proj.weight": f"model-{i % shards:05}.safetensors"
                       for i in range(tensors)})


def in_directory(name, made):
    return lambda directory: (directory / name).write_bytes(made)


DIRECTORIES["index: 300,000 shards"] = index_of(300_000, 300_000)
DIRECTORIES["index: 10,000 shards, all missing"] = index_of(10_000, 10_000)

# Inputs at the limits with a fault at the end: the function that makes the directory, and the seconds and bytes that
# docs/robustness.md allows.
LARGE = {
    "index: 200,000 tensors, no shards": (index_of(200_000, 60), 0.15, MOST_BYTES),
    "index: 500,000 tensors, no shards": (index_of(500_000, 60), 0.4, 128 << 20),
    "header of 25 MB, the last bad": (in_directory("model.safetensors", named(
        MANY - 1, "model.layers.0." + "x" * 170 + "{:06}", ',"z":7')), 0.2, 96 << 20),
    "GGUF: header of 64 MB, cut off": (in_directory("model.safetensors", b"GGUF" + struct.pack(
        "<IQQ", 3, 0, 1) + gguf_text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 4_000_000)
        + (gguf_text("abcdefgh") * 4_000_000)[:-1]), 0.5, 256 << 20),
}


def from_a_cache(directory):
    """As huggingface_hub stores them: every file is a link to a blob outside the snapshot."""
    blobs = directory / "blobs"
    blobs.mkdir()
    for name in "ab":
        (directory / name).rename(blobs / name)
        (directory / name).symlink_to(Path("blobs") / name)


# Valid inputs that look wrong, the function that makes the directory, and the expected words.
ACCEPTED = {
    "index: tensor not in its shard": (with_index(GOOD | {"c": "a"}), "in no file"),
    "index: tensor of a shard not named": (with_index({"aw": "a", "bw": "a"}), "in no file"),
    "index: links to a cache": (with_index(GOOD, from_a_cache), ""),
    "index: wrong total_size": (
        with_index(json.dumps({"metadata": {"total_size": 5}, "weight_map": GOOD})), "total_size"),
}

CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8,
          "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
          "num_key_value_heads": 2, "vocab_size": 4, "rms_norm_eps": 1e-5,
          "max_position_embeddings": 8, "tie_word_embeddings": True}
SHAPES = ({f"self_attn.{part}_proj": (8, 8) for part in "qkvo"}
          | {f"mlp.{part}_proj": (8, 8) for part in ("gate", "up", "down")}
          | {"input_layernorm": (8,), "post_attention_layernorm": (8,)})


def make_model(directory):
    shapes = {f"model.layers.0.{name}.weight": shape for name, shape in SHAPES.items()}
    shapes |= {"model.embed_tokens.weight": (4, 8), "model.norm.weight": (8,)}
    entries, end = [], 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * math.prod(shape)
        entries.append(f'"{name}":' + entry(shape=json.dumps(shape), offsets=f"[{begin},{end}]"))
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(CONFIG))
    (directory / "model.safetensors").write_bytes(file_of("{" + ",".join(entries) + "}", bytes(end)))


# The model's path, the conversion's output path, and the expected exit code.
OUTPUTS = {
    "output next to the input": ("model", "result", 0),
    "output is the input": ("model", "model", 2),
    "output inside the input": ("model", "model/result", 2),
    "output contains the input": ("result/model", "result", 2),
}


def theirs(path):
    if safe_open is None:
        return "?"
    try:
        with safe_open(path, "np") as file:
            list(file.keys())
        return "opens"
    except Exception:
        return "refuses"


def seconds_of(command):
    """Processor time, which does not depend on other load. A command that takes more than WAITS seconds ends the
    script."""
    begin = spent_by_children()
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAITS)
    return spent_by_children() - begin, done


def spent_by_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Table:
    """Tries each bad input, prints one row, and counts the inputs that are not handled as promised."""

    def __init__(self, program):
        self.program = program
        self.baseline = measure.peak_bytes([program, "--version"], 0)
        self.rows = self.wrong = 0
        self.longest = self.most = 0
        print(f"{'':34} {'ms':>6} {'MiB':>6}  safetensors  regroup")

    def add(self, name, said, faults, took, extra, peer="-"):
        self.rows += 1
        self.wrong += bool(faults)
        self.longest, self.most = max(self.longest, took), max(self.most, extra)
        print(f"{name:34} {1e3 * took:6.1f} {extra / 2**20:6.1f}  {peer:11}  "
              f"{'!! ' + ', '.join(faults) + ': ' if faults else ''}{said[:100]}")

    def try_on(self, name, path, status=3, words="", peer="-", seconds=MOST_SECONDS, most=MOST_BYTES):
        """`regroup inspect`: an error that names the file, or a warning that contains the words."""
        command = [self.program, "inspect", str(path)]
        took, done = min((seconds_of(command) for _ in range(5)), key=lambda run: run[0])
        extra = max(0, measure.peak_bytes(command, done.returncode) - self.baseline)
        faults = [f"exit code {done.returncode}"] if done.returncode != status else []
        refused = status != 0
        if refused and done.stdout or not words_fit(done.stderr, str(path) if refused else words):
            faults.append("not one printable line that says so")
        if took > seconds:
            faults.append(f"{1e3 * took:.0f} ms")
        if extra > most:
            faults.append(f"{extra / 2**20:.0f} MiB")
        said = done.stderr.strip().replace(f"{path if path.is_dir() else path.parent}/", "").removeprefix("regroup: ")
        self.add(name, said or "opens", faults, took, extra, peer)

    def try_output(self, name, source, destination, status):
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory)
            make_model(root / source)
            before = sorted(root.rglob("*"))
            took, done = seconds_of([self.program, "convert", str(root / source),
                                     str(root / destination), "--kv-heads", "1", "--quiet"])
            faults = [f"exit code {done.returncode}"] if done.returncode != status else []
            if status != 0 and (not words_fit(done.stderr, destination)
                                or sorted(root.rglob("*")) != before):
                faults.append("not one line, or something was left")
            said = done.stderr.strip().replace(f"{directory}/", "").removeprefix("regroup: ")
            self.add(name, said or "converts", faults, took, 0)


def words_fit(stderr, words):
    """One printable line that contains the words; no line if there are no words."""
    if not words:
        return not stderr
    return stderr.count("\n") == 1 and stderr.rstrip("\n").isprintable() and words in stderr


def main():
    root = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--regroup", default=str(root / "build/release/regroup"))
    table = Table(parser.parse_args().regroup)
    for number, (name, made) in enumerate(FILES.items()):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / f"bad-{number}.safetensors"
            path.write_bytes(made)
            table.try_on(name, path, peer=theirs(path))
    accepted = {name: (make, 0, words) for name, (make, words) in ACCEPTED.items()}
    refused = {name: (make, 3, "") for name, make in DIRECTORIES.items()}
    for name, (make, status, words) in (refused | accepted).items():
        with tempfile.TemporaryDirectory() as directory:
            make(Path(directory))
            table.try_on(name, Path(directory), status, words)
    for name, (make, seconds, most) in LARGE.items():
        with tempfile.TemporaryDirectory() as directory:
            make(Path(directory))
            table.try_on(name, Path(directory), seconds=seconds, most=most)
    for name, row in OUTPUTS.items():
        table.try_output(name, *row)
    print(f"{table.rows} inputs, {table.wrong} not handled as promised; "
          f"at most {1e3 * table.longest:.0f} ms and {table.most / 2**20:.1f} MiB")
    return 1 if table.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
