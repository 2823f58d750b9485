"""Checks that the fixtures in this directory are suitable for tests.

transformers must read each of them and compute its logits. float32 must be accurate enough for the tests' tolerance.
Every error a reader could make (in a parameter, a setting, a head, a rounding) must change the logits.
"""

import json
import math
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "interop"))

import alibi_slopes
import checkpoints
import fused_layouts
import numpy as np
import pooling
import torch
from cases import CASES
from transformers import AutoConfig
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

NOISE = 2e-5  # the largest difference of float32 from float64: well below 1e-4, the tolerance of the tests
SIGNAL = 1e-2  # the least change of logits by an error: well above the tolerance


def expected(directory, suffix=""):
    tensors, _ = checkpoints.read_file(directory / f"expected{suffix}.safetensors")
    return tensors["tokens"].bits.view(np.int64), checkpoints.floats(tensors["logits"])


def difference(a, b):
    return float(np.abs(a.astype(np.float64) - b).max())


def double_logits(model, tokens):
    """XGLM makes a number of the default dtype that is one of the model's."""
    torch.set_default_dtype(torch.float64)
    logits = checkpoints.logits(model.double(), tokens)
    torch.set_default_dtype(torch.float32)
    return logits


def check_logits(directory, case):
    """Returns the model, the tokens and the logits, after checking that they belong together."""
    tokens, logits = expected(directory)
    model = checkpoints.load(directory, attention=case.attention)
    stray = difference(checkpoints.logits(model, tokens), logits)
    noise = difference(double_logits(model, tokens), logits)
    largest, spread = float(np.abs(logits).max()), float(logits.std())
    assert stray <= NOISE and noise <= NOISE, f"{directory.name}: float32 is off by {stray:.2g}, {noise:.2g}"
    assert largest < 30 and spread > case.spread, f"{directory.name}: logits up to {largest:.2g}, spread {spread:.2g}"
    print(f"{directory.name:22} noise {noise:.1e}  largest logit {largest:4.1f}  spread {spread:.1f}", end="")
    return model.float(), tokens, logits


def check_every_parameter_matters(directory, case, model, tokens, logits):
    weakest = np.inf
    for name, parameter in model.named_parameters():
        if case.language and any(part in name for part in ("visual", "vision", "projector")):
            continue  # no part of text
        original = parameter.data.clone()
        parameter.data.copy_(original.roll(1, dims=0 if original.shape[0] > 1 else -1))
        moved = difference(checkpoints.logits(model, tokens), logits)
        parameter.data.copy_(original)
        if name.endswith(case.idle):
            assert moved <= NOISE, f"{directory.name}: {name} moves the logits by {moved:.2g}"
            continue
        weakest = min(weakest, moved)
        assert weakest > SIGNAL, f"{directory.name}: {name} moves the logits by {weakest:.2g} only"
    print(f"  weakest parameter {weakest:.2g}", end="")


def check_controls(directory, case, tokens, logits):
    def logits_with(setting):
        with tempfile.TemporaryDirectory() as scratch:  # edited in the file, because a keyword may have less effect
            file = json.loads((directory / "config.json").read_text())
            pathlib.Path(scratch, "config.json").write_text(json.dumps(file | setting))
            config = AutoConfig.from_pretrained(scratch)
        model = checkpoints.load(directory, attention=case.attention, config=config)
        return checkpoints.logits(model, tokens)

    def moved(setting, before=logits):
        return difference(logits_with(setting), before)

    for setting in case.controls:
        assert moved(setting) > SIGNAL, f"{directory.name}: {setting} moves the logits by {moved(setting):.2g} only"
    # Bit for bit what the same machine computes without the setting: stored logits are equal only up to rounding.
    here = logits_with({}) if case.inert else logits
    for setting in case.inert:
        assert moved(setting, here) == 0, f"{directory.name}: {setting} moves the logits by {moved(setting, here):.2g}"


