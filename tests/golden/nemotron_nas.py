"""Nemotron-NAS assembled from transformers' Llama layers, because transformers has no such model.

Registered with transformers' Auto classes, so that these fixtures are made and checked like the others.
"""

import copy

from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer


class NemotronNasConfig(LlamaConfig):
    model_type = "nemotron-nas"
    block_configs: list = None

    @classmethod
    def from_dict(cls, config_dict, **options):
        """Replaces a null intermediate_size: Llama's own layers, which are replaced later, need a number."""
        known = {key: value for key, value in config_dict.items() if key != "intermediate_size" or value is not None}
        return super().from_dict(known, **options)


def attention(heads_in_group):
    return {"n_heads_in_group": heads_in_group, "no_op": heads_in_group is None, "replace_with_linear": False}


def mlp(multiplier):
    return {"ffn_mult": multiplier, "no_op": multiplier is None, "replace_with_linear": False}


def block(heads_in_group, multiplier):
    """A block. None means no attention or no MLP."""
    return {"attention": attention(heads_in_group), "ffn": mlp(multiplier)}


def width(multiplier, hidden):
    exact = int(2 * multiplier * hidden / 3)
    return exact + -exact % 256


def config_of_layer(config, block_config):
    own = copy.deepcopy(config)
    if not block_config["attention"]["no_op"]:
        own.num_key_value_heads = config.num_attention_heads // block_config["attention"]["n_heads_in_group"]
    if not block_config["ffn"]["no_op"]:
        own.intermediate_size = width(block_config["ffn"]["ffn_mult"], config.hidden_size)
    return own


class Layer(LlamaDecoderLayer):
    def __init__(self, config, index):
        block_config = config.block_configs[index]
        super().__init__(config_of_layer(config, block_config), index)
        if block_config["attention"]["no_op"]:
            del self.self_attn, self.input_layernorm
        if block_config["ffn"]["no_op"]:
            del self.mlp, self.post_attention_layernorm

    def forward(self, hidden_states, **options):
        if hasattr(self, "self_attn"):
            normed = self.input_layernorm(hidden_states)
            hidden_states = hidden_states + self.self_attn(hidden_states=normed, **options)[0]
        if hasattr(self, "mlp"):
            hidden_states = hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))
        return hidden_states


class DeciLMForCausalLM(LlamaForCausalLM):
    config_class = NemotronNasConfig
    _no_split_modules = ["Layer"]

    def __init__(self, config):
        super().__init__(config)
        for index in range(config.num_hidden_layers):
            self.model.layers[index] = Layer(config, index)
        self.post_init()


AutoConfig.register(NemotronNasConfig.model_type, NemotronNasConfig)
AutoModelForCausalLM.register(NemotronNasConfig, DeciLMForCausalLM)
