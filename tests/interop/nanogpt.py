"""nanoGPT's ckpt.pt: the program refuses it with a command, which makes a GPT-2 with the logits of nanoGPT's own formulas."""

import os
import subprocess
import sys

import checkpoints  # noqa: F401  first: it skips the script if a package is missing
import numpy as np
import torch
from regroup_binary import expect, expect_same_logits, run_script
from token_files import ROOT
from torch.nn import functional

D, HEADS, LAYERS, POSITIONS, VOCABULARY = 24, 3, 2, 16, 64


def weights(bias):
    torch.manual_seed(2)
    shapes = {"transformer.wte.weight": (VOCABULARY, D), "transformer.wpe.weight": (POSITIONS, D), "transformer.ln_f.weight": (D,)}
    for layer in range(LAYERS):
        for name, shape in {"ln_1": (D,), "attn.c_attn": (3 * D, D), "attn.c_proj": (D, D), "ln_2": (D,), "mlp.c_fc": (4 * D, D),
                            "mlp.c_proj": (D, 4 * D)}.items():
            shapes[f"transformer.h.{layer}.{name}.weight"] = shape
    if bias:
        shapes |= {name.replace(".weight", ".bias"): shape[:1] for name, shape in shapes.items() if ".h." in name or ".ln_f" in name}
    made = {name: 0.3 * torch.randn(shape) for name, shape in shapes.items()}
    return made | {"lm_head.weight": made["transformer.wte.weight"]}


def logits_of(w, ids):
    """nanoGPT's forward pass (model.py): linear layers are torch's, GELU is exact."""
    def norm(x, name):
        return functional.layer_norm(x, (D,), w[name + ".weight"], w.get(name + ".bias"), 1e-5)

    def linear(x, name):
        return functional.linear(x, w[name + ".weight"], w.get(name + ".bias"))

    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][: ids.shape[1]]
    for layer in range(LAYERS):
        block = f"transformer.h.{layer}."
        heads = [each.view(*ids.shape, HEADS, D // HEADS).transpose(1, 2)
                 for each in linear(norm(x, block + "ln_1"), block + "attn.c_attn").split(D, dim=2)]
        attended = functional.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).reshape(*ids.shape, D)
        x = x + linear(attended, block + "attn.c_proj")
        x = x + linear(functional.gelu(linear(norm(x, block + "ln_2"), block + "mlp.c_fc")), block + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ w["lm_head.weight"].T


def check(regroup, scratch):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    ids = np.arange(3 * POSITIONS).reshape(3, POSITIONS) * 7 % VOCABULARY
    for bias in (True, False):
        folder = scratch / str(bias)
        folder.mkdir()
        w = weights(bias)
        sizes = {"n_layer": LAYERS, "n_head": HEADS, "n_embd": D, "block_size": POSITIONS, "bias": bias, "vocab_size": VOCABULARY, "dropout": 0.0}
        torch.save({"model": {"_orig_mod." + name: value for name, value in w.items()}, "model_args": sizes, "iter_num": 5,
                    "optimizer": {"state": {}}, "config": {"out_dir": "out"}}, folder / "ckpt.pt")
        for command in (["convert", folder / "ckpt.pt", folder / "out", "--kv-heads", "1"], ["inspect", folder]):
            refused = subprocess.run([regroup.binary, *command], capture_output=True, text=True, check=False)
            expect(refused.returncode == 3 and "python -m regroup.nanogpt ckpt.pt" in refused.stderr, f"refused by: {refused.stderr}")
        subprocess.run([sys.executable, "-m", "regroup.nanogpt", folder / "ckpt.pt", folder / "model"], env=environment, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        expect_same_logits(regroup.logits(folder / "model", ids), logits_of(w, torch.from_numpy(ids)).numpy(), f"bias {bias}")


if __name__ == "__main__":
    run_script(__doc__, check)
