# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""mBART with grouped key and value heads. Written by regroup; see regroup_heads.py."""

from transformers import (
    MBartForConditionalGeneration,
    MBartForQuestionAnswering,
    MBartForSequenceClassification,
    MBartModel,
)
from transformers.models.mbart.modeling_mbart import MBartAttention

from .regroup_heads import GroupedHeads


class GroupedMBart(GroupedHeads):
    attention_class, packing, projections = MBartAttention, "separate", ("k_proj", "v_proj")

    @staticmethod
    def role(name):
        if "encoder_attn" in name:
            return "cross_"
        return "encoder_" if name.removeprefix("model.").startswith("encoder.") else ""


class RegroupMBartForConditionalGeneration(GroupedMBart, MBartForConditionalGeneration):
    pass


class RegroupMBartForQuestionAnswering(GroupedMBart, MBartForQuestionAnswering):
    pass


class RegroupMBartForSequenceClassification(GroupedMBart, MBartForSequenceClassification):
    pass


class RegroupMBartModel(GroupedMBart, MBartModel):
    pass
