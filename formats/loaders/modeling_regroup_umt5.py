# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""UMT5 with grouped key and value heads. Written by regroup; see regroup_heads.py."""

from transformers import UMT5EncoderModel, UMT5ForConditionalGeneration, UMT5Model
from transformers.models.umt5.modeling_umt5 import UMT5Attention

from .regroup_heads import GroupedHeads


class GroupedUMT5(GroupedHeads):
    attention_class, packing, projections = UMT5Attention, "separate", ("k", "v")

    @staticmethod
    def role(name):
        if "EncDecAttention" in name:
            return "cross_"
        return "encoder_" if name.startswith("encoder.") else ""


class RegroupUMT5Model(GroupedUMT5, UMT5Model):
    pass


class RegroupUMT5ForConditionalGeneration(GroupedUMT5, UMT5ForConditionalGeneration):
    pass


class RegroupUMT5EncoderModel(GroupedUMT5, UMT5EncoderModel):
    pass
