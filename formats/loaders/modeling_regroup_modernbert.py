# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""ModernBERT with grouped key and value heads. Written by regroup; see regroup_heads.py."""

from transformers import (
    ModernBertForMaskedLM,
    ModernBertForQuestionAnswering,
    ModernBertForSequenceClassification,
    ModernBertForTokenClassification,
    ModernBertModel,
)
from transformers.models.modernbert.modeling_modernbert import ModernBertAttention

from .regroup_heads import GroupedHeads


class GroupedModernBert(GroupedHeads):
    attention_class, packing, projections = ModernBertAttention, "concatenated", ("Wqkv",)


class RegroupModernBertModel(GroupedModernBert, ModernBertModel):
    pass


class RegroupModernBertForMaskedLM(GroupedModernBert, ModernBertForMaskedLM):
    pass


class RegroupModernBertForSequenceClassification(GroupedModernBert, ModernBertForSequenceClassification):
    pass


class RegroupModernBertForTokenClassification(GroupedModernBert, ModernBertForTokenClassification):
    pass


class RegroupModernBertForQuestionAnswering(GroupedModernBert, ModernBertForQuestionAnswering):
    pass
