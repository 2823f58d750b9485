"""GPT-2 and BLOOM: stock loaders do not support their grouped tensors, so each kv head is repeated in the source's
layout. That model must compute what regroup eval computes for the grouped one."""

import json
import re

import checkpoints  # first: it skips the script if a package is missing
import exact_mean
import fused_layouts
import torch
from regroup_binary import TOLERANCE, expect, expect_same_logits, largest_difference, run_script
from transformers import BloomConfig, GPT2Config

HEADS, LAYERS = 6, 2
KV_HEADS = (2, 3, 1, HEADS, [3, 1])  # H/G != G in both directions, MQA, a copy, one number per layer


def pooled(layout, source, groups):
    """The fused tensor that convert must write: q unchanged, exact means of k and v."""
    q, k, v = layout.split(source.bits, HEADS, HEADS)
    k, v = (exact_mean.pool(heads, source.dtype, groups) for heads in (k, v))
    return checkpoints.Stored(source.dtype, layout.join(q, k, v))


def check_tensors(layout, before, after, kv_heads_of_layer):
    """Returns the converted tensors expanded to MHA."""
    expect(before.keys() == after.keys(), f"tensors gained or lost: {sorted(before.keys() ^ after.keys())}")
    expanded = {}
    for name, found in after.items():
        wanted, expanded[name] = before[name], found
        if name.endswith(layout.fused):
            groups = kv_heads_of_layer[int(re.search(r"\bh\.(\d+)\.", name)[1])]
            wanted = pooled(layout, before[name], groups)
            whole = fused_layouts.expand(layout, found.bits, HEADS, groups)
            expanded[name] = checkpoints.Stored(found.dtype, whole)
        expect(found.bits.shape == wanted.bits.shape, f"{name}: shape {found.bits.shape}, expected {wanted.bits.shape}")
        expect(found.same_as(wanted), f"{name}: {found.dtype}, {(found.bits != wanted.bits).sum()} elements differ")
    return expanded


def check_config(source, target, kv_heads):
    before, after = (json.loads((directory / "config.json").read_text()) for directory in (source, target))
    note = after.pop("regroup", {})
    expect(("auto_map" in after) == (kv_heads != HEADS), f"{target}: auto_map: {after.get('auto_map')}")
    after.pop("auto_map", None)
    found = after.pop("num_key_value_heads", HEADS)  # a copy need not have the key, which the families do not know
    expect(found == kv_heads, f"{target}: num_key_value_heads is {found}")
    expect(note.get("kv_heads") == kv_heads, f"{target}: regroup.kv_heads is {note.get('kv_heads')}")
    expect(note.get("source_kv_heads") == HEADS, f"{target}: regroup.source_kv_heads is {note.get('source_kv_heads')}")
    same = list(after.items()) == list(before.items())  # including the order of keys
    expect(same, f"{target}/config.json changed beyond the kv heads:\n  {before}\n  {after}")
    return before


def check_conversion(regroup, layout, source, kv_heads, tokens):
    target = source.with_name(f"{source.name} {kv_heads}")
    regroup.convert(source, target, kv_heads)
    config = check_config(source, target, kv_heads)
    before, _ = checkpoints.read_directory(source)
    after, metadata = checkpoints.read_directory(target)
    for file, entries in metadata.items():
        expect(entries.get("format") == "pt", f"{file}: __metadata__ lacks format: pt")
    kv_heads_of_layer = kv_heads if isinstance(kv_heads, list) else [kv_heads] * LAYERS
    expanded = check_tensors(layout, before, after, kv_heads_of_layer)

    directory = source.with_name(f"{target.name} expanded")
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config))
    checkpoints.write_file(directory / "model.safetensors", expanded)
    ours = regroup.logits(target, tokens)
    expect_same_logits(ours, checkpoints.logits(checkpoints.load(directory), tokens), target.name)
    return ours


def check_family(regroup, layout, source, tokens):
    unpooled = checkpoints.logits(checkpoints.load(source), tokens)
    for kv_heads in KV_HEADS:
        ours = check_conversion(regroup, layout, source, kv_heads, tokens)
        moved = largest_difference(ours, unpooled)  # the negative control: pooling must change the logits
        expect(kv_heads == HEADS or moved > 100 * TOLERANCE, f"{source.name}: pooling moved the logits by {moved:.3g}")


def check(regroup, scratch):
    gpt2 = GPT2Config(
        vocab_size=97, n_positions=32, n_embd=48, n_layer=LAYERS, n_head=HEADS, bos_token_id=0, eos_token_id=0
    )
    bloom = BloomConfig(vocab_size=97, hidden_size=48, n_layer=LAYERS, n_head=HEADS)
    tokens = checkpoints.random_tokens(vocab_size=97, windows=3, context=21, seed=1)
    source = checkpoints.save_random(gpt2, 2, scratch / "gpt2")
    check_family(regroup, fused_layouts.Gpt2, source, tokens)
    source = checkpoints.save_random(bloom, 3, scratch / "bloom", torch.float16)
    check_family(regroup, fused_layouts.Bloom, source, tokens)


run_script(__doc__, check)
