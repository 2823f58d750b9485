"""ChatGLM2 and ChatGLM3 in plain torch: their code is on the hub and not in transformers.

Written from their published configs and descriptions, like own_code.py.
"""

import torch
from own_code import Causal, RmsNorm, attend, split_heads
from torch.nn import Embedding, Linear, Module, ModuleList
from torch.nn.functional import silu
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig
from transformers.modeling_outputs import CausalLMOutput


class ChatGLMConfig(PretrainedConfig):
    model_type = "chatglm"
    attribute_map = {"num_key_value_heads": "multi_query_group_num", "num_hidden_layers": "num_layers"}
    attribute_map |= {"vocab_size": "padded_vocab_size"}


def rotate_pairs(x, base, width):
    """RoPE on the pairs (2i, 2i + 1) of the first `width` dimensions. x: [B, heads, T, d]."""
    length, half = x.shape[2], width // 2
    frequencies = float(base) ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.outer(torch.arange(length, dtype=torch.float64), frequencies)
    cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    even, odd = x[..., 0:width:2], x[..., 1:width:2]
    turned = torch.stack([even * cosine - odd * sine, odd * cosine + even * sine], -1).flatten(-2)
    return torch.cat([turned, x[..., width:]], -1)


class ChatGLMAttention(Module):
    def __init__(self, config):
        super().__init__()
        self.heads, self.groups, self.width = config.num_attention_heads, config.multi_query_group_num, config.kv_channels
        features = (self.heads + 2 * self.groups) * self.width
        self.query_key_value = Linear(config.hidden_size, features, bias=config.add_qkv_bias)
        self.dense = Linear(self.heads * self.width, config.hidden_size, bias=config.add_bias_linear)

    def forward(self, x):
        counts = [count * self.width for count in (self.heads, self.groups, self.groups)]
        q, k, v = (split_heads(part, self.width) for part in self.query_key_value(x).split(counts, -1))
        q, k = (rotate_pairs(part, 10000.0, self.width // 2) for part in (q, k))
        return self.dense(attend(q, k, v))


class ChatGLMMlp(Module):
    def __init__(self, config):
        super().__init__()
        self.dense_h_to_4h = Linear(config.hidden_size, 2 * config.ffn_hidden_size, bias=config.add_bias_linear)
        self.dense_4h_to_h = Linear(config.ffn_hidden_size, config.hidden_size, bias=config.add_bias_linear)

    def forward(self, x):
        gate, up = self.dense_h_to_4h(x).chunk(2, -1)
        return self.dense_4h_to_h(silu(gate) * up)


class ChatGLMBlock(Module):
    def __init__(self, config):
        super().__init__()
        self.after_norm = config.apply_residual_connection_post_layernorm
        self.input_layernorm, self.post_attention_layernorm = (
            RmsNorm(config.hidden_size, config.layernorm_epsilon) for _ in range(2)
        )
        self.self_attention, self.mlp = ChatGLMAttention(config), ChatGLMMlp(config)

    def forward(self, x):
        normed = self.input_layernorm(x)
        x = (normed if self.after_norm else x) + self.self_attention(normed)
        normed = self.post_attention_layernorm(x)
        return (normed if self.after_norm else x) + self.mlp(normed)


class ChatGLMEncoder(Module):
    def __init__(self, config):
        super().__init__()
        self.layers = ModuleList(ChatGLMBlock(config) for _ in range(config.num_layers))
        self.final_layernorm = RmsNorm(config.hidden_size, config.layernorm_epsilon)


class ChatGLMEmbedding(Module):
    def __init__(self, config):
        super().__init__()
        self.word_embeddings = Embedding(config.padded_vocab_size, config.hidden_size)


class ChatGLMTransformer(Module):
    def __init__(self, config):
        super().__init__()
        self.embedding, self.encoder = ChatGLMEmbedding(config), ChatGLMEncoder(config)
        self.output_layer = Linear(config.hidden_size, config.padded_vocab_size, bias=False)

    def forward(self, tokens):
        x = self.embedding.word_embeddings(tokens)
        for layer in self.encoder.layers:
            x = layer(x)
        return self.output_layer(self.encoder.final_layernorm(x))


class ChatGLMModel(Causal):
    config_class, base_model_prefix = ChatGLMConfig, "transformer"

    def __init__(self, config):
        super().__init__(config)
        self.transformer = ChatGLMTransformer(config)
        self.post_init()

    def forward(self, input_ids, **unused):
        return CausalLMOutput(logits=self.transformer(input_ids))


AutoConfig.register("chatglm", ChatGLMConfig)
AutoModelForCausalLM.register(ChatGLMConfig, ChatGLMModel)
