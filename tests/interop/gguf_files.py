"""Files from llama.cpp's Python package with every tensor type, described by inspect; and files from regroup, read by
that package."""

import json
import pathlib
import sys

import checkpoints  # noqa: F401  (first: it skips the script if a package is missing)
import numpy as np
from regroup_binary import expect, run_script

try:
    import gguf
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
WRITTEN = ("llama", "llama_bf16", "llama_rope_llama3", "qwen3", "gemma", "gpt2", "bloom", "mpt", "gpt_neox", "falcon_40b", "phi",
           "starcoder2", "gpt_bigcode", "mixtral", "deepseek")

# Intermediate results of ggml's matrix products, which files do not contain. The package's Q8_1 has another size than
# ggml's.
NOT_IN_FILES = {"Q8_1", "Q8_K"}


def write(path, alignment, random):
    writer = gguf.GGUFWriter(path, "none")
    writer.add_custom_alignment(alignment)
    writer.add_string("regroup.kv_heads", "3")
    writer.add_array("tokenizer.ggml.tokens", [f"token {i}" for i in range(1000)])
    writer.add_array("tokenizer.ggml.scores", [float(i) for i in range(1000)])
    for number, kind in enumerate(gguf.GGMLQuantizationType):
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        if kind.name not in NOT_IN_FILES:
            data = random.randint(0, 256, (3, number % 4 + 1, 2 * size)).astype(np.uint8)
            writer.add_tensor(f"blk.{number}.{kind.name}", data, raw_shape=data.shape, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def check_tensors(report, path):
    ours = {tensor["name"]: tensor for tensor in report["tensors"]}
    reader, raw = gguf.GGUFReader(path), path.read_bytes()
    expect(len(ours) == len(reader.tensors), f"{len(ours)} tensors, the package reads {len(reader.tensors)}")
    for theirs in reader.tensors:
        tensor = ours[theirs.name]
        expect(tensor["dtype"] == theirs.tensor_type.name, f"{theirs.name}: {tensor['dtype']}")
        expect(tensor["shape"] == [int(size) for size in reversed(theirs.shape)], f"{theirs.name}: {tensor['shape']}")
        begin, end = tensor["byte_range"]
        expect(raw[begin:end] == theirs.data.tobytes(), f"{theirs.name}: other bytes")


def check(regroup, scratch):
    random = np.random.RandomState(3)
    for alignment in (32, 8, 256):
        path = scratch / f"{alignment}.gguf"
        write(path, alignment, random)
        # An unknown architecture without hyper-parameters: inspect describes the tensors.
        report = json.loads(regroup.run("inspect", path, "--json", "--tensors"))
        check_tensors(report, path)
        expect(report["provenance"] == {"kv_heads": 3}, f"provenance {report['provenance']}")
        print(f"  alignment {alignment}: {len(report['tensors'])} tensors alike")


    for name in WRITTEN:
        path = scratch / f"{name}.gguf"
        regroup.run("convert", GOLDEN / name, path, "--to", "gguf")
        report = json.loads(regroup.run("inspect", path, "--json", "--tensors"))
        check_tensors(report, path)
        fields = gguf.GGUFReader(path).fields
        architecture = fields["general.architecture"].contents()
        heads = fields[f"{architecture}.attention.head_count_kv"].contents()
        expect(heads == report["kv_heads"], f"{name}: head_count_kv {heads}, inspect says {report['kv_heads']}")
        print(f"  {name}: {len(report['tensors'])} tensors and {len(fields)} keys read")


run_script(__doc__, check)
