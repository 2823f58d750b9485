"""Makes gguf/ with llama.cpp's gguf package: small GGUF files, and blocks of every quantised type.

    python3 tests/golden/make_gguf.py
"""

import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import quants
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).resolve().parent / "gguf"
# The offsets of each type's half-precision scales in a block.
SCALES = {
    Type.Q4_0: (0,),
    Type.Q4_1: (0, 2),
    Type.Q5_0: (0,),
    Type.Q5_1: (0, 2),
    Type.Q8_0: (0,),
    Type.Q2_K: (80, 82),
    Type.Q3_K: (108,),
    Type.Q4_K: (0, 2),
    Type.Q5_K: (0, 2),
    Type.Q6_K: (208,),
}
# MXFP4's scale is a byte. No model here has it: its random numbers are drawn after all others.
MORE_SCALES = {Type.MXFP4: ()}


def random_blocks(kind, rows, blocks, random):
    """uint8 [rows, blocks · bytes]: random quants, and scales of all sizes and signs."""
    size = gguf.GGML_QUANT_SIZES[kind][1]
    data = random.randint(0, 256, (rows * blocks, size)).astype(np.uint8)
    for at in (SCALES | MORE_SCALES)[kind]:
        scale = random.standard_normal(rows * blocks) * 2.0 ** random.randint(-12, 0, rows * blocks)
        data[:, at : at + 2] = scale.astype(np.float16).view(np.uint8).reshape(-1, 2)
    return data.reshape(rows, blocks * size)


def make_blocks(random):
    tensors = {}
    for kind in SCALES:
        blocks = random_blocks(kind, 1, 3, random)
        tensors[f"{kind.name}.blocks"] = blocks
        tensors[f"{kind.name}.values"] = quants.dequantize(blocks, kind)
    values = random.standard_normal((1, 8 * 32)).astype(np.float32)
    values[0, 32:64] = 0.0
    values[0, 64:96] = np.arange(-16, 16) / 2  # half way between two quants
    values[0, 95] = 127.0 / 2
    values[0, 96:128] *= 1e-9  # a scale below half precision
    values[0, 128:160] *= 1e4
    tensors["quantised.values"] = values
    tensors["quantised.blocks"] = quants.quantize(values, Type.Q8_0)
    save_file(tensors, HERE / "blocks.safetensors")


def make_more_blocks(random):
    tensors = {}
    for kind in MORE_SCALES:
        blocks = random_blocks(kind, 1, 4, random)
        tensors[f"{kind.name}.blocks"] = blocks
        tensors[f"{kind.name}.values"] = quants.dequantize(blocks, kind)
    save_file(tensors, HERE / "more_blocks.safetensors")


class Model:
    """A GGUF file being built. Its values are written to a safetensors file next to it."""

    def __init__(self, architecture, random):
        self.writer = gguf.GGUFWriter(HERE / f"{architecture}.gguf", architecture)
        self.random = random
        self.expected = {}

    def add(self, name, *shape, kind=Type.F32):
        values = self.random.standard_normal(shape).astype(np.float32)
        if kind in (Type.F32, Type.F16):
            self.writer.add_tensor(name, values.astype(np.float32 if kind == Type.F32 else np.float16))
            return
        if kind == Type.Q8_0:
            blocks = quants.quantize(values, kind)
        else:
            blocks = random_blocks(kind, shape[0], shape[1] // 256, self.random)
        self.expected[name] = quants.dequantize(blocks, kind)
        self.writer.add_tensor(name, blocks, raw_dtype=kind)

    def add_linear(self, name, out, in_, kind=Type.F32):
        self.add(f"{name}.weight", out, in_, kind=kind)
        self.add(f"{name}.bias", out)

    def add_norm(self, name, width):
        self.add(f"{name}.weight", width)
        self.add(f"{name}.bias", width)

    def close(self):
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()
        if self.expected:
            save_file(self.expected, HERE / f"{self.writer.arch}.expected.safetensors")


def add_sizes(writer, context, width, layers, mlp, heads):
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(mlp)
    writer.add_head_count(heads)


def add_tokens(writer, count):
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"token {i}" for i in range(count)])
    writer.add_token_types([1] * count)


