"""Cases of the families with separate q, k, v and o projections, except those in cases.py."""

import nemotron_nas
import torch
from case import Case, as_transformers_4, rope, without
from transformers import (
    GemmaConfig,
    GPTJConfig,
    NemotronConfig,
    Olmo2Config,
    OlmoConfig,
    OPTConfig,
    PhiConfig,
    Qwen3Config,
    StableLmConfig,
    Starcoder2Config,
)

SHAPE = dict(vocab_size=48, num_hidden_layers=2)


def heads(query, key_value):
    return dict(num_attention_heads=query, num_key_value_heads=key_value)


def as_on_hub(config):
    """Like Gemma's files: "gelu" means the tanh form, as in transformers."""
    return as_transformers_4(config) | {"hidden_act": "gelu"}


def as_nemotron_51b(config):
    """The blocks have the settings, and the model's own settings are null."""
    return without("head_dim")(as_transformers_4(config)) | {"intermediate_size": None, "num_key_value_heads": None}


def as_qwen3_4b(config):
    return without("layer_types")(as_transformers_4(config))


def without_prefix(tensors):
    """Tensor names of old OPT files: decoder.*, and the tied output weight stored as well."""
    tensors = {name.removeprefix("model."): stored for name, stored in tensors.items()}
    return tensors | {"lm_head.weight": tensors["decoder.embed_tokens.weight"]}


PHI = dict(SHAPE, hidden_size=48, intermediate_size=24, max_position_embeddings=32)
STABLELM = dict(SHAPE, hidden_size=36, intermediate_size=24)
OLMO = dict(SHAPE, hidden_size=24, intermediate_size=40, **heads(6, 6))
OPT = dict(SHAPE, hidden_size=24, ffn_dim=40, num_attention_heads=6, max_position_embeddings=16)

