"""Cases of the families with a fused q, k and v tensor, except GPT-2 and BLOOM."""

import checkpoints
import numpy as np
import torch
from case import Case, as_transformers_4, float_bits, rope, without
from transformers import FalconConfig, GPTBigCodeConfig, GPTNeoXConfig, MptConfig

LAYERS = 2
TEXT = dict(vocab_size=48, bos_token_id=0, eos_token_id=0)


def as_pythia(config):
    """Uses rotary_pct and rotary_emb_base, and omits attention_bias, which used to be implied."""
    config = without("attention_bias", "rope_scaling")(as_transformers_4(config))
    older = {"rotary_pct": config.pop("partial_rotary_factor"), "rotary_emb_base": config.pop("rope_theta")}
    return dict(sorted((config | older).items()))


def with_pythia_buffers(tensors):
    """Adds the buffers of Pythia's files."""
    mask = np.tril(np.ones((1, 1, 16, 16), np.uint8))
    for layer in range(LAYERS):
        attention = f"gpt_neox.layers.{layer}.attention."
        tensors[attention + "bias"] = checkpoints.Stored("U8", mask)
        tensors[attention + "masked_bias"] = float_bits(np.array(-1e9))
        tensors[attention + "rotary_emb.inv_freq"] = float_bits(np.array([1.0, 0.05]))
    return tensors


def neox(**settings):
    return GPTNeoXConfig(**TEXT, num_hidden_layers=LAYERS, num_attention_heads=6, intermediate_size=32, **settings)


def falcon(heads, hidden_size, **settings):
    return FalconConfig(
        **TEXT, num_hidden_layers=LAYERS, num_attention_heads=heads, hidden_size=hidden_size, **settings
    )


def mpt(heads, **attention):
    return MptConfig(vocab_size=48, d_model=24, n_layers=LAYERS, n_heads=heads, max_seq_len=32, attn_config=attention)


def bigcode(**settings):
    return GPTBigCodeConfig(**TEXT, n_positions=16, n_embd=24, n_layer=LAYERS, n_head=6, **settings)


CASES = {
    "gpt_neox": Case(
        neox(
            hidden_size=36,
            max_position_embeddings=16,
            layer_norm_eps=0.02,
            rope_parameters=rope(400.0, partial_rotary_factor=0.7),  # 4 of 6: 4.2 rounds down
        ),
        rewrite=as_pythia,
        retensor=with_pythia_buffers,
        controls=(
            {"use_parallel_residual": False},
            {"rotary_pct": 1.0},
            {"rotary_emb_base": 10000},
            {"layer_norm_eps": 1e-5},
            {"hidden_act": "relu"},
        ),
    ),
    "gpt_neox_sequential": Case(
        neox(
            hidden_size=24,
            use_parallel_residual=False,
            rope_parameters=rope(400.0, partial_rotary_factor=1.0),
        ),
        controls=(
            {"use_parallel_residual": True},
            {"rope_parameters": rope(400.0, partial_rotary_factor=0.5)},
            {"hidden_act": "relu"},
        ),
    ),
    "falcon_rw": Case(
        falcon(6, 24, alibi=True, multi_query=False, bias=True, parallel_attn=False, layer_norm_epsilon=0.02),
        attention="sdpa",  # "eager" adds ALiBi twice
        rewrite=without("ffn_hidden_size", "num_kv_heads", "num_ln_in_parallel_attn", "rope_parameters"),
        controls=({"alibi": False}, {"layer_norm_epsilon": 1e-5}, {"activation": "relu"}),
    ),
    "falcon_7b": Case(
        falcon(6, 36, ffn_hidden_size=48, rope_parameters=rope(300.0)),
        controls=({"rope_parameters": rope(10000.0)}, {"alibi": True}, {"layer_norm_epsilon": 0.1}),
        inert=({"num_kv_heads": 3}, {"num_kv_heads": None}),
    ),
    "falcon_40b": Case(
        falcon(12, 48, new_decoder_architecture=True, num_kv_heads=6, ffn_hidden_size=40, rope_parameters=rope(300.0)),
        dtype=torch.bfloat16,
        pool=(2,),
        controls=({"rope_parameters": rope(10000.0)}, {"layer_norm_epsilon": 0.1}),
        inert=({"multi_query": False},),
    ),
    "falcon_11b": Case(
        falcon(
            6,
            36,
            new_decoder_architecture=True,
            num_ln_in_parallel_attn=1,
            num_kv_heads=2,
            ffn_hidden_size=40,
            tie_word_embeddings=False,
            rope_parameters=rope(500.0),
        ),
        dtype=torch.bfloat16,
        pool=(1,),
        controls=({"rope_parameters": rope(10000.0)}, {"layer_norm_epsilon": 0.1}),
    ),
    "mpt": Case(
        mpt(6),
        controls=({"layer_norm_epsilon": 0.1}, {"attn_config": {"softmax_scale": 1.0}}),
        inert=({"attn_config": {"alibi_bias_max": 4}}, {"attn_config": {"alibi": False}}, {"no_bias": False}),
    ),
    "mpt_12": Case(
        mpt(12, clip_qkv=1.0, softmax_scale=0.6),
        dtype=torch.bfloat16,
        controls=(
            {"attn_config": {"clip_qkv": 1.0}},
            {"attn_config": {"softmax_scale": 0.6}},
            {"attn_config": {"clip_qkv": 0.8, "softmax_scale": 0.6}},
        ),
    ),
    "gpt_bigcode": Case(
        bigcode(layer_norm_epsilon=0.02),
        controls=({"layer_norm_epsilon": 1e-5}, {"scale_attn_weights": False}, {"activation_function": "relu"}),
    ),
    "gpt_bigcode_mha": Case(
        bigcode(multi_query=False, n_inner=40),
        controls=({"scale_attn_weights": False}, {"activation_function": "relu"}),
    ),
}
