# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""T5 with grouped key and value heads. Written by regroup; see regroup_heads.py."""

from transformers import T5EncoderModel, T5ForConditionalGeneration, T5Model
from transformers.models.t5.modeling_t5 import T5Attention

from .regroup_heads import GroupedHeads


class GroupedT5(GroupedHeads):
    attention_class, packing, projections = T5Attention, "separate", ("k", "v")

    @staticmethod
    def role(name):
        if "EncDecAttention" in name:
            return "cross_"
        return "encoder_" if name.startswith("encoder.") else ""


class RegroupT5Model(GroupedT5, T5Model):
    pass


class RegroupT5ForConditionalGeneration(GroupedT5, T5ForConditionalGeneration):
    pass


class RegroupT5EncoderModel(GroupedT5, T5EncoderModel):
    pass
