"""Generates checkpoints of real shapes: safetensors shards of bf16 noise, a config and an index.

The noise is one block of 64 MiB. Every tensor starts at another offset in it, so that 13 GB take little more time
than writing them. A sparse checkpoint has headers and holes, which take no space.
"""

import json
import os
import struct
from pathlib import Path

BANK_BYTES = 64 << 20

# hidden, intermediate, heads, layers, vocabulary, bytes of a shard
SHAPES = {
    "tiny": (256, 688, 16, 4, 1000, 4_000_000),
    "1b": (2048, 5504, 16, 9, 32000, 1_000_000_000),
    "7b": (4096, 11008, 32, 32, 32000, 9_980_000_000),
    "70b": (8192, 28672, 64, 80, 32000, 9_900_000_000),  # as MHA
}


def tensors_of(shape):
    """Names and shapes, in the order in which Python's safetensors writes them."""
    hidden, intermediate, _, layers, vocabulary, _ = SHAPES[shape]
    tensors = {"lm_head.weight": [vocabulary, hidden], "model.embed_tokens.weight": [vocabulary, hidden],
               "model.norm.weight": [hidden]}
    for i in range(layers):
        layer = f"model.layers.{i}."
        tensors |= {f"{layer}self_attn.{name}_proj.weight": [hidden, hidden] for name in "qkvo"}
        tensors[layer + "mlp.gate_proj.weight"] = [intermediate, hidden]
        tensors[layer + "mlp.up_proj.weight"] = [intermediate, hidden]
        tensors[layer + "mlp.down_proj.weight"] = [hidden, intermediate]
        tensors[layer + "input_layernorm.weight"] = [hidden]
        tensors[layer + "post_attention_layernorm.weight"] = [hidden]
    return sorted(tensors.items())


def bytes_of(shape):
    elements = 1
    for size in shape:
        elements *= size
    return 2 * elements


def kv_bytes(shape):
    """Bytes of all K and V projections."""
    return sum(bytes_of(size) for name, size in tensors_of(shape)
               if "k_proj" in name or "v_proj" in name)


def in_shards(tensors, limit):
    shards, filled = [[]], 0
    for name, shape in tensors:
        if filled and filled + bytes_of(shape) > limit:
            shards.append([])
            filled = 0
        shards[-1].append((name, shape))
        filled += bytes_of(shape)
    return shards


def noise():
    """bf16 numbers between 2^-9 and 2^-5 with random signs."""
    bank = bytearray(os.urandom(BANK_BYTES))
    high = bytes((byte & 0x80) | 0x3b + (byte & 1) for byte in range(256))
    bank[1::2] = bank[1::2].translate(high)
    return memoryview(bytes(bank) + bytes(bank))


def put_shard(path, tensors, bank):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors:
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + bytes_of(shape)]}
        at += bytes_of(shape)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        if bank is None:
            file.truncate(8 + len(text) + at)
            return
        for number, (name, shape) in enumerate(tensors):
            left, start = bytes_of(shape), 2 * (hash_of(name) % (BANK_BYTES // 2))
            while left:
                part = bank[start:start + min(left, BANK_BYTES)]
                file.write(part)
                left -= len(part)
        file.flush()
        os.fsync(file.fileno())


def header_bytes(path):
    with open(path, "rb") as file:
        return 8 + struct.unpack("<Q", file.read(8))[0]


def hash_of(name):
    value = 0
    for byte in name.encode():
        value = (value * 1000003 + byte) % (1 << 61)
    return value


def put_model(directory, shape, sparse=False):
    """Writes the checkpoint unless it exists. Returns its size in bytes."""
    directory = Path(directory)
    hidden, intermediate, heads, layers, vocabulary, limit = SHAPES[shape]
    tensors = tensors_of(shape)
    total = sum(bytes_of(size) for _, size in tensors)
    if (directory / "config.json").exists():
        return total
    directory.mkdir(parents=True, exist_ok=True)
    bank = None if sparse else noise()
    shards, weight_map = in_shards(tensors, limit), {}
    for i, part in enumerate(shards):
        name = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        put_shard(directory / name, part, bank)
        weight_map.update((tensor, name) for tensor, _ in part)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
              "intermediate_size": intermediate, "num_attention_heads": heads,
              "num_key_value_heads": heads, "num_hidden_layers": layers, "hidden_act": "silu",
              "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "tie_word_embeddings": False, "torch_dtype": "bfloat16", "vocab_size": vocabulary}
    (directory / "config.json").write_text(json.dumps(config, indent=2))
    return total
