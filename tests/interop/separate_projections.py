"""Checks of a converted directory in the families with separate q, k, v, o and their own kv-head key."""

import json

import checkpoints
import exact_mean
from regroup_binary import TOLERANCE, expect, expect_same_logits, largest_difference


def read_config(directory):
    return json.loads((directory / "config.json").read_text())


def check_config(source, target, groups):
    before, after = read_config(source), read_config(target)
    note = after.pop("regroup", None)
    expect(note is not None, f"{target}/config.json has no regroup section")
    expect(
        after.pop("num_key_value_heads", None) == groups, f"{target}/config.json: num_key_value_heads is not {groups}"
    )
    was = before.pop("num_key_value_heads", before["num_attention_heads"])
    same = list(after.items()) == list(before.items())  # including the order of keys
    expect(same, f"{target}/config.json changed beyond the kv heads:\n  {before}\n  {after}")
    wanted = {"source_kv_heads": was, "kv_heads": groups, "pool": "mean", "grouping": "contiguous", "query_order": None}
    found = {key: note.get(key, "absent") for key in wanted}
    expect(found == wanted, f"{target}/config.json: regroup section says {found}, expected {wanted}")
    return was


def check_inspect(regroup, target, groups):
    config, report = read_config(target), regroup.inspect(target)
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    element = {"float32": 4, "bfloat16": 2, "float16": 2}[config["dtype"]]
    wanted = {
        "architecture": config["architectures"][0],
        "layers": config["num_hidden_layers"],
        "hidden_size": config["hidden_size"],
        "query_heads": heads,
        "kv_heads": groups,
        "head_dim": head_dim,
        "vocab_size": config["vocab_size"],
        "kv_bytes_per_token": config["num_hidden_layers"] * 2 * groups * head_dim * element,
        "attention": "mha" if groups == heads else "mqa" if groups == 1 else "gqa",
        "positions": "rope",
    }
    found = {key: report.get(key, "absent") for key in wanted}
    expect(found == wanted, f"inspect {target}: {found}, expected {wanted}")


def check_tensors(source, target, source_groups, groups):
    before, _ = checkpoints.read_directory(source)
    after, metadata = checkpoints.read_directory(target)
    expect(before.keys() == after.keys(), f"{target}: tensors gained or lost: {sorted(before.keys() ^ after.keys())}")
    for name, stored in before.items():
        if checkpoints.is_key_or_value(name):
            pooled = exact_mean.pool_rows(stored.bits, stored.dtype, source_groups, groups)
            stored = checkpoints.Stored(stored.dtype, pooled)
        found = after[name]
        expect(found.bits.shape == stored.bits.shape, f"{name}: shape {found.bits.shape}, expected {stored.bits.shape}")
        expect(found.same_as(stored), f"{name}: {found.dtype}, {(found.bits != stored.bits).sum()} elements differ")
        if groups == source_groups:
            expect(found.same_as(before[name]), f"{name}: a copy must copy")
    for file, entries in metadata.items():
        expect(entries.get("format") == "pt", f"{file}: __metadata__ lacks format: pt")
        expect(entries.get("regroup.kv_heads") == str(groups), f"{file}: __metadata__ regroup.kv_heads is not {groups}")


def swap_key_heads(model):
    """The negative control: swaps heads 0 and 1 of the first layer's keys, or the halves of a single head."""
    attention = model.model.layers[0].self_attn
    rows = attention.k_proj.weight.data[: 2 * attention.head_dim]
    rows.copy_(rows.roll(len(rows) // 2, dims=0))


def check_conversion(regroup, source, target, groups, tokens):
    """Converts source to target and checks it with transformers. tokens: [windows, T]."""
    regroup.convert(source, target, groups)
    source_groups = check_config(source, target, groups)
    check_inspect(regroup, target, groups)
    check_tensors(source, target, source_groups, groups)
    model = checkpoints.load(target)
    ours = regroup.logits(target, tokens)
    expect_same_logits(ours, checkpoints.logits(model, tokens), f"{source.name}, {source_groups} -> {groups} kv heads")
    swap_key_heads(model)
    broken = largest_difference(ours, checkpoints.logits(model, tokens))
    expect(broken > 100 * TOLERANCE, f"swapping key heads moved the logits by {broken:.3g} only")
