"""Families whose stock loader knows no grouped heads: transformers loads them re-targeted or expanded, and computes what
regroup computes grouped."""

import pathlib

import checkpoints  # first: it skips the script where a package is missing
from regroup_binary import expect, expect_same_logits, run_script

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"

# Fixture, kv heads of the result, what it is written as (transformers adds Falcon's ALiBi twice in "eager").
RETARGETED = (
    ("gpt_neox", 2, "PhiForCausalLM"),
    ("gpt_neox", 1, "PhiForCausalLM"),
    ("gpt_neox_sequential", 3, "Starcoder2ForCausalLM"),
    ("gptj", 2, "PhiForCausalLM"),
    ("gpt2", 1, "GPTBigCodeForCausalLM"),
    ("opt", 1, "GPTBigCodeForCausalLM"),
)
EXPANDED = (
    ("llama_mha", 2, "eager"),
    ("gpt2", 2, "eager"),
    ("gpt_neox", 2, "eager"),
    ("gpt_neox_sequential", 3, "eager"),
    ("gptj", 2, "eager"),
    ("opt", 2, "eager"),
    ("opt_350m", 2, "eager"),
    ("bloom", 2, "eager"),
    ("bloom_12", 4, "eager"),
    ("mpt", 2, "eager"),
    ("mpt_12", 4, "eager"),
    ("falcon_rw", 2, "sdpa"),
)


def check(regroup, scratch):
    for name, kv_heads, architecture in RETARGETED:
        target, grouped = scratch / f"{name}_{kv_heads}_auto", scratch / f"{name}_{kv_heads}_grouped"
        regroup.convert(GOLDEN / name, target, kv_heads, "--target", "auto")
        regroup.convert(GOLDEN / name, grouped, kv_heads)
        model = checkpoints.load(target)  # fails on missing, unexpected, mismatched keys
        expect(type(model).__name__ == architecture, f"{name} was written as {type(model).__name__}")
        compare(regroup, model, grouped, f"{name} at {kv_heads} as {architecture}")
    for name, kv_heads, attention in EXPANDED:
        target, grouped = scratch / f"{name}_{kv_heads}_expanded", scratch / f"{name}_{kv_heads}_plain"
        regroup.convert(GOLDEN / name, target, kv_heads, "--target", "expanded")
        regroup.convert(GOLDEN / name, grouped, kv_heads)
        model = checkpoints.load(target, attention=attention)
        compare(regroup, model, grouped, f"{name} at {kv_heads} expanded")


def compare(regroup, model, grouped, what):
    tokens = checkpoints.random_tokens(model.config.vocab_size, 3, 13, seed=7)
    expect_same_logits(regroup.logits(grouped, tokens), checkpoints.logits(model, tokens), what)


run_script(__doc__, check)
