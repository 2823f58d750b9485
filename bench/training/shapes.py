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
    "7b-4-layers": llama(4096, 4, 32, 32, 11008),
    "7b": llama(4096, 32, 32, 8, 11008),
    "13b": llama(5120, 40, 40, 8, 13824),
    "70b": llama(8192, 80, 64, 8, 28672),
}


def llama_tensors(config):
    """Names and shapes of a Llama's tensors, in the order of their names."""
    hidden, intermediate, width = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * width, config["num_key_value_heads"] * width
    vocabulary = config["vocab_size"]
    tensors = {"lm_head.weight": [vocabulary, hidden], "model.embed_tokens.weight": [vocabulary, hidden],
               "model.norm.weight": [hidden]}
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        tensors |= {layer + "self_attn.q_proj.weight": [q, hidden], layer + "self_attn.k_proj.weight": [kv, hidden],
                    layer + "self_attn.v_proj.weight": [kv, hidden], layer + "self_attn.o_proj.weight": [hidden, q],
                    layer + "mlp.gate_proj.weight": [intermediate, hidden],
                    layer + "mlp.up_proj.weight": [intermediate, hidden],
                    layer + "mlp.down_proj.weight": [hidden, intermediate],
                    layer + "input_layernorm.weight": [hidden], layer + "post_attention_layernorm.weight": [hidden]}
    return sorted(tensors.items())
