# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""Marian with grouped key and value heads. Written by regroup; see regroup_heads.py."""

from transformers import MarianModel, MarianMTModel
from transformers.models.marian.modeling_marian import MarianAttention

from .regroup_heads import GroupedHeads


class GroupedMarian(GroupedHeads):
    attention_class, packing, projections = MarianAttention, "separate", ("k_proj", "v_proj")

    @staticmethod
    def role(name):
        if "encoder_attn" in name:
            return "cross_"
        return "encoder_" if name.removeprefix("model.").startswith("encoder.") else ""


class RegroupMarianModel(GroupedMarian, MarianModel):
    pass


class RegroupMarianMTModel(GroupedMarian, MarianMTModel):
    pass
