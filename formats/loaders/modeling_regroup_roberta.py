# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""RoBERTa with grouped key and value heads. Written by regroup; see regroup_heads.py."""

from transformers import (
    RobertaForMaskedLM,
    RobertaForQuestionAnswering,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
    RobertaModel,
)
from transformers.models.roberta.modeling_roberta import RobertaSelfAttention

from .regroup_heads import GroupedHeads


class GroupedRoberta(GroupedHeads):
    attention_class, packing, projections = RobertaSelfAttention, "separate", ("key", "value")


class RegroupRobertaModel(GroupedRoberta, RobertaModel):
    pass


class RegroupRobertaForMaskedLM(GroupedRoberta, RobertaForMaskedLM):
    pass


class RegroupRobertaForSequenceClassification(GroupedRoberta, RobertaForSequenceClassification):
    pass


class RegroupRobertaForTokenClassification(GroupedRoberta, RobertaForTokenClassification):
    pass


class RegroupRobertaForQuestionAnswering(GroupedRoberta, RobertaForQuestionAnswering):
    pass
