"""Configurations of the models that are trained, by name."""

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5,
         "rope_theta": 10000.0, "tie_word_embeddings": False, "vocab_size": 32000, "attention_bias": False,
         "mlp_bias": False, "max_position_embeddings": 16384, "bos_token_id": 1, "eos_token_id": 2}
BLOOM = {"architectures": ["BloomForCausalLM"], "model_type": "bloom", "vocab_size": 32000, "layer_norm_epsilon": 1e-5,
         "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2}


def llama(hidden, layers, heads, kv_heads, intermediate):
    return LLAMA | {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
                    "num_key_value_heads": kv_heads, "head_dim": hidden // heads, "intermediate_size": intermediate}


SHAPES = {
    "tiny": llama(64, 2, 4, 2, 128),
    "tiny-mha": llama(64, 2, 16, 16, 128),
    "30m": llama(384, 8, 6, 2, 1024),
    "0.1b": llama(768, 12, 12, 4, 2048),
    "0.5b": llama(1536, 16, 24, 8, 4096),
    "1.5b": llama(2048, 30, 16, 4, 5632),
    "1.5b-mha": llama(2048, 30, 16, 16, 5632),
    "1.5b-alibi": BLOOM | {"hidden_size": 2048, "n_layer": 28, "n_head": 16},
    "7b": llama(4096, 32, 32, 8, 11008),
}
