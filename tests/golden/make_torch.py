"""Makes llama_torch: llama_mha as torch.save writes it, with tied weights that share their storage and a strided one.

    python3 tests/golden/make_torch.py
"""

import pathlib
import shutil

import torch
from safetensors.torch import load_file

HERE = pathlib.Path(__file__).resolve().parent
STRIDED = ("model.layers.0.self_attn.k_proj.weight", "model.layers.1.mlp.up_proj.weight")


def main():
    source, directory = HERE / "llama_mha", HERE / "llama_torch"
    directory.mkdir(exist_ok=True)
    tensors = load_file(source / "model.safetensors")
    for name in STRIDED:
        tensors[name] = tensors[name].t().contiguous().t()  # the same numbers, column by column
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    torch.save(tensors, directory / "pytorch_model.bin")
    shutil.copy(source / "config.json", directory)


if __name__ == "__main__":
    main()
