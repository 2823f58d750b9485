# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""Grouped key and value heads for model classes of transformers that have none. Written by regroup.

A class that inherits GroupedHeads and a stock class computes what the stock class computes, with fewer key and value
heads in the weights and in the cache. Only two things are changed in each attention: its projections repeat every key
and value head for the query heads of its group (GroupedProjection), and the cache keeps each head once (SharedCache).
"""

import collections
import copy
import functools

import torch
import transformers
from torch import nn
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.pytorch_utils import Conv1D


class GroupedProjection(nn.Module):
    """Projects to `kv_heads` heads and repeats them, so that its output is that of the projection it replaces.

    `packing`: "separate" for keys or values alone; "concatenated" for all queries, all keys, all values; "per group"
    for the queries, the key and the value of each group, which become query, key and value of each head.
    """

    def __init__(self, stock, packing, heads, kv_heads):
        super().__init__()
        self.packing, self.heads, self.kv_heads, self.group = packing, heads, kv_heads, heads // kv_heads
        self.transposed = isinstance(stock, Conv1D)
        weight = stock.weight.detach().T if self.transposed else stock.weight.detach()
        self.head_dim = len(weight) // (heads if packing == "separate" else 3 * heads)
        width = self.head_dim * (kv_heads if packing == "separate" else heads + 2 * kv_heads)
        weight = weight[:width].T if self.transposed else weight[:width]
        self.weight = nn.Parameter(weight.clone(memory_format=torch.contiguous_format))
        self.bias = None if stock.bias is None else nn.Parameter(stock.bias.detach()[:width].clone())

    def forward(self, states):
        out = nn.functional.linear(states, self.weight.T if self.transposed else self.weight, self.bias)
        if self.packing == "separate":
            return self.repeat(out)
        if self.packing == "concatenated":
            widths = [count * self.head_dim for count in (self.heads, self.kv_heads, self.kv_heads)]
            query, key, value = out.split(widths, dim=-1)
            return torch.cat([query, self.repeat(key), self.repeat(value)], dim=-1)
        groups = out.unflatten(-1, (self.kv_heads, self.group + 2, self.head_dim))
        shared = groups[..., -2:, :].repeat_interleave(self.group, dim=-3)  # [..., heads, key and value, head_dim]
        query = groups[..., :-2, :].flatten(-3, -2).unsqueeze(-2)
        return torch.cat([query, shared], dim=-2).flatten(-3)

    def repeat(self, states):
        return states.unflatten(-1, (self.kv_heads, -1)).repeat_interleave(self.group, dim=-2).flatten(-2)


class SharedLayer:
    """One layer of a cache, as read by an attention that expects a key and a value for every query head."""

    def __init__(self, layer, group):
        self.layer, self.group = layer, group

    def __getattr__(self, name):
        found = getattr(self.layer, name)
        shared = name in ("keys", "values") and found is not None
        return found.repeat_interleave(self.group, dim=1) if shared else found


class SharedCache:
    """A cache as seen by one attention: keeps the first head of each group of equal heads, and returns all."""

    def __init__(self, cache, group):
        self.cache, self.group = cache, group

    def update(self, keys, values, *args, **kwargs):
        kept = self.cache.update(keys[:, :: self.group], values[:, :: self.group], *args, **kwargs)
        return tuple(states.repeat_interleave(self.group, dim=1) for states in kept)

    @property
    def layers(self):
        return [SharedLayer(layer, self.group) for layer in self.cache.layers]

    def __getattr__(self, name):
        return getattr(self.cache, name)


def shared(argument, group):
    """Any cache among an attention's arguments as a SharedCache."""
    if isinstance(argument, EncoderDecoderCache):
        view = copy.copy(argument)
        view.self_attention_cache = SharedCache(argument.self_attention_cache, group)
        view.cross_attention_cache = SharedCache(argument.cross_attention_cache, group)
        return view
    return SharedCache(argument, group) if isinstance(argument, Cache) else argument


