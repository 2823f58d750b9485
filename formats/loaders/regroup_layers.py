# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""A number of key and value heads for each layer, for model classes of transformers that have one number for all.
Written by regroup.

The stock attention is built once more for each layer, from a config that has the layer's own number: projections,
norms, groups and so the cache have the layer's heads. All else is computed by the stock classes.
"""

import copy
import functools

import transformers
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS


class ConfigOfLayers:
    """To be inherited before a stock config. In config.json, `num_key_value_heads` is a list with one number a layer.
    Stock code reads the largest, and `kv_heads_of_layers` has the list."""

    @classmethod
    def from_dict(cls, config_dict, **kwargs):
        heads = config_dict["num_key_value_heads"]
        if isinstance(heads, list):
            config_dict = {**config_dict, "num_key_value_heads": max(heads), "kv_heads_of_layers": heads}
        return super().from_dict(config_dict, **kwargs)

    def to_dict(self):
        found = super().to_dict()
        heads = found.pop("kv_heads_of_layers", None)
        return found if heads is None else {**found, "num_key_value_heads": heads}


class HeadsOfLayers:
    """To be inherited before a stock model class, with a ConfigOfLayers."""

    def __init__(self, config, *args, **kwargs):
        super().__init__(config, *args, **kwargs)
        if "vllm" in ALL_ATTENTION_FUNCTIONS.valid_keys():
            raise ValueError("vLLM caches equally many heads in each layer of this model: use regroup's nemotron-nas")
        for block in list(self.modules()):
            for name, attention in list(block.named_children()):
                if hasattr(attention, "num_key_value_groups"):
                    setattr(block, name, with_own_heads(attention, config))

    @classmethod
    def is_custom_code(cls):
        """transformers 5 translates the names of stored tensors, such as those of experts, unless this is true."""
        return False


def with_own_heads(attention, config):
    """A new attention like this one, with the heads of its layer."""
    own = copy.copy(config)
    own.num_key_value_heads = config.kv_heads_of_layers[attention.layer_idx]
    built = type(attention)(own, attention.layer_idx)
    built.config = config  # the model's own, whose attention implementation may be changed
    return built


def other_classes(module, family, model):
    """A module's __getattr__, which makes the classes that are not in its text, such as those of classifiers, from
    those that transformers has for the family. They build `model` by its config."""

    @functools.cache
    def made(name):
        stock = name.removeprefix("Regroup")
        if name != "Regroup" + stock or not stock.startswith(family) or not hasattr(transformers, stock):
            raise AttributeError(f"{module} has no {name}")
        transformers.AutoModel.register(model.config_class, model, exist_ok=True)
        members = {"__module__": module, "config_class": model.config_class}
        return type(name, (HeadsOfLayers, getattr(transformers, stock)), members)

    return made
