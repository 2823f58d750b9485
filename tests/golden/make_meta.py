"""Makes llama_meta: the golden llama in Meta's format, split into two tensor-parallel ranks like Llama 1 and 2.

    python3 tests/golden/make_meta.py
"""

import json
import pathlib
import shutil

import torch
from safetensors.torch import load_file

HERE = pathlib.Path(__file__).resolve().parent
RANKS = 2
LAYER_NAMES = {
    "input_layernorm": "attention_norm",
    "self_attn.q_proj": "attention.wq",
    "self_attn.k_proj": "attention.wk",
    "self_attn.v_proj": "attention.wv",
    "self_attn.o_proj": "attention.wo",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.down_proj": "feed_forward.w2",
    "mlp.up_proj": "feed_forward.w3",
}
NAMES = {"model.embed_tokens": "tok_embeddings", "model.norm": "norm", "lm_head": "output"}
BY_COLUMNS = ("tok_embeddings", "attention.wo", "feed_forward.w2")


def meta_name(name):
    name = name.removesuffix(".weight")
    if name in NAMES:
        return NAMES[name]
    _, _, layer, part = name.split(".", 3)
    return f"layers.{layer}.{LAYER_NAMES[part]}"


def in_pairs(weight, head_dim):
    """Interleaves rows i and i + d/2 of each head, which transformers rotates together."""
    return weight.unflatten(0, (-1, 2, head_dim // 2)).transpose(1, 2).flatten(0, 2)


def cut(name, weight):
    if weight.dim() == 1:
        return [weight] * RANKS
    return weight.chunk(RANKS, 1 if name.endswith(BY_COLUMNS) else 0)


def main():
    source, directory = HERE / "llama", HERE / "llama_meta"
    config = json.loads((source / "config.json").read_text())
    directory.mkdir(exist_ok=True)
    ranks = [{} for _ in range(RANKS)]
    for name, weight in load_file(source / "model.safetensors").items():
        name = meta_name(name)
        if name.endswith(("wq", "wk")):
            weight = in_pairs(weight, config["head_dim"])
        for rank, piece in zip(ranks, cut(name, weight)):
            rank[f"{name}.weight"] = piece.clone()
    for number, rank in enumerate(ranks):
        rank["rope.freqs"] = torch.zeros(config["head_dim"] // 2)
        torch.save(rank, directory / f"consolidated.{number:02}.pth")
    params = {
        "dim": config["hidden_size"],
        "n_layers": config["num_hidden_layers"],
        "n_heads": config["num_attention_heads"],
        "n_kv_heads": config["num_key_value_heads"],
        "head_dim": config["head_dim"],
        "hidden_dim": config["intermediate_size"],
        "norm_eps": config["rms_norm_eps"],
        "rope_theta": config["rope_parameters"]["rope_theta"],
        "vocab_size": -1,
    }
    (directory / "params.json").write_text(json.dumps(params))
    shutil.copy(source / "expected.safetensors", directory)


if __name__ == "__main__":
    main()
