"""Qwen2 (q, k, v biases, tied) and Mistral (sliding window, already grouped): the checks of llama.py."""

import checkpoints
import torch
from regroup_binary import run_script
from separate_projections import check_conversion
from transformers import MistralConfig, Qwen2Config

SHAPE = dict(vocab_size=97, hidden_size=48, intermediate_size=40, num_hidden_layers=2)


def check(regroup, scratch):
    qwen2 = Qwen2Config(
        **SHAPE,
        num_attention_heads=6,
        num_key_value_heads=6,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 20000.0},
    )
    mistral = MistralConfig(**SHAPE, num_attention_heads=8, num_key_value_heads=4, head_dim=8, sliding_window=5)
    tokens = checkpoints.random_tokens(SHAPE["vocab_size"], windows=2, context=19, seed=1)
    source = checkpoints.save_random(qwen2, 2, scratch / "qwen2", torch.float16)
    check_conversion(regroup, source, scratch / "qwen2_2", 2, tokens)
    source = checkpoints.save_random(mistral, 3, scratch / "mistral")
    check_conversion(regroup, source, scratch / "mistral_2", 2, tokens)


run_script(__doc__, check)
