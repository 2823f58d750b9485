# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""ELECTRA with grouped key and value heads. Written by regroup; see regroup_heads.py."""

from transformers import (
    ElectraForMaskedLM,
    ElectraForQuestionAnswering,
    ElectraForSequenceClassification,
    ElectraForTokenClassification,
    ElectraModel,
)
from transformers.models.electra.modeling_electra import ElectraSelfAttention

from .regroup_heads import GroupedHeads


class GroupedElectra(GroupedHeads):
    attention_class, packing, projections = ElectraSelfAttention, "separate", ("key", "value")


class RegroupElectraModel(GroupedElectra, ElectraModel):
    pass


class RegroupElectraForMaskedLM(GroupedElectra, ElectraForMaskedLM):
    pass


class RegroupElectraForSequenceClassification(GroupedElectra, ElectraForSequenceClassification):
    pass


class RegroupElectraForTokenClassification(GroupedElectra, ElectraForTokenClassification):
    pass


class RegroupElectraForQuestionAnswering(GroupedElectra, ElectraForQuestionAnswering):
    pass
