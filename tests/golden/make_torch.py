"""Makes llama_torch and llama_torch_legacy: llama_mha as torch.save writes it, now and before torch 1.6. Tied weights
share their storage, and two tensors are strided.

    python3 tests/golden/make_torch.py
"""

import pathlib
import shutil

import torch
from safetensors.torch import load_file

HERE = pathlib.Path(__file__).resolve().parent
STRIDED = ("model.layers.0.self_attn.k_proj.weight", "model.layers.1.mlp.up_proj.weight")


def main():
    source = HERE / "llama_mha"
    tensors = load_file(source / "model.safetensors")
    for name in STRIDED:
        tensors[name] = tensors[name].t().contiguous().t()  # the same values in column-major order
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    for name, as_archive in (("llama_torch", True), ("llama_torch_legacy", False)):
        directory = HERE / name
        directory.mkdir(exist_ok=True)
        torch.save(tensors, directory / "pytorch_model.bin", _use_new_zipfile_serialization=as_archive)
        shutil.copy(source / "config.json", directory)


if __name__ == "__main__":
    main()
