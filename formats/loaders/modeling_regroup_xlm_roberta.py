# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""XLM-RoBERTa with grouped key and value heads. Written by regroup; see regroup_heads.py."""

from transformers import (
    XLMRobertaForMaskedLM,
    XLMRobertaForQuestionAnswering,
    XLMRobertaForSequenceClassification,
    XLMRobertaForTokenClassification,
    XLMRobertaModel,
)
from transformers.models.xlm_roberta.modeling_xlm_roberta import XLMRobertaSelfAttention

from .regroup_heads import GroupedHeads


class GroupedXLMRoberta(GroupedHeads):
    attention_class, packing, projections = XLMRobertaSelfAttention, "separate", ("key", "value")


class RegroupXLMRobertaModel(GroupedXLMRoberta, XLMRobertaModel):
    pass


class RegroupXLMRobertaForMaskedLM(GroupedXLMRoberta, XLMRobertaForMaskedLM):
    pass


class RegroupXLMRobertaForSequenceClassification(GroupedXLMRoberta, XLMRobertaForSequenceClassification):
    pass


class RegroupXLMRobertaForTokenClassification(GroupedXLMRoberta, XLMRobertaForTokenClassification):
    pass


class RegroupXLMRobertaForQuestionAnswering(GroupedXLMRoberta, XLMRobertaForQuestionAnswering):
    pass
