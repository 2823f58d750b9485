#!/usr/bin/env python3
"""Measures other ways to group the heads of a Llama-like model beside regroup's, on the same weights and text.

    python3 bench/real/peers.py --source SmolLM2 --kv-heads 1 --data wiki.bin --test-data test.bin --mha2gqa CLONE --work DIR

Needs Python packages: torch, transformers, safetensors. Rows:
  mean          neighbours' mean: the GQA paper, and what NVIDIA's Model-Optimizer calls an average
  k-means       the mean of groups of heads whose weights k-means puts together (groups of equal size; needs two groups)
  mha2gqa       functions of CLONE/MHA2GQA/rearrange_model.py (github.com/fpcsong/mha2gqa), unchanged: heads grouped by their
                values, then rotated towards each other (a published method), then their mean
  lowrank       regroup convert --pool lowrank --grouping similar, calibrated on the same tokens
  distilled     that, and --steps steps of distillation; needs --text (and --tokenizer), because convert reads text

A source that is grouped already is first written with a kv head for every query head, for methods that know only MHA. Prints
losses over the source's and seconds, as Markdown.
"""

import argparse
import ast
import contextlib
import json
import pathlib
import shutil
import subprocess
import sys
import time

import torch
from safetensors.torch import load_file, save_file

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")


