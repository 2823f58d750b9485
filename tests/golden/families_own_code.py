"""Cases of decoder families whose code is on the hub and not in transformers."""

import torch
from case import Case, rope
from own_chatglm import ChatGLMConfig
from own_code import BaichuanConfig, InternLM2Config, InternLMConfig, MiniCPMConfig, QWenConfig
from transformers import GlmConfig

SIZES = dict(vocab_size=48, hidden_size=24, num_hidden_layers=2, intermediate_size=40)
OTHERS = dict(bos_token_id=0, eos_token_id=0, pad_token_id=None, tie_word_embeddings=False)


def baichuan(heads, **settings):
    return BaichuanConfig(**SIZES | OTHERS | settings, num_attention_heads=heads, rms_norm_eps=0.02, hidden_act="silu")


def as_first_baichuan(config):
    """The architecture's name in the first 7B."""
    return config | {"architectures": ["BaiChuanForCausalLM"]}


def qwen(**settings):
    return QWenConfig(
        **SIZES | OTHERS | dict(num_attention_heads=6, kv_channels=4, no_bias=True, layer_norm_epsilon=0.02) | settings
    )


def chatglm(**settings):
    sizes = dict(padded_vocab_size=48, hidden_size=24, num_layers=2, ffn_hidden_size=40, kv_channels=8, seq_length=16)
    flags = dict(add_bias_linear=False, add_qkv_bias=True, apply_residual_connection_post_layernorm=False, rmsnorm=True)
    heads = dict(num_attention_heads=6, multi_query_attention=True, multi_query_group_num=6, layernorm_epsilon=0.02)
    return ChatGLMConfig(**sizes | flags | heads | OTHERS | settings, post_layer_norm=True, original_rope=True)


CASES = {
    "chatglm2": Case(
        chatglm(),
        dtype=torch.bfloat16,
        pool=(3, 2),
        controls=({"layernorm_epsilon": 1e-6}, {"apply_residual_connection_post_layernorm": True}),
    ),
    "glm": Case(
        GlmConfig(
            **SIZES | OTHERS,
            num_attention_heads=6,
            num_key_value_heads=6,
            head_dim=8,
            max_position_embeddings=16,
            rms_norm_eps=0.02,
            rope_parameters=rope(300.0, partial_rotary_factor=0.5),
        ),
        dtype=torch.bfloat16,
        pool=(3, 2),
        controls=(
            {"rope_parameters": rope(10000.0, partial_rotary_factor=0.5)},
            {"rope_parameters": rope(300.0, partial_rotary_factor=1.0)},
            {"rms_norm_eps": 1e-6},
        ),
    ),
    "baichuan_7b": Case(
        baichuan(6, max_position_embeddings=16),
        dtype=torch.bfloat16,
        rewrite=as_first_baichuan,
        expand=(3, 2),
        controls=({"rms_norm_eps": 1e-6},),
    ),
    "baichuan2_7b": Case(baichuan(6, max_position_embeddings=16, z_loss_weight=0), expand=(3, 2)),
    "baichuan2_13b": Case(
        baichuan(12, model_max_length=16, z_loss_weight=0),
        expand=(4, 3),
        controls=({"max_position_embeddings": 16},),
    ),
    "internlm": Case(
        InternLMConfig(
            **SIZES | OTHERS,
            num_attention_heads=6,
            rms_norm_eps=0.02,
            hidden_act="silu",
            bias=True,
            max_position_embeddings=8,  # 13 tokens exceed it
            rotary={"base": 300.0, "type": "dynamic", "scaling_factor": 2.0},
        ),
        dtype=torch.bfloat16,
        expand=(3, 2),
        controls=(
            {"rotary": {"base": 300.0, "type": "origin"}},
            {"rotary": {"base": 300.0, "type": "dynamic"}},
            {"max_position_embeddings": 16},
        ),
    ),
    "internlm2": Case(
        InternLM2Config(
            **SIZES | OTHERS | dict(hidden_size=48, intermediate_size=24),
            num_attention_heads=12,
            num_key_value_heads=6,
            rms_norm_eps=0.02,
            hidden_act="silu",
            bias=True,
            max_position_embeddings=16,
            rope_theta=30.0,
        ),
        dtype=torch.bfloat16,
        pool=(3, 2),
        controls=({"rope_theta": 10000.0}, {"rms_norm_eps": 1e-6}),
    ),
    "minicpm": Case(
        MiniCPMConfig(
            **SIZES | OTHERS,
            num_attention_heads=6,
            num_key_value_heads=6,
            rms_norm_eps=0.02,
            hidden_act="silu",
            max_position_embeddings=16,
            rope_theta=300.0,
            scale_emb=3.0,
            scale_depth=1.4,
            dim_model_base=8,
        ),
        dtype=torch.bfloat16,
        pool=(3, 2),
        controls=({"scale_emb": 1.0}, {"scale_depth": 0.7}, {"dim_model_base": 16}, {"rope_theta": 10000.0}),
    ),
    "qwen": Case(
        qwen(seq_length=16, max_position_embeddings=32, rotary_emb_base=300.0, use_dynamic_ntk=True, use_logn_attn=True),
        dtype=torch.bfloat16,
        expand=(3, 2),
        controls=(
            {"rotary_emb_base": 10000.0},
            {"seq_length": 8, "use_logn_attn": False},
            {"seq_length": 8, "use_dynamic_ntk": False},
        ),
        inert=({"use_dynamic_ntk": False}, {"use_logn_attn": False}, {"seq_length": 13}),
    ),
}
