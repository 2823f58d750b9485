# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""BERT with grouped key and value heads. Written by regroup; see regroup_heads.py."""

from transformers import (
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
)
from transformers.models.bert.modeling_bert import BertSelfAttention

from .regroup_heads import GroupedHeads


class GroupedBert(GroupedHeads):
    attention_class, packing, projections = BertSelfAttention, "separate", ("key", "value")


class RegroupBertModel(GroupedBert, BertModel):
    pass


class RegroupBertForMaskedLM(GroupedBert, BertForMaskedLM):
    pass


class RegroupBertForSequenceClassification(GroupedBert, BertForSequenceClassification):
    pass


class RegroupBertForTokenClassification(GroupedBert, BertForTokenClassification):
    pass


class RegroupBertForQuestionAnswering(GroupedBert, BertForQuestionAnswering):
    pass
