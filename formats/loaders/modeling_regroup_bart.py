# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""BART with grouped key and value heads. Written by regroup; see regroup_heads.py."""

from transformers import (
    BartForConditionalGeneration,
    BartForQuestionAnswering,
    BartForSequenceClassification,
    BartModel,
)
from transformers.models.bart.modeling_bart import BartAttention

from .regroup_heads import GroupedHeads


class GroupedBart(GroupedHeads):
    attention_class, packing, projections = BartAttention, "separate", ("k_proj", "v_proj")

    @staticmethod
    def role(name):
        if "encoder_attn" in name:
            return "cross_"
        return "encoder_" if name.removeprefix("model.").startswith("encoder.") else ""


class RegroupBartForConditionalGeneration(GroupedBart, BartForConditionalGeneration):
    pass


class RegroupBartForQuestionAnswering(GroupedBart, BartForQuestionAnswering):
    pass


class RegroupBartForSequenceClassification(GroupedBart, BartForSequenceClassification):
    pass


class RegroupBartModel(GroupedBart, BartModel):
    pass
