# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""Falcon with grouped key and value heads, for models without new_decoder_architecture (Falcon-RW). Written by regroup;
see regroup_heads.py."""

import torch
from transformers import FalconConfig, FalconForCausalLM, FalconModel
from transformers.models.falcon.modeling_falcon import FalconAttention

from .regroup_heads import GroupedHeads, key_positions, other_classes


def with_slopes(attention, args, kwargs):
    """ALiBi with the recorded slopes, which move with their heads. The stock mask contains the stock penalties, rounded
    to bfloat16; where it masks nothing, exact ones replace them. The second sum of "eager" gets zeros."""
    mask, alibi = kwargs["attention_mask"], kwargs["alibi"]
    if alibi is None:
        return args, kwargs
    penalties = attention.slopes.to(mask.device)[:, None, None] * key_positions(mask) / attention.head_dim**0.5
    mask = torch.where(mask > -1, penalties.to(mask.dtype), mask)
    return args, {**kwargs, "attention_mask": mask, "alibi": torch.zeros_like(alibi)}


class GroupedFalcon(GroupedHeads):
    attention_class, packing, projections = FalconAttention, "per group", ("query_key_value",)
    with_slopes = with_slopes


class RegroupFalconModel(GroupedFalcon, FalconModel):
    pass


class RegroupFalconForCausalLM(GroupedFalcon, FalconForCausalLM):
    pass


class RegroupAlibiFalconConfig(FalconConfig):
    """For heads that have moved: with a name that stock classes, which compute slopes from a formula, refuse."""

    model_type = "regroup_alibi_falcon"


class RegroupAlibiFalconModel(RegroupFalconModel):
    config_class = RegroupAlibiFalconConfig


class RegroupAlibiFalconForCausalLM(RegroupFalconForCausalLM):
    config_class = RegroupAlibiFalconConfig


__getattr__ = other_classes(__name__, GroupedFalcon, "Falcon", RegroupAlibiFalconConfig)
