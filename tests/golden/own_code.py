"""Baichuan, InternLM, InternLM2, MiniCPM and Qwen in plain torch: their code is on the hub and not in transformers.

Written from their published configs and descriptions, one formula per function, and registered with transformers'
Auto classes, so that these fixtures are made and checked like the others. D hidden size, H heads, G kv heads, d head
dimension, T tokens.
"""

import math

import torch
from torch.nn import Embedding, Linear, Module, ModuleList, Parameter
from torch.nn.functional import linear, normalize, silu
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput


class RmsNorm(Module):
    def __init__(self, width, epsilon):
        super().__init__()
        self.weight, self.epsilon = Parameter(torch.ones(width)), epsilon

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon)


def rotate(x, base):
    """RoPE on the pairs (i, i + d/2). x: [B, heads, T, d]."""
    length, half = x.shape[2], x.shape[3] // 2
    frequencies = float(base) ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.outer(torch.arange(length, dtype=torch.float64), frequencies)
    cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)


def stretched(base, factor, width):
    """The base with which the slowest pair of `width` dimensions turns `factor` times as slowly."""
    return base * factor ** (width / (width - 2))


def alibi_slopes(heads):
    whole = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8 * (head + 1) / whole) for head in range(whole)]
    return torch.tensor(slopes + [2.0 ** (-4 * (2 * head + 1) / whole) for head in range(heads - whole)])


def attend(q, k, v, slopes=None):
    """Causal attention of q [B, H, T, d] over k and v [B, G, T, d]. Returns [B, T, H·d]."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    places = torch.arange(q.shape[2])
    distance = places[None, :] - places[:, None]  # of key j from query i: j - i
    if slopes is not None:
        scores = scores + slopes.to(q.dtype)[:, None, None] * distance
    weights = scores.masked_fill(distance > 0, -math.inf).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2)


def split_heads(features, width):
    return features.unflatten(-1, (-1, width)).transpose(1, 2)


class Mlp(Module):
    """down(silu(gate(x)) · up(x)), with the names of the three maps and the biases of the family."""

    def __init__(self, hidden, width, names, bias=False):
        super().__init__()
        self.names = names
        for name, (inputs, outputs) in zip(names, ((hidden, width), (hidden, width), (width, hidden)), strict=True):
            setattr(self, name, Linear(inputs, outputs, bias=bias))

    def forward(self, x):
        gate, up, down = (getattr(self, name) for name in self.names)
        return down(silu(gate(x)) * up(x))


class Block(Module):
    """x + attention(norm(x)), then x + MLP(norm(x)). `parts` are the names of the four."""

    def __init__(self, config, parts, attention, mlp, epsilon):
        super().__init__()
        self.parts = parts
        modules = (RmsNorm(config.hidden_size, epsilon), attention, RmsNorm(config.hidden_size, epsilon), mlp)
        for name, module in zip(parts, modules, strict=True):
            setattr(self, name, module)

    def forward(self, x):
        first_norm, attention, second_norm, mlp = (getattr(self, name) for name in self.parts)
        x = x + attention(first_norm(x))
        return x + mlp(second_norm(x))


class Stack(Module):
    def __init__(self, config, names, make_block, epsilon):
        super().__init__()
        self.names = names
        embedding, layers, norm = names
        setattr(self, embedding, Embedding(config.vocab_size, config.hidden_size))
        setattr(self, layers, ModuleList(make_block(config) for _ in range(config.num_hidden_layers)))
        setattr(self, norm, RmsNorm(config.hidden_size, epsilon))

    def forward(self, tokens):
        embedding, layers, norm = (getattr(self, name) for name in self.names)
        x = embedding(tokens)
        for layer in layers:
            x = layer(x)
        return norm(x)


class Causal(PreTrainedModel):
    """A stack and its output projection; their names are the family's."""

    stack, head = "model", "lm_head"

    def forward(self, input_ids, **unused):
        hidden = getattr(self, self.stack)(input_ids)
        return CausalLMOutput(logits=getattr(self, self.head)(hidden))

    def _init_weights(self, module):
        pass  # the fixtures' weights are set afterwards


LLAMA_BLOCK = ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp")
LLAMA_STACK = ("embed_tokens", "layers", "norm")
LLAMA_MLP = ("gate_proj", "up_proj", "down_proj")


class BaichuanConfig(PretrainedConfig):
    model_type = "baichuan"


