"""Llama: converted models load in transformers unchanged and compute what regroup eval computes."""

import checkpoints  # first: it skips the script if a package is missing
import torch
from regroup_binary import expect, run_script
from separate_projections import check_conversion
from transformers import LlamaConfig


def check(regroup, scratch):
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=36,  # != heads * head_dim = 192
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=12,
        num_key_value_heads=12,
        head_dim=16,
        rms_norm_eps=1e-3,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
        tie_word_embeddings=False,
    )
    tokens = checkpoints.random_tokens(config.vocab_size, windows=3, context=17, seed=1)
    fp32 = checkpoints.save_random(config, 2, scratch / "llama_fp32")
    bf16 = checkpoints.save_random(config, 3, scratch / "llama_bf16", torch.bfloat16)
    sharded = checkpoints.save_random(config, 4, scratch / "llama_sharded", max_shard_size="100KB")
    expect(len(list(sharded.glob("*.safetensors"))) > 2, "the sharded source is in one piece")
    for source, kv_heads in ((fp32, (4, 1, 12)), (bf16, (4, 1, 12)), (sharded, (4,))):
        for groups in kv_heads:
            check_conversion(regroup, source, scratch / f"{source.name}_{groups}", groups, tokens)


run_script(__doc__, check)