def check_pooled(directory, case):
    """Float32 sums must give other means than the exact ones in this fixture."""
    tensors, _ = checkpoints.read_directory(directory)
    pooled, _ = checkpoints.read_file(directory / "pooled.safetensors")
    wanted = {}
    for groups in case.pool:
        size = pooling.kv_heads(case.config) // groups
        for part in ("k_proj", "v_proj"):
            name = f"{case.language or 'model.'}layers.0.self_attn.{part}.weight"
            if name not in tensors:
                continue  # fused
            heads = values(tensors[name]).float().unflatten(0, (groups, size, -1))
            naive = heads.mean(dim=1).flatten(0, 1).to(case.dtype)
            wrong = int((naive != values(pooled[f"g{groups}/{name}"])).sum())
            assert (wrong >= 2) == (size % 3 == 0), (
                f"{directory.name}: float32 gets {wrong} means wrong at G = {groups}"
            )
        model, again = pooling.load_pooled(directory, case, groups)
        wanted |= {f"g{groups}/{name}": stored for name, stored in again.items()}
        tokens, logits = expected(directory, f"_g{groups}")
        noise = difference(double_logits(model, tokens), logits)
        assert noise <= NOISE, f"{directory.name}: at G = {groups} float32 strays by {noise:.2g}"
        assert difference(logits, expected(directory)[1]) > SIGNAL and (tokens == expected(directory)[0]).all()
    same = wanted.keys() == pooled.keys() and all(pooled[name].same_as(wanted[name]) for name in wanted)
    assert same, f"{directory.name}: pooled.safetensors does not have the means"


def check_grouped(directory, case, groups):
    grouped, expanded = pooling.grouped_and_expanded(directory, case.config, groups)
    stored, _ = checkpoints.read_file(directory / f"grouped_g{groups}.safetensors")
    same = grouped.keys() == stored.keys() and all(stored[name].same_as(grouped[name]) for name in grouped)
    assert same, f"{directory.name}: grouped_g{groups}.safetensors does not hold the means"
    tokens, logits = expected(directory, f"_g{groups}")
    noise = difference(double_logits(pooling.load_with(directory, case, expanded), tokens), logits)
    assert noise <= NOISE, f"{directory.name}: at G = {groups} float32 strays by {noise:.2g}"
    assert difference(logits, expected(directory)[1]) > SIGNAL and (tokens == expected(directory)[0]).all()


def values(stored):
    kind = {"F32": (np.int32, torch.float32), "F16": (np.int16, torch.float16), "BF16": (np.int16, torch.bfloat16)}
    bits, dtype = kind[stored.dtype]
    return torch.from_numpy(stored.bits.view(bits).copy()).view(dtype)


def check_equal_heads(directory, case):
    """Heads are equal within each group, and differ between groups."""
    heads = case.config.num_attention_heads
    layout = fused_layouts.BY_MODEL_TYPE.get(case.config.model_type)
    for name, stored in checkpoints.read_directory(directory)[0].items():
        blocks = ()
        if layout and name.endswith(layout.fused):
            blocks = layout.split(stored.bits, heads, heads)[1:]
        elif checkpoints.is_key_or_value(name):
            blocks = (stored.bits.reshape(heads, -1),)
        for block in blocks:
            members = block.reshape(case.equal, heads // case.equal, -1)
            assert (members == members[:, :1]).all() and (members[0] != members[1]).any(), f"{directory.name}: {name}"


def check_case(directory, case):
    model, tokens, logits = check_logits(directory, case)
    check_every_parameter_matters(directory, case, model, tokens, logits)
    check_controls(directory, case, tokens, logits)
    if case.pool:
        check_pooled(directory, case)
    if case.equal:
        check_equal_heads(directory, case)
    for groups in case.expand:
        check_grouped(directory, case, groups)
    if case.hub_twin:
        twin = directory.with_name(case.hub_twin)
        same = checkpoints.logits(checkpoints.load(twin), tokens)
        assert difference(same, logits) <= NOISE and (expected(twin)[1] == logits).all(), f"{twin.name}: not the twin"
    print()


def check_alibi_slopes(path):
    """The slopes must equal pow() of the C library and, within float32, those of transformers."""
    rows = json.loads(path.read_text())["slopes"]
    for heads, row in zip(alibi_slopes.HEADS, rows, strict=True):
        exact = alibi_slopes.exponents(heads)
        assert all(float(exponent) == exponent for exponent in exact)
        assert row == [math.pow(2.0, -float(exponent)) for exponent in exact], f"{heads} heads: pow disagrees"
        # The bias of key 1 is the slope. transformers raises a rounded float32 base to powers of up to 2H.
        theirs = build_alibi_tensor(torch.ones(1, 2, dtype=torch.long), heads, torch.float32)[:, 0, 1].tolist()
        allowed = (2 * heads + 1) * 2.0**-24
        assert all(abs(a - b) <= allowed * b for a, b in zip(theirs, row, strict=True)), f"{heads} heads: transformers"


def main():
    for name in sys.argv[1:] or CASES:
        check_case(HERE / name, CASES[name])
    check_alibi_slopes(HERE / "alibi_slopes.json")
    print("all fixtures are suitable")


main()
