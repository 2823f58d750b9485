# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""M2M100 with grouped key and value heads. Written by regroup; see regroup_heads.py."""

from transformers import M2M100ForConditionalGeneration, M2M100Model
from transformers.models.m2m_100.modeling_m2m_100 import M2M100Attention

from .regroup_heads import GroupedHeads


class GroupedM2M100(GroupedHeads):
    attention_class, packing, projections = M2M100Attention, "separate", ("k_proj", "v_proj")

    @staticmethod
    def role(name):
        if "encoder_attn" in name:
            return "cross_"
        return "encoder_" if name.removeprefix("model.").startswith("encoder.") else ""


class RegroupM2M100ForConditionalGeneration(GroupedM2M100, M2M100ForConditionalGeneration):
    pass


class RegroupM2M100Model(GroupedM2M100, M2M100Model):
    pass