class BaichuanAttention(Module):
    """The 7B has RoPE and max_position_embeddings, the 13B ALiBi and model_max_length."""

    def __init__(self, config):
        super().__init__()
        self.heads, self.rope = config.num_attention_heads, hasattr(config, "max_position_embeddings")
        self.W_pack = Linear(config.hidden_size, 3 * config.hidden_size, bias=False)
        self.o_proj = Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, x):
        q, k, v = (split_heads(part, x.shape[-1] // self.heads) for part in self.W_pack(x).chunk(3, -1))
        if self.rope:
            q, k = rotate(q, 10000.0), rotate(k, 10000.0)
        return self.o_proj(attend(q, k, v, None if self.rope else alibi_slopes(self.heads)))


class UnitRowsHead(Module):
    def __init__(self, config):
        super().__init__()
        self.weight = Parameter(torch.ones(config.vocab_size, config.hidden_size))

    def forward(self, x):
        return linear(x, normalize(self.weight))


def baichuan_block(config):
    mlp = Mlp(config.hidden_size, config.intermediate_size, LLAMA_MLP)
    return Block(config, LLAMA_BLOCK, BaichuanAttention(config), mlp, config.rms_norm_eps)


class BaichuanForCausalLM(Causal):
    config_class = BaichuanConfig

    def __init__(self, config):
        super().__init__(config)
        self.model = Stack(config, LLAMA_STACK, baichuan_block, config.rms_norm_eps)
        plain = not hasattr(config, "z_loss_weight")  # Baichuan 2's key
        self.lm_head = Linear(config.hidden_size, config.vocab_size, bias=False) if plain else UnitRowsHead(config)
        self.post_init()


class InternLMConfig(PretrainedConfig):
    model_type = "internlm"


class InternLMAttention(Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, Linear(config.hidden_size, config.hidden_size, bias=config.bias))

    def base(self, length, width):
        rotary, trained = self.config.rotary, self.config.max_position_embeddings
        if rotary["type"] == "origin" or length <= trained:
            return rotary["base"]
        factor = rotary.get("scaling_factor", 1.0)
        return stretched(rotary["base"], factor * length / trained - (factor - 1), width)

    def forward(self, x):
        width = x.shape[-1] // self.config.num_attention_heads
        q, k, v = (split_heads(project(x), width) for project in (self.q_proj, self.k_proj, self.v_proj))
        base = self.base(x.shape[1], width)
        return self.o_proj(attend(rotate(q, base), rotate(k, base), v))


def internlm_block(config):
    mlp = Mlp(config.hidden_size, config.intermediate_size, LLAMA_MLP)
    return Block(config, LLAMA_BLOCK, InternLMAttention(config), mlp, config.rms_norm_eps)


class InternLMForCausalLM(Causal):
    config_class = InternLMConfig

    def __init__(self, config):
        super().__init__(config)
        self.model = Stack(config, LLAMA_STACK, internlm_block, config.rms_norm_eps)
        self.lm_head = Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()


class InternLM2Config(PretrainedConfig):
    model_type = "internlm2"


class InternLM2Attention(Module):
    """wqkv: for each of the G kv heads its H/G queries, then its key and its value."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.width = config.hidden_size // config.num_attention_heads
        features = (config.num_attention_heads + 2 * config.num_key_value_heads) * self.width
        self.wqkv = Linear(config.hidden_size, features, bias=config.bias)
        self.wo = Linear(config.hidden_size, config.hidden_size, bias=config.bias)

    def forward(self, x):
        groups = self.wqkv(x).unflatten(-1, (self.config.num_key_value_heads, -1, self.width))  # [B, T, G, H/G + 2, d]
        q, k, v = groups[..., :-2, :].flatten(2, 3), groups[..., -2, :], groups[..., -1, :]
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        return self.wo(attend(rotate(q, self.config.rope_theta), rotate(k, self.config.rope_theta), v))


def internlm2_block(config):
    mlp = Mlp(config.hidden_size, config.intermediate_size, ("w1", "w3", "w2"))
    parts = ("attention_norm", "attention", "ffn_norm", "feed_forward")
    return Block(config, parts, InternLM2Attention(config), mlp, config.rms_norm_eps)


class InternLM2ForCausalLM(Causal):
    config_class, head = InternLM2Config, "output"

    def __init__(self, config):
        super().__init__(config)
        self.model = Stack(config, ("tok_embeddings", "layers", "norm"), internlm2_block, config.rms_norm_eps)
        self.output = Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()


class MiniCPMConfig(PretrainedConfig):
    model_type = "minicpm"


class MiniCPMAttention(Module):
    """Llama's, with as many key and value heads as the config says."""

    def __init__(self, config):
        super().__init__()
        self.width, self.base = config.hidden_size // config.num_attention_heads, config.rope_theta
        self.q_proj = Linear(config.hidden_size, config.hidden_size, bias=False)
        self.k_proj = Linear(config.hidden_size, config.num_key_value_heads * self.width, bias=False)
        self.v_proj = Linear(config.hidden_size, config.num_key_value_heads * self.width, bias=False)
        self.o_proj = Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, x):
        q, k, v = (split_heads(part(x), self.width) for part in (self.q_proj, self.k_proj, self.v_proj))
        return self.o_proj(attend(rotate(q, self.base), rotate(k, self.base), v))


class MiniCPMBlock(Block):
    """What attention and MLP add is scaled by scale_depth / √layers."""

    def __init__(self, config):
        mlp = Mlp(config.hidden_size, config.intermediate_size, LLAMA_MLP)
        super().__init__(config, LLAMA_BLOCK, MiniCPMAttention(config), mlp, config.rms_norm_eps)
        self.scale = config.scale_depth / math.sqrt(config.num_hidden_layers)

    def forward(self, x):
        first_norm, attention, second_norm, mlp = (getattr(self, name) for name in self.parts)
        x = x + attention(first_norm(x)) * self.scale
        return x + mlp(second_norm(x)) * self.scale


class MiniCPMStack(Stack):
    """Embeddings are scaled by scale_emb, the last hidden states by dim_model_base / D."""

    def __init__(self, config):
        super().__init__(config, LLAMA_STACK, MiniCPMBlock, config.rms_norm_eps)
        self.inputs, self.outputs = config.scale_emb, config.dim_model_base / config.hidden_size

    def forward(self, tokens):
        x = self.embed_tokens(tokens) * self.inputs
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) * self.outputs


