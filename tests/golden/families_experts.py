"""Cases of mixtures of experts."""

import torch
from case import Case, as_transformers_4, rope
from own_experts import DeepseekConfig
from transformers import GraniteMoeConfig, MixtralConfig, OlmoeConfig, Qwen2MoeConfig, Qwen3MoeConfig

SIZES = dict(vocab_size=48, hidden_size=24, num_hidden_layers=2, bos_token_id=0, eos_token_id=0, pad_token_id=None)
HEADS = dict(num_attention_heads=6, num_key_value_heads=6)
NARROW = dict(intermediate_size=12, rms_norm_eps=0.02)
WITH_DENSE_LAYER = dict(NARROW, num_hidden_layers=3, moe_intermediate_size=8) | {"intermediate_size": 20}
MULTIPLIERS = dict(embedding_multiplier=3.0, attention_multiplier=0.2, residual_multiplier=0.6, logits_scaling=0.6)


def mixtral(**settings):
    return MixtralConfig(
        **SIZES | HEADS | NARROW | settings, num_local_experts=4, num_experts_per_tok=2, rope_parameters=rope(300.0)
    )


CASES = {
    "olmoe": Case(
        OlmoeConfig(
            **SIZES | HEADS | NARROW,
            num_experts=6,
            num_experts_per_tok=3,
            clip_qkv=0.8,
            rope_parameters=rope(300.0),
        ),
        rewrite=as_transformers_4,
        pool=(3, 2),
        controls=(
            {"clip_qkv": None},
            {"clip_qkv": 1.2},
            {"num_experts_per_tok": 2},
            {"norm_topk_prob": True},
            {"rms_norm_eps": 1e-5},
            {"rope_theta": 10000.0},
        ),
    ),
    "qwen2_moe": Case(
        Qwen2MoeConfig(
            **SIZES | HEADS | WITH_DENSE_LAYER,
            num_experts=5,
            num_experts_per_tok=2,
            shared_expert_intermediate_size=14,
            mlp_only_layers=[1],
            rope_parameters=rope(300.0),
        ),
        dtype=torch.bfloat16,
        pool=(3, 2),
        controls=({"num_experts_per_tok": 3}, {"norm_topk_prob": True}, {"rms_norm_eps": 1e-6}),
        inert=({"sliding_window": 5},),  # without use_sliding_window
    ),
    "qwen3_moe": Case(
        Qwen3MoeConfig(
            **SIZES | HEADS | WITH_DENSE_LAYER,
            head_dim=6,
            num_experts=5,
            num_experts_per_tok=2,
            norm_topk_prob=True,
            decoder_sparse_step=2,
            rope_parameters=rope(300.0),
        ),
        dtype=torch.bfloat16,
        pool=(3, 2),
        controls=(
            {"num_experts_per_tok": 3},
            {"norm_topk_prob": False},
            {"use_sliding_window": True, "sliding_window": 5},
        ),
    ),
    "mixtral": Case(
        mixtral(num_attention_heads=12, num_key_value_heads=6, head_dim=4),
        dtype=torch.bfloat16,
        rewrite=as_transformers_4,
        pool=(3, 2),
        controls=({"num_experts_per_tok": 1}, {"sliding_window": 5}, {"rope_theta": 1000000.0}),
    ),
    "mixtral_stacked": Case(mixtral(), save={"save_original_format": False}),
    "granitemoe": Case(
        GraniteMoeConfig(
            **SIZES | HEADS | NARROW,
            num_local_experts=5,
            num_experts_per_tok=2,
            **MULTIPLIERS,
            rope_parameters=rope(300.0),
        ),
        dtype=torch.bfloat16,
        pool=(3, 2),
        controls=({"num_experts_per_tok": 3}, {"residual_multiplier": 1.0}, {"attention_multiplier": 0.5}),
    ),
    "deepseek": Case(
        DeepseekConfig(
            **SIZES | HEADS | WITH_DENSE_LAYER,
            tie_word_embeddings=False,
            n_routed_experts=5,
            n_shared_experts=2,
            num_experts_per_tok=2,
            first_k_dense_replace=1,
            moe_layer_freq=1,
            norm_topk_prob=False,
            scoring_func="softmax",
            aux_loss_alpha=0.05,
            seq_aux=True,
            hidden_act="silu",
            rope_theta=300.0,
            max_position_embeddings=32,
        ),
        dtype=torch.bfloat16,
        pool=(3, 2),
        controls=({"norm_topk_prob": True}, {"num_experts_per_tok": 3}, {"rope_theta": 10000.0}),
    ),
}
