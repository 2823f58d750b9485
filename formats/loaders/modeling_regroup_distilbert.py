# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""DistilBERT with grouped key and value heads. Written by regroup; see regroup_heads.py."""

from transformers import (
    DistilBertForMaskedLM,
    DistilBertForQuestionAnswering,
    DistilBertForSequenceClassification,
    DistilBertForTokenClassification,
    DistilBertModel,
)
from transformers.models.distilbert.modeling_distilbert import DistilBertSelfAttention

from .regroup_heads import GroupedHeads


class GroupedDistilBert(GroupedHeads):
    attention_class, packing, projections = DistilBertSelfAttention, "separate", ("k_lin", "v_lin")


class RegroupDistilBertModel(GroupedDistilBert, DistilBertModel):
    pass


class RegroupDistilBertForMaskedLM(GroupedDistilBert, DistilBertForMaskedLM):
    pass


class RegroupDistilBertForSequenceClassification(GroupedDistilBert, DistilBertForSequenceClassification):
    pass


class RegroupDistilBertForTokenClassification(GroupedDistilBert, DistilBertForTokenClassification):
    pass


class RegroupDistilBertForQuestionAnswering(GroupedDistilBert, DistilBertForQuestionAnswering):
    pass
