# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""Pegasus with grouped key and value heads. Written by regroup; see regroup_heads.py."""

from transformers import PegasusForConditionalGeneration, PegasusModel
from transformers.models.pegasus.modeling_pegasus import PegasusAttention

from .regroup_heads import GroupedHeads


class GroupedPegasus(GroupedHeads):
    attention_class, packing, projections = PegasusAttention, "separate", ("k_proj", "v_proj")

    @staticmethod
    def role(name):
        if "encoder_attn" in name:
            return "cross_"
        return "encoder_" if name.removeprefix("model.").startswith("encoder.") else ""


class RegroupPegasusForConditionalGeneration(GroupedPegasus, PegasusForConditionalGeneration):
    pass


class RegroupPegasusModel(GroupedPegasus, PegasusModel):
    pass
