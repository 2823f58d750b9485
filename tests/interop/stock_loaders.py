"""Families whose stock loaders support fewer kv heads: transformers loads converted models and computes the same."""

import pathlib

import checkpoints  # first: it skips the script if a package is missing
from regroup_binary import expect_same_logits, run_script

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"

# Fixture, kv heads of the result, attention implementation (transformers adds Falcon's ALiBi twice in "eager").
CONVERSIONS = (
    ("llama_mha", 2, "eager"),
    ("qwen2", 1, "eager"),
    ("qwen3", 2, "eager"),
    ("mistral", 1, "eager"),
    ("gemma", 3, "eager"),
    ("olmo", 2, "eager"),
    ("olmo2", 2, "eager"),
    ("phi", 2, "eager"),
    ("phi_qk_layernorm", 1, "eager"),
    ("phi3", 2, "eager"),
    ("cohere", 2, "eager"),
    ("granite", 2, "eager"),
    ("smollm3", 2, "eager"),
    ("olmo3", 2, "eager"),
    ("gemma2", 2, "eager"),
    ("gemma3", 3, "eager"),
    ("cohere2", 2, "eager"),
    ("qwen2_windows", 3, "eager"),
    ("olmoe", 2, "eager"),
    ("qwen2_moe", 3, "eager"),
    ("qwen3_moe", 2, "eager"),
    ("mixtral", 3, "eager"),
    ("mixtral_stacked", 2, "eager"),
    ("granitemoe", 2, "eager"),
    ("glm", 2, "eager"),
    ("phi3_longrope", 3, "eager"),
    ("stablelm", 3, "eager"),
    ("starcoder2", 2, "eager"),
    ("nemotron", 2, "eager"),
    ("falcon_40b", 2, "eager"),
    ("falcon_11b", 1, "eager"),
    ("falcon_rw", 1, "sdpa"),
    ("gpt_bigcode_mha", 1, "eager"),
)


def check(regroup, scratch):
    for name, kv_heads, attention in CONVERSIONS:
        target = scratch / f"{name}_{kv_heads}"
        regroup.convert(GOLDEN / name, target, kv_heads)
        model = checkpoints.load(target, attention=attention)  # fails on missing, unexpected and mismatched keys
        tokens = checkpoints.random_tokens(model.config.vocab_size, 3, 13, seed=kv_heads)
        expect_same_logits(regroup.logits(target, tokens), checkpoints.logits(model, tokens), f"{name} at {kv_heads}")


run_script(__doc__, check)
