"""Makes llama2c: a random Llama as llama2.c's export.py writes it for run.c, and the logits of transformers.

    python3 tests/golden/make_llama2c.py
"""

import pathlib
import struct

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
SEQ_LEN = 16
KINDS = (
    ("input_layernorm",),
    ("self_attn", "q_proj"),
    ("self_attn", "k_proj"),
    ("self_attn", "v_proj"),
    ("self_attn", "o_proj"),
    ("post_attention_layernorm",),
    ("mlp", "gate_proj"),
    ("mlp", "down_proj"),
    ("mlp", "up_proj"),
)


def in_pairs(weight, head_dim):
    """Interleaves rows i and i + d/2 of each head, which transformers rotates together."""
    return weight.unflatten(0, (-1, 2, head_dim // 2)).transpose(1, 2).flatten(0, 2)


def weight_of(layer, kind, head_dim):
    for part in kind:
        layer = getattr(layer, part)
    turns = kind[-1] in ("q_proj", "k_proj")
    return in_pairs(layer.weight, head_dim) if turns else layer.weight


def tables(head_dim):
    frequencies = 1.0 / (10000.0 ** (torch.arange(0, head_dim, 2).float() / head_dim))
    angles = torch.outer(torch.arange(SEQ_LEN), frequencies).float()
    return [angles.cos(), angles.sin()]


def main():
    torch.manual_seed(20)
    config = LlamaConfig(hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=6,
                         num_key_value_heads=2, vocab_size=32, max_position_embeddings=SEQ_LEN, rms_norm_eps=1e-5,
                         attn_implementation="eager")
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.5 if parameter.dim() == 2 else 0.2))
            if parameter.dim() == 1:
                parameter.add_(1.0)
        directory = HERE / "llama2c"
        directory.mkdir(exist_ok=True)
        tokens = torch.randint(0, config.vocab_size, (2, 13))
        save_file({"tokens": tokens, "logits": model(tokens).logits}, directory / "expected.safetensors")
        head_dim = config.hidden_size // config.num_attention_heads
        tensors = [model.model.embed_tokens.weight]
        tensors += [weight_of(layer, kind, head_dim) for kind in KINDS for layer in model.model.layers]
        tensors += [model.model.norm.weight, *tables(head_dim), model.lm_head.weight]
        numbers = (config.hidden_size, config.intermediate_size, config.num_hidden_layers, config.num_attention_heads,
                   config.num_key_value_heads, -config.vocab_size, SEQ_LEN)
        with open(directory / "model.bin", "wb") as file:
            file.write(struct.pack("<7i", *numbers))
            for tensor in tensors:
                file.write(tensor.float().contiguous().numpy().tobytes())
        logits = model(tokens).logits
        print(f"logits up to {logits.abs().max():.2f}, spread {logits.std():.2f}")


if __name__ == "__main__":
    main()
