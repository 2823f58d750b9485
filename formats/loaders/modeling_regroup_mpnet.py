# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""MPNet with grouped key and value heads. Written by regroup; see regroup_heads.py."""

from transformers import (
    MPNetForMaskedLM,
    MPNetForQuestionAnswering,
    MPNetForSequenceClassification,
    MPNetForTokenClassification,
    MPNetModel,
)
from transformers.models.mpnet.modeling_mpnet import MPNetSelfAttention

from .regroup_heads import GroupedHeads


class GroupedMPNet(GroupedHeads):
    attention_class, packing, projections = MPNetSelfAttention, "separate", ("k", "v")


class RegroupMPNetModel(GroupedMPNet, MPNetModel):
    pass


class RegroupMPNetForMaskedLM(GroupedMPNet, MPNetForMaskedLM):
    pass


class RegroupMPNetForSequenceClassification(GroupedMPNet, MPNetForSequenceClassification):
    pass


class RegroupMPNetForTokenClassification(GroupedMPNet, MPNetForTokenClassification):
    pass


class RegroupMPNetForQuestionAnswering(GroupedMPNet, MPNetForQuestionAnswering):
    pass
