# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""BLOOM with grouped key and value heads. Written by regroup; see regroup_heads.py."""

from transformers import BloomConfig, BloomForCausalLM, BloomModel
from transformers.models.bloom.modeling_bloom import BloomAttention

from .regroup_heads import GroupedHeads, key_positions, other_classes


def with_slopes(attention, args, kwargs):
    """ALiBi with the recorded slopes, which move with their heads."""
    mask, alibi = kwargs["attention_mask"], kwargs["alibi"]
    penalties = attention.slopes.to(mask.device)[:, None, None] * key_positions(mask)
    return args, {**kwargs, "alibi": penalties.to(alibi.dtype).flatten(0, 1)}


class GroupedBloom(GroupedHeads):
    attention_class, packing, projections = BloomAttention, "per group", ("query_key_value",)
    with_slopes = with_slopes


class RegroupBloomModel(GroupedBloom, BloomModel):
    pass


class RegroupBloomForCausalLM(GroupedBloom, BloomForCausalLM):
    pass


class RegroupAlibiBloomConfig(BloomConfig):
    """For heads that have moved: with a name that stock classes, which compute slopes from a formula, refuse."""

    model_type = "regroup_alibi_bloom"


class RegroupAlibiBloomModel(RegroupBloomModel):
    config_class = RegroupAlibiBloomConfig


class RegroupAlibiBloomForCausalLM(RegroupBloomForCausalLM):
    config_class = RegroupAlibiBloomConfig


__getattr__ = other_classes(__name__, GroupedBloom, "Bloom", RegroupAlibiBloomConfig)
