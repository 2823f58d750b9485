"""The models of the fixtures, one entry per directory."""

import families_encoder
import families_encoder_newer
import families_experts
import families_fused
import families_multimodal
import families_newer
import families_own_code
import families_separate
import families_seq2seq
import families_windows
import rope_scaling
import torch
from case import Case, as_transformers_4, rope, without
from transformers import BloomConfig, GPT2Config, LlamaConfig, MistralConfig, Qwen2Config

BATCH = 2


def llama(heads, kv_heads, **settings):
    shape = dict(vocab_size=64, hidden_size=36, intermediate_size=40, num_hidden_layers=2)
    return LlamaConfig(**shape | settings, num_attention_heads=heads, num_key_value_heads=kv_heads)


def gpt2(**settings):
    return GPT2Config(vocab_size=64, n_positions=16, n_layer=2, n_head=6, bos_token_id=0, eos_token_id=0, **settings)


def bloom(**settings):
    return BloomConfig(**dict(vocab_size=64, n_layer=2, n_head=6) | settings)


def as_first_seen(config):
    """Like files from before head_dim existed."""
    return without("head_dim")(as_transformers_4(config))


GROUPED_LLAMA = llama(12, 4, head_dim=8, rope_parameters=rope(500.0), rms_norm_eps=0.02)
HALF_LLAMA = llama(12, 12, head_dim=4, rope_parameters=rope(100.0))

CASES = {
    "llama": Case(GROUPED_LLAMA, controls=({"rope_parameters": rope(10000.0)}, {"rms_norm_eps": 1e-6})),
    "llama_sharded": Case(GROUPED_LLAMA, save={"max_shard_size": "20KB"}),
    "llama_mha": Case(
        llama(6, 6, tie_word_embeddings=True, attention_bias=True, mlp_bias=True, rope_parameters=rope(300.0)),
        rewrite=as_first_seen,
        pool=(3, 2),
        controls=({"rope_parameters": rope(10000.0)},),
    ),
    "llama_bf16": Case(HALF_LLAMA, dtype=torch.bfloat16, pool=(4, 1)),
    "llama_fp16": Case(HALF_LLAMA, dtype=torch.float16, pool=(4, 1), rewrite=without("num_key_value_heads")),
    "qwen2": Case(
        Qwen2Config(
            vocab_size=97,
            hidden_size=48,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=6,
            num_key_value_heads=2,
            tie_word_embeddings=True,
            rope_parameters=rope(1000000.0),
        ),
        controls=({"rope_parameters": rope(10000.0)},),
    ),
    "mistral": Case(
        MistralConfig(
            vocab_size=80,
            hidden_size=32,
            intermediate_size=56,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            sliding_window=5,  # query i sees keys i-4 … i
        ),
        controls=({"sliding_window": None}, {"sliding_window": 4}, {"sliding_window": 6}),
    ),
    "gpt2": Case(
        gpt2(n_embd=36, layer_norm_epsilon=0.05),
        hub_twin="gpt2_base",
        controls=({"layer_norm_epsilon": 1e-5}, {"activation_function": "relu"}),
    ),
    "bloom": Case(
        bloom(hidden_size=24, n_layer=3),
        hub_twin="bloom_base",
        controls=({"apply_residual_connection_post_layernorm": True},),
    ),
    "bloom_12": Case(
        bloom(hidden_size=36, n_head=12, apply_residual_connection_post_layernorm=True, layer_norm_epsilon=0.05),
        controls=({"apply_residual_connection_post_layernorm": False}, {"layer_norm_epsilon": 1e-5}),
    ),
    "equal_heads": Case(llama(8, 8, hidden_size=32, tie_word_embeddings=True), equal=2),
    "equal_heads_gpt2": Case(gpt2(n_embd=30), equal=2),
    "equal_heads_bloom": Case(bloom(hidden_size=30), equal=2),
}
CASES |= families_separate.CASES | families_fused.CASES | rope_scaling.CASES | families_encoder.CASES
CASES |= families_newer.CASES | families_seq2seq.CASES | families_multimodal.CASES
CASES |= families_encoder_newer.CASES
CASES |= families_own_code.CASES | families_windows.CASES | families_experts.CASES
