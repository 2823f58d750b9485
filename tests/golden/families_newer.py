"""Cases of decoder families that were added later."""

import torch
from case import Case, as_transformers_4, rope, without
from transformers import (
    BioGptConfig,
    CodeGenConfig,
    CohereConfig,
    GraniteConfig,
    PersimmonConfig,
    Phi3Config,
    SmolLM3Config,
    XGLMConfig,
)

SHAPE = dict(vocab_size=48, num_hidden_layers=2, bos_token_id=0, eos_token_id=0, pad_token_id=None)


def heads(query, key_value):
    return dict(num_attention_heads=query, num_key_value_heads=key_value)


def phi3(**settings):
    return Phi3Config(**SHAPE, **heads(6, 6), **dict(hidden_size=48, intermediate_size=24) | settings)


LONG_FACTORS = {"short_factor": [1.0, 1.3, 2.1], "long_factor": [1.5, 3.0, 7.0]}


def longrope(**changes):
    """Three pairs of 8 dimensions."""
    return rope(100.0, partial_rotary_factor=0.75) | {"rope_type": "longrope"} | LONG_FACTORS | changes


def as_phi3_mini_128k(config):
    """Like its config: neither the factor nor the positions are among the parameters of LongRoPE."""
    config = as_transformers_4(config)
    config["rope_scaling"] = {"type": "longrope"} | {key: config["rope_scaling"][key] for key in LONG_FACTORS}
    return config


def as_in_2024(**changes):
    return {"rope_scaling": {"type": "longrope"} | LONG_FACTORS | changes}


SIZES = dict(SHAPE, hidden_size=24, intermediate_size=40)
MULTIPLIERS = dict(embedding_multiplier=3.0, attention_multiplier=0.2, residual_multiplier=0.6, logits_scaling=1.7)


CASES = {
    "phi3": Case(
        phi3(rms_norm_eps=0.02, rope_parameters=rope(300.0, partial_rotary_factor=0.5)),
        dtype=torch.bfloat16,
        pool=(3, 2),
        controls=(
            {"rope_parameters": rope(10000.0, partial_rotary_factor=0.5)},
            {"rope_parameters": rope(300.0, partial_rotary_factor=1.0)},
            {"rms_norm_eps": 1e-5},
            {"hidden_act": "gelu"},
        ),
    ),
    "phi3_longrope": Case(
        phi3(
            tie_word_embeddings=True,
            max_position_embeddings=32,
            original_max_position_embeddings=8,  # 13 tokens exceed it
            rope_parameters=longrope(),
        ),
        dtype=torch.float16,
        rewrite=as_phi3_mini_128k,
        controls=(
            {"rope_scaling": None},
            {"original_max_position_embeddings": 16},
            {"max_position_embeddings": 64},
            as_in_2024(long_factor=[1.5, 3.0, 3.0]),
        ),
        inert=(as_in_2024(short_factor=[1.0, 1.0, 1.0]),),
    ),
    "phi3_longrope_short": Case(
        phi3(
            max_position_embeddings=32,
            original_max_position_embeddings=16,
            sliding_window=5,
            rope_parameters=longrope(attention_factor=1.4),
        ),
        dtype=torch.float16,
        controls=(
            {"original_max_position_embeddings": 8},
            {"sliding_window": None},
            {"sliding_window": 4},
            {"rope_parameters": longrope()},
            {"rope_parameters": longrope(attention_factor=1.4, short_factor=[1.0, 1.0, 1.0])},
        ),
        inert=({"rope_parameters": longrope(attention_factor=1.4, long_factor=[1.0, 1.0, 1.0])},),
    ),
    "biogpt": Case(
        BioGptConfig(**SIZES, num_attention_heads=6, max_position_embeddings=16),
        expand=(3, 2),
        controls=({"scale_embedding": False}, {"hidden_act": "relu"}),
        inert=({"layer_norm_eps": 0.1},),
        idle=("k_proj.bias",),
    ),
    "xglm": Case(
        XGLMConfig(
            vocab_size=48,
            d_model=24,
            ffn_dim=40,
            num_layers=2,
            attention_heads=6,
            max_position_embeddings=16,
            bos_token_id=0,
            eos_token_id=0,
            pad_token_id=1,
        ),
        lowest=2,
        expand=(3, 2),
        controls=({"scale_embedding": False}, {"activation_function": "relu"}),
        idle=("k_proj.bias",),
    ),
    "codegen": Case(
        CodeGenConfig(
            vocab_size=48,
            n_positions=16,
            n_ctx=16,
            n_embd=48,
            n_layer=2,
            n_head=8,
            rotary_dim=4,
            n_inner=24,
            layer_norm_epsilon=0.02,
            bos_token_id=0,
            eos_token_id=0,
        ),
        dtype=torch.bfloat16,
        expand=(4, 2),
        controls=({"rotary_dim": 2}, {"layer_norm_epsilon": 1e-5}, {"activation_function": "relu"}),
    ),
    "persimmon": Case(
        PersimmonConfig(
            **SHAPE,
            hidden_size=48,
            intermediate_size=24,
            num_attention_heads=6,
            layer_norm_eps=0.02,
            rope_parameters=rope(400.0, partial_rotary_factor=0.5),
        ),
        dtype=torch.bfloat16,
        expand=(3, 2),
        controls=(
            {"rope_parameters": rope(25000.0, partial_rotary_factor=0.5)},
            {"rope_parameters": rope(400.0, partial_rotary_factor=1.0)},
            {"layer_norm_eps": 1e-5},
            {"hidden_act": "relu"},
        ),
    ),
    "cohere": Case(
        CohereConfig(
            **SIZES, **heads(6, 6), logit_scale=1.6, layer_norm_eps=0.02, rope_parameters=rope(300.0)
        ),
        dtype=torch.bfloat16,
        rewrite=as_transformers_4,
        pool=(3, 2),
        controls=({"rope_theta": 500000.0}, {"logit_scale": 1.0}, {"layer_norm_eps": 1e-5}, {"hidden_act": "gelu"}),
    ),
    "granite": Case(
        GraniteConfig(
            **SIZES, **heads(6, 6), attention_bias=True, **MULTIPLIERS, rms_norm_eps=0.02, rope_parameters=rope(300.0)
        ),
        dtype=torch.bfloat16,
        pool=(3, 2),
        controls=(
            {"rope_parameters": rope(10000.0)},
            {"rms_norm_eps": 1e-6},
            {"embedding_multiplier": 1.0},
            {"attention_multiplier": 0.5},
            {"residual_multiplier": 1.0},
            {"logits_scaling": 1.0},
        ),
    ),
    "smollm3": Case(
        SmolLM3Config(
            **SIZES | dict(num_hidden_layers=4),  # the last without RoPE
            **heads(6, 6),
            rms_norm_eps=0.02,
            rope_parameters=rope(30.0),
        ),
        dtype=torch.bfloat16,
        rewrite=without("no_rope_layers", "layer_types"),
        pool=(3, 2),
        controls=(
            {"rope_parameters": rope(10000.0)},
            {"rms_norm_eps": 1e-6},
            {"no_rope_layer_interval": 3},
            {"no_rope_layers": [1, 1, 1, 1]},
        ),
        inert=({"sliding_window": 5},),  # without use_sliding_window
    ),
}
