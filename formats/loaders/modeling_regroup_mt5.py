# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""mT5 with grouped key and value heads. Written by regroup; see regroup_heads.py."""

from transformers import MT5EncoderModel, MT5ForConditionalGeneration, MT5Model
from transformers.models.mt5.modeling_mt5 import MT5Attention

from .regroup_heads import GroupedHeads


class GroupedMT5(GroupedHeads):
    attention_class, packing, projections = MT5Attention, "separate", ("k", "v")

    @staticmethod
    def role(name):
        if "EncDecAttention" in name:
            return "cross_"
        return "encoder_" if name.startswith("encoder.") else ""


class RegroupMT5Model(GroupedMT5, MT5Model):
    pass


class RegroupMT5ForConditionalGeneration(GroupedMT5, MT5ForConditionalGeneration):
    pass


class RegroupMT5EncoderModel(GroupedMT5, MT5EncoderModel):
    pass
