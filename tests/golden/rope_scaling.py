"""Cases of RoPE scaling, each on a small Llama with four frequencies per head."""

import torch
from case import Case, as_transformers_4, rope
from transformers import LlamaConfig


def llama(positions, **rope_parameters):
    return LlamaConfig(
        vocab_size=48,
        hidden_size=24,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=positions,
        tie_word_embeddings=True,
        rope_parameters=rope_parameters,
    )


def as_in_2023(config):
    """The key of the kind in rope_scaling used to be "type"."""
    config = as_transformers_4(config)
    config["rope_scaling"]["type"] = config["rope_scaling"].pop("rope_type")
    return config


def changed(config, **changes):
    """The setting that differs from config's in these keys of RoPE."""
    return {"rope_parameters": config.rope_parameters | changes}


LINEAR = llama(32, rope_type="linear", rope_theta=100.0, factor=2.5)
DYNAMIC = llama(8, rope_type="dynamic", rope_theta=100.0, factor=3.0)  # 13 tokens exceed 8 positions

# Wavelengths 6, 20, 63 and 199: below 32 / 4, between, and two above 32 / 1.
LLAMA3_SCALING = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LLAMA3 = llama(64, rope_type="llama3", rope_theta=100.0, **LLAMA3_SCALING)

# With these betas the ramp goes from frequency 1 to 3 of 0 … 3; with 32 and 1 it would go from 0 to 1.
YARN_SCALING = {"factor": 4.0, "beta_fast": 0.3, "beta_slow": 0.05, "original_max_position_embeddings": 8}
YARN = llama(32, rope_type="yarn", rope_theta=100.0, **YARN_SCALING)
YARN_MSCALE = llama(
    32, rope_type="yarn", rope_theta=100.0, **YARN_SCALING, mscale=1.0, mscale_all_dim=0.4, truncate=False
)


def llama3_changed(**changes):
    return {"rope_scaling": {"rope_type": "llama3"} | LLAMA3_SCALING | changes}


CASES = {
    "llama_rope_linear": Case(
        LINEAR,
        dtype=torch.float16,
        rewrite=as_in_2023,
        controls=({"rope_scaling": None}, {"rope_scaling": {"type": "linear", "factor": 2.0}}),
    ),
    "llama_rope_dynamic": Case(
        DYNAMIC,
        dtype=torch.float16,
        controls=({"rope_parameters": rope(100.0)}, changed(DYNAMIC, factor=2.0), {"max_position_embeddings": 13}),
    ),
    "llama_rope_llama3": Case(
        LLAMA3,
        dtype=torch.float16,
        rewrite=as_transformers_4,
        controls=(
            {"rope_scaling": None},
            llama3_changed(factor=2.0),
            llama3_changed(low_freq_factor=0.2),
            llama3_changed(high_freq_factor=8.0),
            llama3_changed(original_max_position_embeddings=16),
        ),
    ),
    "llama_rope_yarn": Case(
        YARN,
        dtype=torch.float16,
        controls=(
            {"rope_parameters": rope(100.0)},
            changed(YARN, factor=2.0),
            changed(YARN, attention_factor=1.0),
            changed(YARN, beta_fast=32.0, beta_slow=1.0),
            changed(YARN, beta_fast=2.0),
            changed(YARN, original_max_position_embeddings=16),
            changed(YARN, truncate=False),
        ),
    ),
    "llama_rope_yarn_mscale": Case(
        YARN_MSCALE,
        dtype=torch.float16,
        controls=(
            changed(YARN_MSCALE, mscale=None, mscale_all_dim=None),
            changed(YARN_MSCALE, mscale_all_dim=1.0),
            changed(YARN_MSCALE, truncate=True),
        ),
    ),
}