class MiniCPMForCausalLM(Causal):
    config_class = MiniCPMConfig

    def __init__(self, config):
        super().__init__(config)
        self.model = MiniCPMStack(config)
        self.lm_head = Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()


class QWenConfig(PretrainedConfig):
    model_type = "qwen"


class QwenAttention(Module):
    """Beyond seq_length tokens: another base (use_dynamic_ntk), and queries times log(place) (use_logn_attn)."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.c_attn = Linear(config.hidden_size, 3 * config.hidden_size)
        self.c_proj = Linear(config.hidden_size, config.hidden_size, bias=not config.no_bias)

    def forward(self, x):
        config, length = self.config, x.shape[1]
        q, k, v = (split_heads(part, config.kv_channels) for part in self.c_attn(x).chunk(3, -1))
        base = config.rotary_emb_base
        if config.use_dynamic_ntk:
            doublings = math.ceil(math.log2(length / config.seq_length) + 1)
            base = stretched(base, max(2**doublings - 1, 1), config.kv_channels)
        q, k = rotate(q, base), rotate(k, base)
        if config.use_logn_attn:
            places = torch.arange(1, length + 1).clamp_min(config.seq_length)
            q = q * (places.log() / math.log(config.seq_length)).to(q.dtype)[:, None]
        return self.c_proj(attend(q, k, v))


def qwen_block(config):
    mlp = Mlp(config.hidden_size, config.intermediate_size // 2, ("w2", "w1", "c_proj"), bias=not config.no_bias)
    parts = ("ln_1", "attn", "ln_2", "mlp")
    return Block(config, parts, QwenAttention(config), mlp, config.layer_norm_epsilon)


class QWenLMHeadModel(Causal):
    config_class, stack = QWenConfig, "transformer"

    def __init__(self, config):
        super().__init__(config)
        self.transformer = Stack(config, ("wte", "h", "ln_f"), qwen_block, config.layer_norm_epsilon)
        self.lm_head = Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()


for model in (BaichuanForCausalLM, InternLMForCausalLM, InternLM2ForCausalLM, MiniCPMForCausalLM, QWenLMHeadModel):
    AutoConfig.register(model.config_class.model_type, model.config_class)
    AutoModelForCausalLM.register(model.config_class, model)