def make_llama(random):
    """4 heads in 2 groups, tied, two layers, with Q8_0, Q6_K, F16 and F32 tensors."""
    model = Model("llama", random)
    add_sizes(model.writer, 64, 32, 2, 256, 4)
    model.writer.add_head_count_kv(2)
    model.writer.add_layer_norm_rms_eps(1e-5)
    model.writer.add_rope_freq_base(500.0)
    model.writer.add_rope_dimension_count(8)
    model.writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    add_tokens(model.writer, 16)
    model.add("token_embd.weight", 16, 32, kind=Type.F16)
    for layer in range(2):
        block = f"blk.{layer}."
        model.add(block + "attn_norm.weight", 32)
        model.add(block + "attn_q.weight", 32, 32, kind=Type.Q8_0)
        model.add(block + "attn_k.weight", 16, 32, kind=Type.Q8_0)
        model.add(block + "attn_v.weight", 16, 32, kind=Type.F16)
        model.add(block + "attn_output.weight", 32, 32, kind=Type.Q8_0)
        model.add(block + "ffn_norm.weight", 32)
        model.add(block + "ffn_gate.weight", 256, 32, kind=Type.Q8_0)
        model.add(block + "ffn_up.weight", 256, 32, kind=Type.Q8_0)
        model.add(block + "ffn_down.weight", 8 * 4, 256, kind=Type.Q6_K)
    model.add("output_norm.weight", 32)
    model.expected = {name: model.expected[name] for name in ("blk.0.attn_k.weight", "blk.1.ffn_down.weight")}
    model.close()


def add_fused_layers(model, layers, width, mlp):
    for layer in range(layers):
        block = f"blk.{layer}."
        model.add_norm(block + "attn_norm", width)
        model.add_linear(block + "attn_qkv", 3 * width, width)
        model.add_linear(block + "attn_output", width, width)
        model.add_norm(block + "ffn_norm", width)
        model.add_linear(block + "ffn_up", mlp, width)
        model.add_linear(block + "ffn_down", width, mlp)


def make_gpt2(random):
    """Omits attention.head_count_kv, like llama.cpp's own converter."""
    model = Model("gpt2", random)
    add_sizes(model.writer, 16, 12, 2, 48, 6)
    model.writer.add_layer_norm_eps(0.05)
    add_tokens(model.writer, 10)
    model.add("token_embd.weight", 10, 12)
    model.add("position_embd.weight", 16, 12)
    add_fused_layers(model, 2, 12, 48)
    model.add_norm("output_norm", 12)
    model.close()


def make_bloom(random):
    model = Model("bloom", random)
    add_sizes(model.writer, 16, 12, 1, 48, 6)
    model.writer.add_head_count_kv(6)
    model.writer.add_layer_norm_eps(1e-5)
    add_tokens(model.writer, 10)
    model.add("token_embd.weight", 10, 12)
    model.add_norm("token_embd_norm", 12)
    add_fused_layers(model, 1, 12, 48)
    model.add_norm("output_norm", 12)
    model.close()


def make_gptneox(random):
    model = Model("gptneox", random)
    add_sizes(model.writer, 16, 24, 1, 40, 3)
    model.writer.add_layer_norm_eps(1e-5)
    model.writer.add_rope_dimension_count(2)
    model.writer.add_parallel_residual(True)
    add_tokens(model.writer, 10)
    model.add("token_embd.weight", 10, 24)
    add_fused_layers(model, 1, 24, 40)
    model.add_norm("output_norm", 24)
    model.add("output.weight", 10, 24)
    model.close()


def main():
    HERE.mkdir(exist_ok=True)
    random = np.random.RandomState(7)
    for make in (make_blocks, make_llama, make_gpt2, make_bloom, make_gptneox, make_more_blocks):
        make(random)


if __name__ == "__main__":
    main()
