#!/usr/bin/env python3
"""Measures how long `regroup inspect` takes on a model of many tensors in many shards, and how many bytes it reads.
Alternates with Python's safetensors on the same files. On a busy machine, compare the CPU time of all threads.

    bench/inspect_start.py [--regroup PROGRAM] [--tensors 10000] [--shards 100] [--runs 20]

The model is generated: a Llama whose files are headers and holes, which take almost no space. Bytes read are counted
with strace, if it is installed.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HIDDEN, INTERMEDIATE, HEADS, VOCABULARY = 4096, 11008, 32, 32000

SAFE_OPEN = """
import pathlib, sys, time
from safetensors import safe_open
ready, computed = time.perf_counter(), time.process_time()
count = 0
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.safetensors")):
    with safe_open(path, "np") as file:
        for name in file.keys():
            piece = file.get_slice(name)
            count += len(piece.get_shape()) > 0 and piece.get_dtype() is not None
print(time.perf_counter() - ready, time.process_time() - computed)
"""


def llama_tensors(count):
    """Names and shapes of a Llama with enough layers for about `count` tensors."""
    layers = (count - 3) // 9
    yield "model.embed_tokens.weight", [VOCABULARY, HIDDEN]
    for i in range(layers):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", [HIDDEN]
        for name in "qkvo":
            yield f"{layer}self_attn.{name}_proj.weight", [HIDDEN, HIDDEN]
        yield layer + "post_attention_layernorm.weight", [HIDDEN]
        yield layer + "mlp.gate_proj.weight", [INTERMEDIATE, HIDDEN]
        yield layer + "mlp.up_proj.weight", [INTERMEDIATE, HIDDEN]
        yield layer + "mlp.down_proj.weight", [HIDDEN, INTERMEDIATE]
    yield "model.norm.weight", [HIDDEN]
    yield "lm_head.weight", [VOCABULARY, HIDDEN]


def bytes_of(shape):
    elements = 1
    for size in shape:
        elements *= size
    return 2 * elements


def put_shard(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors:
        end = at + bytes_of(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
    return 8 + len(text)


def put_model(directory, count, shards):
    tensors = list(llama_tensors(count))
    each = -(-len(tensors) // shards)
    weight_map, headers = {}, 0
    for i in range(shards):
        part = tensors[i * each:(i + 1) * each]
        name = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        headers += put_shard(directory / name, part)
        weight_map.update((tensor, name) for tensor, _ in part)
    total = sum(bytes_of(shape) for _, shape in tensors)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN,
              "intermediate_size": INTERMEDIATE, "num_attention_heads": HEADS,
              "num_key_value_heads": HEADS, "num_hidden_layers": (count - 3) // 9,
              "torch_dtype": "bfloat16", "vocab_size": VOCABULARY}
    (directory / "config.json").write_text(json.dumps(config))
    return len(tensors), total, headers


def seconds(command):
    """Elapsed time, CPU time of all threads, and output. Starts the command without a copy of this process, whose size
    would add to the time."""
    with tempfile.TemporaryFile() as out:
        begin = time.perf_counter()
        child = os.posix_spawnp(command[0], command, os.environ,
                                file_actions=[(os.POSIX_SPAWN_DUP2, out.fileno(), 1)])
        _, status, used = os.wait4(child, 0)
        took = time.perf_counter() - begin
        if status != 0:
            sys.exit(f"{' '.join(command)} failed")
        out.seek(0)
        return (took, used.ru_utime + used.ru_stime), out.read().decode()


def bytes_read(command, directory):
    """Bytes read from files in `directory`, by strace."""
    with tempfile.TemporaryDirectory() as logs:  # one file per thread, so that no line is torn
        subprocess.run(["strace", "-ff", "-y", "-e", "trace=read,pread64", "-o", f"{logs}/log", *command],
                       check=True, capture_output=True)
        counts = {"weights": 0, "other": 0}
        for line in (line for log in Path(logs).iterdir() for line in log.open()):
            found = re.search(r"<(" + re.escape(str(directory)) + r"/[^>]*)>.* = (\d+)$", line.strip())
            if found:
                kind = "weights" if found[1].endswith(".safetensors") else "other"
                counts[kind] += int(found[2])
        return counts


def main():
    root = Path(__file__).resolve().parent.parent
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--regroup", default=str(root / "build/release/regroup"))
    options.add_argument("--tensors", type=int, default=10_000)
    options.add_argument("--shards", type=int, default=100)
    options.add_argument("--runs", type=int, default=20)
    options = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        tensors, total, headers = put_model(directory, options.tensors, options.shards)
        print(f"{tensors} tensors, {options.shards} shards, {total / 1e12:.2f} TB "
              f"of which {headers / 1e6:.2f} MB are headers")
        command = [options.regroup, "inspect", name, "--json"]
        python = [sys.executable, "-c", SAFE_OPEN, name]
        ours, theirs, opening = [], [], []
        for _ in range(options.runs):
            ours.append(seconds(command)[0])
            took, out = seconds(python)
            theirs.append(took)
            opening.append(tuple(map(float, out.split())))
        for label, times in [("regroup inspect, start to end", ours),
                             ("python and safe_open, start to end", theirs),
                             ("safe_open alone, once imported", opening)]:
            elapsed, computing = zip(*times)
            print(f"{label:<36} median {1e3 * statistics.median(elapsed):7.1f} ms, "
                  f"least {1e3 * min(elapsed):7.1f} ms, "
                  f"CPU median {1e3 * statistics.median(computing):7.1f} ms")
        for label, others in [("Python", theirs), ("safe_open alone", opening)]:
            ratios = [[other[i] / own[i] for other, own in zip(others, ours)] for i in (0, 1)]
            print(f"{label} relative to regroup, run by run: {statistics.median(ratios[0]):.1f} times the time, "
                  f"{statistics.median(ratios[1]):.1f} times the CPU time")
        if shutil.which("strace"):
            read = bytes_read(command, directory)
            print(f"bytes read of weight files {read['weights']:,} (headers {headers:,}), "
                  f"of config and index {read['other']:,}")
        else:
            print("strace is not installed: bytes read were not counted")


if __name__ == "__main__":
    main()
