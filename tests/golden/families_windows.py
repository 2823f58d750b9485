"""Cases of decoder families with a sliding window in some of their layers."""

import torch
from case import Case, rope, without
from families_newer import SIZES, heads
from transformers import (
    Cohere2Config,
    Gemma2Config,
    Gemma3TextConfig,
    GPTNeoConfig,
    Olmo3Config,
    Qwen2Config,
)

THREE = SIZES | dict(num_hidden_layers=3)
FOUR = SIZES | dict(num_hidden_layers=4)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=8)


def by_kind(full, sliding):
    """RoPE of layers without the window and of those with it."""
    return {"rope_parameters": {"full_attention": full, "sliding_attention": sliding}}


def kinds(text):
    """'sf' is a layer with the window, then one without."""
    return {"layer_types": [{"s": "sliding_attention", "f": "full_attention"}[kind] for kind in text]}


def as_on_the_hub(config):
    """Gemma 3's older keys: a pattern, and one key for each base of RoPE."""
    whole = config["rope_parameters"]["full_attention"]
    local = config["rope_parameters"]["sliding_attention"]
    older = {
        "rope_theta": whole.pop("rope_theta"),
        "rope_local_base_freq": local["rope_theta"],
        "rope_scaling": whole,
        "sliding_window_pattern": 2,
    }
    return dict(sorted((without("rope_parameters", "layer_types")(config) | older).items()))


CASES = {
    "olmo3": Case(
        Olmo3Config(
            **FOUR,
            **heads(6, 6),
            rms_norm_eps=0.02,
            max_position_embeddings=32,
            sliding_window=5,
            **by_kind(rope(300.0) | YARN, rope(300.0)),
        ),
        dtype=torch.bfloat16,
        pool=(3, 2),
        controls=(
            {"sliding_window": 4},
            {"sliding_window": 6},
            kinds("ffff"),
            kinds("ssss"),
            kinds("fsss"),
            by_kind(rope(300.0), rope(300.0)),
            by_kind(rope(300.0) | YARN, rope(10000.0)),
            by_kind(rope(300.0) | YARN, rope(300.0) | YARN),
            {"rms_norm_eps": 1e-6},
        ),
    ),
    "gpt_neo": Case(
        GPTNeoConfig(
            vocab_size=48,
            hidden_size=24,
            num_layers=3,
            num_heads=6,
            intermediate_size=40,
            max_position_embeddings=16,
            attention_types=[[["global", "local"], 1], [["local"], 1]],
            window_size=5,
            layer_norm_epsilon=0.02,
            bos_token_id=0,
            eos_token_id=0,
        ),
        dtype=torch.bfloat16,
        expand=(3, 2),
        controls=({"window_size": 4}, {"window_size": 6}, {"layer_norm_epsilon": 1e-5}),
    ),
    "gemma2": Case(
        Gemma2Config(
            **THREE,
            **heads(6, 6),
            head_dim=8,
            query_pre_attn_scalar=5,
            attn_logit_softcapping=2.0,
            final_logit_softcapping=5.0,
            sliding_window=5,
            rms_norm_eps=0.02,
            rope_parameters=rope(300.0),
        ),
        dtype=torch.bfloat16,
        pool=(3, 2),
        controls=(
            {"attn_logit_softcapping": None},
            {"attn_logit_softcapping": 50.0},
            {"final_logit_softcapping": None},
            {"final_logit_softcapping": 30.0},
            {"query_pre_attn_scalar": 8},
            {"sliding_window": 4},
            kinds("sss"),
            kinds("fff"),
            {"rms_norm_eps": 1e-6},
            {"rope_parameters": rope(10000.0)},
            {"hidden_activation": "relu"},
        ),
    ),
    "gemma3": Case(
        Gemma3TextConfig(
            **THREE,
            **heads(6, 6),
            head_dim=8,
            query_pre_attn_scalar=20,
            sliding_window=5,
            **kinds("sfs"),
            rms_norm_eps=0.02,
            **by_kind(rope(1000.0) | dict(rope_type="linear", factor=2.0), rope(100.0)),
        ),
        dtype=torch.bfloat16,
        std=0.25,
        rewrite=as_on_the_hub,
        pool=(3, 2),
        controls=(
            {"query_pre_attn_scalar": 8},
            {"sliding_window": 4},
            {"sliding_window_pattern": 3},
            {"rope_theta": 100.0},
            {"rope_local_base_freq": 1000.0},
            {"rope_scaling": None},
            {"final_logit_softcapping": 5.0},
            {"rms_norm_eps": 1e-6},
        ),
        inert=({"attn_logit_softcapping": 2.0},),
    ),
    "cohere2": Case(
        Cohere2Config(
            **FOUR,
            **heads(6, 6),
            logit_scale=1.6,
            layer_norm_eps=0.02,
            sliding_window=5,
            rope_parameters=rope(300.0),
        ),
        dtype=torch.bfloat16,
        rewrite=without("layer_types"),
        pool=(3, 2),
        controls=(
            {"sliding_window": 4},
            {"sliding_window_pattern": 3},
            kinds("ssss"),
            {"rope_parameters": rope(10000.0)},
            {"logit_scale": 1.0},
            {"layer_norm_eps": 1e-5},
        ),
    ),
    "qwen2_windows": Case(
        Qwen2Config(
            **THREE,
            **heads(6, 6),
            rms_norm_eps=0.02,
            rope_parameters=rope(300.0),
            use_sliding_window=True,
            sliding_window=5,
            max_window_layers=1,
        ),
        dtype=torch.bfloat16,
        rewrite=without("layer_types"),
        pool=(3, 2),
        controls=({"sliding_window": 4}, {"max_window_layers": 0}, {"max_window_layers": 2}, kinds("sfs")),
    ),
}
