"""Families whose stock loaders do not support grouped heads: transformers loads models written as another
architecture or expanded, and computes what regroup computes for the grouped model."""

import json
import pathlib
import sys

import checkpoints  # first: it skips the script if a package is missing
import torch
from regroup_binary import expect, expect_same_logits, run_script
from transformers import LlamaConfig, MistralConfig, Qwen2Config
from transformers.dynamic_module_utils import get_class_from_dynamic_module

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
sys.path.insert(0, str(GOLDEN))
import nemotron_nas  # noqa: E402, F401  (registers with the Auto classes)
import own_chatglm  # noqa: E402, F401
import own_code  # noqa: E402, F401
import own_encoders  # noqa: E402, F401
import own_experts  # noqa: E402, F401

LLAMA = dict(vocab_size=64, hidden_size=48, intermediate_size=512, num_hidden_layers=3, num_attention_heads=12, num_key_value_heads=12)

# Fixture, kv heads of the result, target (transformers adds Falcon's ALiBi twice in "eager").
RETARGETED = (
    ("gpt_neox", 2, "PhiForCausalLM"),
    ("chatglm2", 2, "GlmForCausalLM"),  # not by "auto": its own code takes groups
    ("gpt_neox", 1, "PhiForCausalLM"),
    ("gpt_neox_sequential", 3, "Starcoder2ForCausalLM"),
    ("gptj", 2, "PhiForCausalLM"),
    ("codegen", 2, "PhiForCausalLM"),
    ("gpt2", 1, "GPTBigCodeForCausalLM"),
    ("opt", 1, "GPTBigCodeForCausalLM"),
    ("baichuan_7b", 2, "LlamaForCausalLM"),
    ("baichuan2_7b", 3, "LlamaForCausalLM"),
    ("internlm", 2, "LlamaForCausalLM"),
    ("qwen", 2, "Qwen2ForCausalLM"),
)
EXPANDED = (
    ("llama_mha", 2, "eager"),
    ("gpt2", 2, "eager"),
    ("gpt_neox", 2, "eager"),
    ("gpt_neox_sequential", 3, "eager"),
    ("gptj", 2, "eager"),
    ("codegen", 2, "eager"),
    ("opt", 2, "eager"),
    ("opt_350m", 2, "eager"),
    ("biogpt", 2, "eager"),
    ("gpt_neo", 2, "eager"),
    ("xglm", 2, "eager"),
    ("gemma2", 2, "eager"),
    ("olmo3", 2, "eager"),
    ("persimmon", 2, "eager"),
    ("phi3", 2, "eager"),
    ("cohere", 2, "eager"),
    ("granite", 2, "eager"),
    ("smollm3", 2, "eager"),
    ("olmoe", 3, "eager"),
    ("qwen2_moe", 2, "eager"),
    ("deepseek", 2, "eager"),
    ("baichuan_7b", 2, "eager"),
    ("baichuan2_13b", 4, "eager"),
    ("internlm", 2, "eager"),
    ("qwen", 2, "eager"),
    ("chatglm2", 2, "eager"),
    ("jina_bert", 4, "eager"),
    ("mosaic_bert", 3, "eager"),
    ("bloom", 2, "eager"),
    ("bloom_12", 4, "eager"),
    ("mpt", 2, "eager"),
    ("mpt_12", 4, "eager"),
    ("falcon_rw", 2, "sdpa"),
)


def check(regroup, scratch):
    for name, kv_heads, architecture in RETARGETED:
        target, grouped = scratch / f"{name}_{kv_heads}_auto", scratch / f"{name}_{kv_heads}_grouped"
        regroup.convert(GOLDEN / name, target, kv_heads, "--target", "glm" if name == "chatglm2" else "auto")
        regroup.convert(GOLDEN / name, grouped, kv_heads)
        model = checkpoints.load(target)  # fails on missing, unexpected and mismatched keys
        expect(type(model).__name__ == architecture, f"{name} was written as {type(model).__name__}")
        compare(regroup, model, grouped, f"{name} at {kv_heads} as {architecture}")
    for name, kv_heads, attention in EXPANDED:
        target, grouped = scratch / f"{name}_{kv_heads}_expanded", scratch / f"{name}_{kv_heads}_plain"
        regroup.convert(GOLDEN / name, target, kv_heads, "--target", "expanded")
        regroup.convert(GOLDEN / name, grouped, kv_heads)
        model = checkpoints.load(target, attention=attention)
        compare(regroup, model, grouped, f"{name} at {kv_heads} expanded")
    check_nemotron_nas(regroup, scratch)


def check_nemotron_nas(regroup, scratch):
    """Different layers, in the stand-in for the hub's code that made the fixture, and in the code that results carry."""
    for kv_heads in (1, [3, 1, 2, 1, 1]):
        target = scratch / f"nemotron_nas_{kv_heads}"
        regroup.convert(GOLDEN / "nemotron_nas", target, kv_heads)
        compare(regroup, checkpoints.load(target), target, f"nemotron_nas at {kv_heads}")
        compare(regroup, load_carried(target), target, f"nemotron_nas at {kv_heads}, by its code")
    for config_class in (LlamaConfig, MistralConfig, Qwen2Config):
        family = config_class.model_type
        source, target, grouped = (scratch / f"{family}_{kind}" for kind in ("mha", "nas", "mixed"))
        checkpoints.save_random(config_class(**LLAMA | {"sliding_window": None}), 3, source)
        regroup.convert(source, target, [12, 3, 4], "--target", "nemotron-nas")
        regroup.convert(source, grouped, [12, 3, 4])
        for model in (checkpoints.load(target), load_carried(target)):
            compare(regroup, model, grouped, f"{family} at 12, 3, 4 as {type(model).__name__}")


def load_carried(target):
    """AutoModel would take the stand-in, which is registered."""
    name = json.loads((target / "config.json").read_text())["auto_map"]["AutoModelForCausalLM"]
    return get_class_from_dynamic_module(name, target).from_pretrained(target, attn_implementation="eager", dtype=torch.float32).eval()


def compare(regroup, model, grouped, what):
    tokens = checkpoints.random_tokens(model.config.vocab_size, 3, 13, seed=7)
    expect_same_logits(regroup.logits(grouped, tokens), checkpoints.logits(model, tokens), what)


run_script(__doc__, check)