def run(options, *words):
    done = subprocess.run([options.regroup, *map(str, words), "--json"], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def loss_of(options, model):
    words = ["--data", options.test_data, "--context", options.context, "--max-tokens", options.test_tokens]
    return run(options, "eval", model, *words)["loss"]


class Heads:
    """The attention of one layer as heads: q, k, v [H, d, D] and o [H, D, d]."""

    def __init__(self, tensors, layer, query_heads):
        def weight(name):
            return tensors[f"model.layers.{layer}.self_attn.{name}.weight"]

        self.query = weight("q_proj").unflatten(0, (query_heads, -1))
        size = self.query.shape[1]
        self.key, self.value = (
            weight(name).unflatten(0, (-1, size)).repeat_interleave(query_heads * size // weight(name).shape[0], 0)
            for name in ("k_proj", "v_proj")
        )
        self.output = weight("o_proj").unflatten(1, (query_heads, -1)).movedim(1, 0)

    def in_order(self, order):
        self.query, self.key, self.value, self.output = (
            heads[order] for heads in (self.query, self.key, self.value, self.output)
        )

    def store(self, tensors, layer, groups):
        def mean(heads):
            return heads.unflatten(0, (groups, -1)).mean(1).flatten(0, 1)

        stored = self.query.flatten(0, 1), mean(self.key), mean(self.value), self.output.movedim(0, 1).flatten(1, 2)
        for name, tensor in zip(PROJECTIONS, stored):
            tensors[f"model.layers.{layer}.self_attn.{name}.weight"] = tensor.contiguous().float()


def by_k_means(heads, groups):
    """The order of heads that puts similar ones together: k-means with groups of equal size over their normalised weights."""
    points = torch.cat([torch.nn.functional.normalize(part.flatten(1), dim=1) for part in (heads.key, heads.value)], 1)
    size, best = len(points) // groups, None
    for seed in range(20):
        centres = points[torch.randperm(len(points), generator=torch.Generator().manual_seed(seed))[:groups]]
        for _ in range(20):
            distances, members = torch.cdist(points, centres), [[] for _ in range(groups)]
            for flat in distances.flatten().argsort().tolist():  # the nearest pairs first
                head, group = divmod(flat, groups)
                if len(members[group]) < size and not any(head in each for each in members):
                    members[group].append(head)
            centres = torch.stack([points[each].mean(0) for each in members])
        spread = sum((points[each] - points[each].mean(0)).square().sum().item() for each in members)
        best = min(best, (spread, members)) if best else (spread, members)
    return sum((sorted(each) for each in best[1]), [])


def functions_of(clone):
    """The functions of the peer's program, without the program."""
    text = (clone / "MHA2GQA/rearrange_model.py").read_text(encoding="utf-8")
    tree = ast.parse(text)
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    import random

    random.seed(0)
    names = {"torch": torch, "random": random, "map_location": "cpu", "standard": "dist", "item": "value"}
    exec(compile(tree, "rearrange_model.py", "exec"), names)  # the peer's own code
    return names


def by_mha2gqa(peer, heads, groups, keys, values):
    """Groups and rotates as the peer does. keys and values: [H, N, d] of the calibration text, keys before RoPE."""
    count, size = heads.query.shape[:2]
    if groups > 1:
        order = sum(peer["get_new_order"](groups, count, values.double()), [])
        heads.in_order(order)
        keys, values = keys[order], values[order]
    value, output = peer["rearrange_VO"](
        groups, size, heads.value.flatten(0, 1), heads.output.movedim(0, 1).flatten(1, 2), values.double()
    )
    query, key = peer["rearrange_QK"](groups, size, heads.query.flatten(0, 1), heads.key.flatten(0, 1), keys.double())
    heads.query, heads.key, heads.value = (tensor.unflatten(0, (count, size)) for tensor in (query, key, value))
    heads.output = output.unflatten(1, (count, size)).movedim(1, 0)


def outputs_of(options):
    """Keys before RoPE and values of each layer over the calibration text: lists of [heads, N, d]."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(options.source, dtype=torch.float32).eval()
    found = {name: [[] for _ in model.model.layers] for name in ("k_proj", "v_proj")}
    for layer, parts in enumerate(model.model.layers):
        for name, lists in found.items():
            getattr(parts.self_attn, name).register_forward_hook(lambda m, i, o, to=lists[layer]: to.append(o.flatten(0, 1)))
    data = torch.from_file(str(options.data), dtype=torch.uint16, size=options.tokens).long()
    with torch.no_grad():
        for window in data.unflatten(0, (-1, options.context)):
            model.model(window[None], use_cache=False)
    return [
        tuple(torch.cat(found[name][layer]).unflatten(1, (-1, options.head_size)).movedim(1, 0) for name in found)
        for layer in range(len(model.model.layers))
    ]


def write(options, change, name):
    """A copy of the source with the attention that `change` makes of each layer; returns its folder."""
    folder = options.work / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tensors = load_file(options.source / "model.safetensors")
    config = json.loads((options.source / "config.json").read_text())
    for layer in range(config["num_hidden_layers"]):
        heads = Heads(tensors, layer, config["num_attention_heads"])
        change(heads, layer)
        heads.store(tensors, layer, options.kv_heads)
    config["num_key_value_heads"] = options.kv_heads
    config.pop("regroup", None)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder


def rows(options):
    groups = options.kv_heads
    yield "mean (Model-Optimizer's average)", lambda: write(options, lambda heads, layer: None, "mean")
    if groups > 1:
        yield "k-means, mean", lambda: write(
            options, lambda heads, layer: heads.in_order(by_k_means(heads, groups)), "k-means"
        )
    if options.mha2gqa:
        peer = functions_of(options.mha2gqa)

        def aligned():
            outputs = outputs_of(options)

            def change(heads, layer):
                keys, values = outputs[layer]
                repeats = len(heads.query) // len(keys)
                with contextlib.redirect_stdout(sys.stderr):  # it prints its groups
                    by_mha2gqa(peer, heads, groups, keys.repeat_interleave(repeats, 0), values.repeat_interleave(repeats, 0))

            return write(options, change, "mha2gqa")

        yield "mha2gqa", aligned

    def convert(name, *words):
        folder = options.work / name
        shutil.rmtree(folder, ignore_errors=True)
        run(options, "convert", options.source, folder, "--kv-heads", groups, "--grouping", "similar", *words)
        return folder

    def lowrank():
        statistics = options.work / "statistics.safetensors"
        statistics.unlink(missing_ok=True)
        run(options, "calibrate", options.source, "--data", options.data, "--context", options.context, "--max-tokens",
            options.tokens, "-o", statistics)
        return convert("lowrank", "--pool", "lowrank", "--calibration", statistics)

    yield "regroup: lowrank", lowrank
    if options.text:
        tokenizer = ["--tokenizer", options.tokenizer] if options.tokenizer else []
        yield f"regroup: that, {options.steps} steps of distillation", lambda: convert(
            "distilled", "--text", options.text, *tokenizer, "--effort", "quick", "--refit-context", options.context,
            "--distill-steps", options.steps, "--refit-tokens", options.tokens)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=pathlib.Path, required=True, help="a Llama in one file, in fp32")
    parser.add_argument("--kv-heads", type=int, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="tokens (u16) to calibrate on")
    parser.add_argument("--test-data", type=pathlib.Path, required=True, help="tokens that judge")
    parser.add_argument("--text", type=pathlib.Path, help="text to distil on")
    parser.add_argument("--tokenizer", help="the tokenizer of --text (default: the model's)")
    parser.add_argument("--mha2gqa", type=pathlib.Path, metavar="CLONE")
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=32768, help="to calibrate on")
    parser.add_argument("--test-tokens", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--regroup", default="build/release/regroup")
    options = parser.parse_args()
    config = json.loads((options.source / "config.json").read_text())
    options.head_size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    source = loss_of(options, options.source)
    print(f"| | loss | over the source | seconds |\n|---|--:|--:|--:|\n| source | {source:.3f} | | |", flush=True)
    for name, make in rows(options):
        begin = time.monotonic()
        folder = make()
        seconds = time.monotonic() - begin
        loss = loss_of(options, folder)
        shutil.rmtree(folder)
        print(f"| {name} | {loss:.3f} | {loss - source:.3f} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
