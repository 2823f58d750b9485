# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""CamemBERT with grouped key and value heads. Written by regroup; see regroup_heads.py."""

from transformers import (
    CamembertForMaskedLM,
    CamembertForQuestionAnswering,
    CamembertForSequenceClassification,
    CamembertForTokenClassification,
    CamembertModel,
)
from transformers.models.camembert.modeling_camembert import CamembertSelfAttention

from .regroup_heads import GroupedHeads


class GroupedCamembert(GroupedHeads):
    attention_class, packing, projections = CamembertSelfAttention, "separate", ("key", "value")


class RegroupCamembertModel(GroupedCamembert, CamembertModel):
    pass


class RegroupCamembertForMaskedLM(GroupedCamembert, CamembertForMaskedLM):
    pass


class RegroupCamembertForSequenceClassification(GroupedCamembert, CamembertForSequenceClassification):
    pass


class RegroupCamembertForTokenClassification(GroupedCamembert, CamembertForTokenClassification):
    pass


class RegroupCamembertForQuestionAnswering(GroupedCamembert, CamembertForQuestionAnswering):
    pass