def share_caches(group, attention, args, kwargs):
    return tuple(shared(arg, group) for arg in args), {name: shared(arg, group) for name, arg in kwargs.items()}


def without_repetition(attend):
    """An attention function that gets every key and value head of a grouped attention once."""

    @functools.wraps(attend)
    def attend_once(module, query, key, value, *args, **kwargs):
        group, heads = getattr(module, "kv_group", 1), query.shape[1]
        if group > 1 and any(getattr(child, "num_heads", heads) != heads for child in module.children()):
            raise ValueError("regroup's code computes all heads on one device: use no tensor parallelism")
        return attend(module, query, key[:, ::group], value[:, ::group], *args, **kwargs)

    attend_once.gets_heads_once = True
    return attend_once


def adapt_vllm():
    """vLLM replaces the attention function and the cache by its own, which have only the kv heads."""
    attend = ALL_ATTENTION_FUNCTIONS.get("vllm")
    if attend is not None and not hasattr(attend, "gets_heads_once"):
        ALL_ATTENTION_FUNCTIONS.register("vllm", without_repetition(attend))


class GroupedHeads:
    """To be inherited before a stock class. Subclasses name the class of the attention and its projections."""

    attention_class, packing, projections = None, "separate", ()
    with_slopes = None  # for ALiBi: a function (attention, args, kwargs) that uses the recorded attention.slopes

    def __init__(self, config, *args, **kwargs):
        super().__init__(config, *args, **kwargs)
        adapt_vllm()
        alibi = getattr(config, "regroup", {}).get("alibi") if self.with_slopes else None
        seen = collections.Counter()
        for name, attention in self.named_modules():
            if isinstance(attention, self.attention_class):
                role = self.role(name)
                self.group_heads(attention, of_layer(self.kv_heads(config, role), seen[role]))
                if alibi:
                    slopes = alibi["slopes"]
                    row = slopes[seen[role]] if isinstance(slopes[0], list) else slopes
                    attention.slopes = torch.tensor(row, dtype=torch.float32, device="cpu")
                    attention.register_forward_pre_hook(type(self).with_slopes, with_kwargs=True)
                seen[role] += 1

    def group_heads(self, attention, kv_heads):
        heads = self.config.num_attention_heads
        if kv_heads is None or kv_heads == heads:
            return
        for name in self.projections:
            setattr(attention, name, GroupedProjection(getattr(attention, name), self.packing, heads, kv_heads))
        attention.kv_group = heads // kv_heads
        attention.register_forward_pre_hook(functools.partial(share_caches, heads // kv_heads), with_kwargs=True)

    @staticmethod
    def role(name):
        """Which key of the config has the heads of the attention of that name: a prefix."""
        return ""

    @staticmethod
    def kv_heads(config, role):
        """A number, a list with one per layer, or None for as many as query heads."""
        return getattr(config, role + "num_key_value_heads", None)


def of_layer(value, layer):
    return value[layer] if isinstance(value, (list, tuple)) else value


def key_positions(mask):
    """The place [B, 1, 1, T] of each key among those that the last query of an additive mask sees."""
    return (mask[:, :1, -1:] > -1).cumsum(-1) - 1


def other_classes(module, base, family, alibi_config=None):
    """A module's __getattr__, which makes the classes that are not in its text, such as those of classifiers, from
    those that transformers has for the family. `alibi_config`: of those named RegroupAlibi."""

    @functools.cache
    def made(name):
        for mark, config in (("RegroupAlibi", alibi_config), ("Regroup", None)):
            stock = name.removeprefix(mark)
            if name == mark + stock and stock.startswith(family) and hasattr(transformers, stock):
                members = {"__module__": module} | ({"config_class": config} if config else {})
                return type(name, (base, getattr(transformers, stock)), members)
        raise AttributeError(f"{module} has no {name}")

    return made
