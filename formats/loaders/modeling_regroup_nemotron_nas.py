# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""Nemotron-NAS (DeciLM): Llama whose layers have their own key and value heads and MLP widths, or lack one of the two.
Written by regroup. vLLM has a class for the model and none for its config; transformers has neither."""

import copy

from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel
from transformers.models.llama.modeling_llama import LlamaDecoderLayer


class Block(dict):
    """One entry of block_configs: a dict whose entries are attributes too, as vLLM reads them."""

    def __init__(self, entries):
        super().__init__({name: Block(value) if isinstance(value, dict) else value for name, value in entries.items()})

    def __getattr__(self, name):
        if name not in self:
            raise AttributeError(name)
        return self[name]

    def __reduce__(self):  # copies and pickles do not go through the attributes
        return Block, (dict(self),)


class RegroupDeciLMConfig(LlamaConfig):
    model_type = "nemotron-nas"
    block_configs: list | None = None

    @classmethod
    def from_dict(cls, config_dict, **kwargs):
        blocks = [Block(block) for block in config_dict["block_configs"]]
        widths = [mlp_width(block.ffn.ffn_mult or 0, config_dict["hidden_size"]) for block in blocks]
        own = {"block_configs": blocks, "intermediate_size": max(widths)}  # the stock layers need a width
        return super().from_dict({**config_dict, **own}, **kwargs)


def mlp_width(multiplier, hidden):
    """The formula of the model's own code: 2/3 of the multiple of the hidden size, rounded up to 256."""
    exact = int(2 * multiplier * hidden / 3)
    return exact + -exact % 256


class DeciLMLayer(LlamaDecoderLayer):
    def __init__(self, config, index, block):
        """`index` counts the layers that have attention: those of the cache."""
        if any(part.get("replace_with_linear") for part in block.values()):
            raise ValueError(f"layer {index}: regroup's code has no linear maps in place of attention or an MLP")
        own, attention, mlp = copy.copy(config), block.attention, block.ffn
        if not attention.no_op:
            own.num_key_value_heads = config.num_attention_heads // attention.n_heads_in_group
        if not mlp.no_op:
            own.intermediate_size = mlp_width(mlp.ffn_mult, config.hidden_size)
        super().__init__(own, index)
        if attention.no_op:
            del self.self_attn, self.input_layernorm
        else:
            self.self_attn.config = config  # the model's own, whose attention implementation may be changed
        if mlp.no_op:
            del self.mlp, self.post_attention_layernorm

    def forward(self, hidden_states, **kwargs):
        if hasattr(self, "self_attn"):
            hidden_states = hidden_states + self.self_attn(hidden_states=self.input_layernorm(hidden_states), **kwargs)[0]
        if hasattr(self, "mlp"):
            hidden_states = hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))
        return hidden_states


def layers_of(config):
    layers = nn.ModuleList()
    for block in config.block_configs:
        with_cache = sum(hasattr(layer, "self_attn") for layer in layers)
        layers.append(DeciLMLayer(config, with_cache, block))
    return layers


class RegroupDeciLMModel(LlamaModel):
    config_class = RegroupDeciLMConfig
    _no_split_modules = ["DeciLMLayer"]

    def __init__(self, config):
        super().__init__(config)
        self.layers = layers_of(config)
        self.post_init()


class RegroupDeciLMForCausalLM(LlamaForCausalLM):
    config_class = RegroupDeciLMConfig
    _no_split_modules = ["DeciLMLayer"]

    def __init__(self, config):
        super().__init__(config)
        self.model.layers = layers_of(config)
        self.post_init()