CASES = {
    "phi": Case(
        PhiConfig(**PHI, **heads(6, 6), layer_norm_eps=0.02, rope_parameters=rope(300.0, partial_rotary_factor=0.5)),
        dtype=torch.float16,
        pool=(2,),
        controls=(
            {"rope_parameters": rope(10000.0, partial_rotary_factor=0.5)},
            {"rope_parameters": rope(300.0, partial_rotary_factor=1.0)},
            {"layer_norm_eps": 1e-5},
            {"hidden_act": "relu"},
        ),
    ),
    "phi_qk_layernorm": Case(
        PhiConfig(**PHI, **heads(6, 3), qk_layernorm=True, rope_parameters=rope(300.0, partial_rotary_factor=0.5)),
        dtype=torch.float16,
        rewrite=as_transformers_4,
        pool=(1,),
        controls=({"partial_rotary_factor": 1.0}, {"partial_rotary_factor": 0.25}),
    ),
    "stablelm": Case(
        StableLmConfig(
            **STABLELM,
            **heads(6, 6),
            use_qkv_bias=True,
            layer_norm_eps=0.02,
            rope_parameters=rope(300.0, partial_rotary_factor=0.7),  # 4 of 6: 4.2 rounds down
        ),
        dtype=torch.bfloat16,
        rewrite=as_transformers_4,
        pool=(3, 2),
        controls=({"partial_rotary_factor": 0.4}, {"partial_rotary_factor": 1.0}, {"layer_norm_eps": 1e-5}),
    ),
    "stablelm_qk": Case(
        StableLmConfig(
            **STABLELM,
            **heads(6, 6),
            qk_layernorm=True,
            use_parallel_residual=True,
            rope_parameters=rope(300.0, partial_rotary_factor=0.7),
        ),
        dtype=torch.bfloat16,
        pool=(3, 2),
        controls=({"rope_parameters": rope(300.0, partial_rotary_factor=1.0)}, {"layer_norm_eps": 0.1}),
    ),
    "starcoder2": Case(
        Starcoder2Config(
            **SHAPE,
            **heads(12, 4),
            hidden_size=48,
            intermediate_size=40,
            norm_epsilon=0.02,
            sliding_window=None,
            rope_parameters=rope(300.0),
            bos_token_id=0,
            eos_token_id=0,
        ),
        dtype=torch.float16,
        rewrite=as_transformers_4,
        pool=(2,),
        controls=({"rope_theta": 10000.0}, {"norm_epsilon": 1e-5}, {"sliding_window": 5}, {"hidden_act": "relu"}),
    ),
    "nemotron": Case(
        NemotronConfig(
            **SHAPE,
            **heads(6, 6),
            head_dim=8,
            hidden_size=24,
            intermediate_size=40,
            attention_bias=True,
            mlp_bias=True,
            norm_eps=0.02,
            rope_parameters=rope(300.0, partial_rotary_factor=0.5),
        ),
        std=0.2,
        dtype=torch.bfloat16,
        pool=(3, 2),
        controls=(
            {"rope_parameters": rope(300.0, partial_rotary_factor=1.0)},
            {"norm_eps": 1e-5},
            {"hidden_act": "relu"},
        ),
    ),
    "gemma": Case(
        GemmaConfig(
            **SHAPE,
            **heads(6, 6),
            head_dim=8,
            hidden_size=24,
            intermediate_size=40,
            rms_norm_eps=0.02,
            rope_parameters=rope(300.0),
        ),
        std=0.2,
        dtype=torch.bfloat16,
        rewrite=as_on_hub,
        pool=(3, 2),
        controls=({"rope_theta": 10000.0}, {"rms_norm_eps": 1e-6}, {"hidden_act": "silu"}),
        inert=({"hidden_act": "gelu_pytorch_tanh"},),
    ),
    "qwen3": Case(
        Qwen3Config(
            **SHAPE,
            **heads(12, 6),
            head_dim=4,
            hidden_size=24,
            intermediate_size=32,
            rms_norm_eps=0.02,
            rope_parameters=rope(300.0),
        ),
        rewrite=as_qwen3_4b,
        pool=(3, 2),
        controls=({"rope_theta": 10000.0}, {"rms_norm_eps": 1e-6}),
        inert=({"sliding_window": 5},),  # without use_sliding_window
    ),
    "olmo": Case(
        OlmoConfig(**OLMO, clip_qkv=1.0, rope_parameters=rope(300.0), eos_token_id=0),
        rewrite=as_transformers_4,
        pool=(3, 2),
        controls=({"clip_qkv": None}, {"clip_qkv": 0.8}, {"rope_theta": 10000.0}),
    ),
    "olmo2": Case(
        Olmo2Config(**OLMO, rms_norm_eps=0.02, rope_parameters=rope(300.0), eos_token_id=0),
        pool=(3, 2),
        controls=({"rope_parameters": rope(10000.0)}, {"rms_norm_eps": 1e-6}),
    ),
    "nemotron_nas": Case(
        nemotron_nas.NemotronNasConfig(
            vocab_size=48,
            num_hidden_layers=5,
            hidden_size=24,
            num_attention_heads=6,
            rms_norm_eps=0.02,
            rope_parameters=rope(300.0),
            block_configs=[
                nemotron_nas.block(1, 16.0),  # 256 wide
                nemotron_nas.block(None, 16.5),  # 264, which rounds up to 512
                nemotron_nas.block(3, None),
                nemotron_nas.block(None, None),
                nemotron_nas.block(2, None),
            ],
        ),
        dtype=torch.bfloat16,
        rewrite=as_nemotron_51b,
        controls=({"rope_theta": 10000.0}, {"rms_norm_eps": 1e-6}),
    ),
    "gptj": Case(
        GPTJConfig(
            vocab_size=48,
            n_positions=16,
            n_embd=36,
            n_layer=2,
            n_head=6,
            rotary_dim=4,
            n_inner=32,
            layer_norm_epsilon=0.02,
            bos_token_id=0,
            eos_token_id=0,
        ),
        controls=({"rotary_dim": 6}, {"rotary_dim": 2}, {"layer_norm_epsilon": 1e-5}, {"activation_function": "relu"}),
    ),
    "opt": Case(OPTConfig(**OPT), controls=({"activation_function": "gelu"},), idle=("k_proj.bias",)),
    "opt_350m": Case(
        OPTConfig(**OPT, word_embed_proj_dim=16, do_layer_norm_before=False),
        retensor=without_prefix,
        controls=({"activation_function": "gelu"},),
        idle=("k_proj.bias",),
    ),
}
