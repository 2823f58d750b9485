"""Quantised GGUF files, whole and in parts, written by llama.cpp's Python package: every value is the one that the
package reads, logits are those of transformers with these values, and pooled heads are their means.
"""

import pathlib
import sys

import checkpoints  # first: it skips the script if a package is missing
import numpy as np
from regroup_binary import expect, expect_same_logits, largest_difference, run_script

try:
    import gguf
    import torch
    import transformers
    from gguf import GGMLQuantizationType as Type
    from gguf import quants
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "golden"))
import make_gguf  # noqa: E402

KINDS = (*make_gguf.SCALES, *make_gguf.MORE_SCALES)
WIDTH, HEADS, VOCABULARY = 256, 4, 64
MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


def set_scale(blocks, kind, scale):
    """Gives all blocks one scale; minima get a quarter of it."""
    for number, at in enumerate((make_gguf.SCALES | make_gguf.MORE_SCALES)[kind]):
        blocks[:, at : at + 2] = np.array([scale / 4**number], dtype=np.float16).view(np.uint8)
    if kind == Type.MXFP4:
        blocks[:, 0] = 128 + round(np.log2(scale))


def random_matrix(kind, random):
    """Random quants of numbers of about the size that keeps a Llama's activations small."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = make_gguf.random_blocks(kind, WIDTH, WIDTH // elements, random).reshape(-1, size)
    set_scale(blocks, kind, 1.0)
    set_scale(blocks, kind, 0.05 / quants.dequantize(blocks, kind).std())
    return blocks.reshape(WIDTH, -1)


def write(path, random, **split):
    """A Llama with one layer per type. Returns the values that the package reads in each tensor."""
    writer = gguf.GGUFWriter(path, "llama", **split)
    make_gguf.add_sizes(writer, 64, WIDTH, len(KINDS), WIDTH, HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(VOCABULARY)
    make_gguf.add_tokens(writer, VOCABULARY)
    values = {}

    def add(name, data, kind=None):
        values[name] = data if kind is None else quants.dequantize(data, kind)
        writer.add_tensor(name, data, raw_dtype=kind)

    add("token_embd.weight", random.standard_normal((VOCABULARY, WIDTH)).astype(np.float32))
    for layer, kind in enumerate(KINDS):
        for name in ("attn_norm", "ffn_norm"):
            add(f"blk.{layer}.{name}.weight", np.ones(WIDTH, dtype=np.float32))
        for name in MATRICES:
            add(f"blk.{layer}.{name}.weight", random_matrix(kind, random), kind)
    add("output_norm.weight", np.ones(WIDTH, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


NAMES = {
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def check_values(directory, values):
    tensors, _ = checkpoints.read_directory(directory)
    for layer, kind in enumerate(KINDS):
        for ours, theirs in NAMES.items():
            found = checkpoints.floats(tensors[f"model.layers.{layer}.{theirs}.weight"])
            same = np.array_equal(found, values[f"blk.{layer}.{ours}.weight"])
            expect(same, f"{kind.name}: {ours} has other values")
    print(f"  {len(KINDS)} types: every value is the package's")


def check_logits(regroup, file, directory, random):
    tokens = random.randint(0, VOCABULARY, (2, 12))
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    with torch.no_grad():
        theirs = model(torch.from_numpy(tokens)).logits.numpy()
        layer = model.model.layers[KINDS.index(Type.Q3_K)]
        layer.mlp.up_proj.weight[: WIDTH // 2] *= 2
        other = model(torch.from_numpy(tokens)).logits.numpy()
    ours = regroup.logits(file, tokens)
    expect_same_logits(ours, theirs, "every type in one model")
    expect(largest_difference(ours, other) > 1e-3, "half of a Q3_K tensor doubled makes no difference")


def check_pooled(regroup, file, scratch, values):
    pooled = scratch / "pooled.gguf"
    regroup.convert(file, pooled, 2)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(pooled).tensors}
    expect(len(tensors) == len(values), f"{len(tensors)} tensors, {len(values)} before")
    for layer, kind in enumerate(KINDS):
        name = f"blk.{layer}.attn_v.weight"
        heads = values[name].astype(np.float64).reshape(2, 2, WIDTH // HEADS, WIDTH)
        means = heads.mean(axis=1).reshape(-1, WIDTH).astype(np.float32)
        expect(tensors[name].tensor_type == Type.Q8_0, f"{name}: {tensors[name].tensor_type}")
        expect(tensors[name].data.tobytes() == quants.quantize(means, Type.Q8_0).tobytes(), f"{kind.name}: other means")
        kept = tensors[f"blk.{layer}.ffn_up.weight"]
        expect(kept.tensor_type == kind, f"ffn_up of {kind.name} became {kept.tensor_type}")
    print(f"  {len(KINDS)} types: pooled values are the means, as the package quantises them")


def check(regroup, scratch):
    whole = scratch / "whole.gguf"
    values = write(whole, np.random.RandomState(5))
    (scratch / "parts").mkdir()
    write(scratch / "parts" / "m.gguf", np.random.RandomState(5), split_max_tensors=40)
    parts = sorted((scratch / "parts").iterdir())
    expect(len(parts) == 3, f"{len(parts)} parts")
    for source, name in ((whole, "from_whole"), (parts[0], "from_part"), (scratch / "parts", "from_directory")):
        regroup.run("convert", source, scratch / name, "--to", "safetensors", "--dtype", "fp32")
        check_values(scratch / name, values)
    check_logits(regroup, scratch / "parts", scratch / "from_whole", np.random.RandomState(6))
    check_pooled(regroup, parts[0], scratch, values)


run_script(__doc__, check)
