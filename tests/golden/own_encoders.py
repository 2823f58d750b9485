"""Jina's BERT and MosaicBERT in plain torch: their code is on the hub and not in transformers.

Written from their published configs and descriptions. Their model_type is "bert"; AutoConfig reads their files as
BERT's, so the loading code takes own_model_of() into account. D hidden size, H heads, d head dimension, T tokens.
"""

import math

import checkpoints

import torch
from own_code import alibi_slopes, split_heads
from torch.nn import Embedding, LayerNorm, Linear, Module, ModuleList, Parameter
from torch.nn.functional import gelu, linear, relu
from transformers import BertConfig, PreTrainedModel
from transformers.modeling_outputs import MaskedLMOutput

ACTIVATIONS = {"gelu": gelu, "relu": relu, "geglu": gelu, "reglu": relu}


class JinaBertConfig(BertConfig):
    def __init__(self, **settings):
        super().__init__(**{"position_embedding_type": "alibi"} | settings)


class MosaicBertConfig(BertConfig):
    def __init__(self, **settings):
        super().__init__(**{"position_embedding_type": "absolute"} | settings)


def norm_of(config):
    return LayerNorm(config.hidden_size, eps=config.layer_norm_eps)


def attend(q, k, v):
    """Attention with ALiBi in both directions. q, k, v [B, H, T, d]; returns [B, T, H·d]."""
    places = torch.arange(q.shape[2])
    distance = (places[None, :] - places[:, None]).abs()
    slopes = alibi_slopes(q.shape[1]).to(q.dtype)[:, None, None]
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) - slopes * distance
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class Projections(Module):
    """Queries, keys and values: three maps, or with `fused` one whose rows are q | k | v."""

    def __init__(self, config, fused):
        super().__init__()
        width = config.hidden_size
        self.head_dim, self.fused = width // config.num_attention_heads, fused
        if fused:
            self.Wqkv = Linear(width, 3 * width)
        else:
            self.query, self.key, self.value = (Linear(width, width) for _ in range(3))

    def forward(self, x):
        features = self.Wqkv(x).chunk(3, -1) if self.fused else (self.query(x), self.key(x), self.value(x))
        return attend(*(split_heads(part, self.head_dim) for part in features))


class Output(Module):
    def __init__(self, config):
        super().__init__()
        self.dense, self.LayerNorm = Linear(config.hidden_size, config.hidden_size), norm_of(config)


class Attention(Module):
    def __init__(self, config, fused):
        super().__init__()
        self.self, self.output = Projections(config, fused), Output(config)

    def forward(self, x):
        return self.output.LayerNorm(x + self.output.dense(self.self(x)))


class GatedMlp(Module):
    """norm(x + wo(activation(first half) · second half)) of one map's features."""

    def __init__(self, config):
        super().__init__()
        self.gated_layers = Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.wo, self.layernorm = Linear(config.intermediate_size, config.hidden_size), norm_of(config)
        self.activation = ACTIVATIONS[getattr(config, "feed_forward_type", "geglu")]

    def forward(self, x):
        gate, up = self.gated_layers(x).chunk(2, -1)
        return self.layernorm(x + self.wo(self.activation(gate) * up))


class Layer(Module):
    def __init__(self, config, fused):
        super().__init__()
        self.attention, self.mlp = Attention(config, fused), GatedMlp(config)

    def forward(self, x):
        return self.mlp(self.attention(x))


class Embeddings(Module):
    def __init__(self, config):
        super().__init__()
        self.word_embeddings = Embedding(config.vocab_size, config.hidden_size)
        self.token_type_embeddings = Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = norm_of(config)

    def forward(self, tokens):
        return self.LayerNorm(self.word_embeddings(tokens) + self.token_type_embeddings.weight[0])


class Encoder(Module):
    def __init__(self, config, fused):
        super().__init__()
        self.layer = ModuleList(Layer(config, fused) for _ in range(config.num_hidden_layers))


class Stack(Module):
    def __init__(self, config, fused):
        super().__init__()
        self.embeddings, self.encoder = Embeddings(config), Encoder(config, fused)

    def forward(self, tokens):
        x = self.embeddings(tokens)
        for layer in self.encoder.layer:
            x = layer(x)
        return x


class Predictions(Module):
    """The output projection is the embedding; its bias is the head's own, or with `decoder` named like a map's."""

    def __init__(self, config, decoder):
        super().__init__()
        self.transform, self.activation = Output(config), ACTIVATIONS[config.hidden_act]
        bias = Parameter(torch.zeros(config.vocab_size))
        if decoder:
            self.decoder = Module()
            self.decoder.bias = bias
        else:
            self.bias = bias

    def forward(self, x, embedding):
        x = self.transform.LayerNorm(self.activation(self.transform.dense(x)))
        return linear(x, embedding, self.decoder.bias if hasattr(self, "decoder") else self.bias)


class Head(Module):
    def __init__(self, config, decoder):
        super().__init__()
        self.predictions = Predictions(config, decoder)


class OwnBert(PreTrainedModel):
    config_class, base_model_prefix, fused = BertConfig, "bert", False

    def __init__(self, config, **unused):
        super().__init__(config)
        self.bert, self.cls = Stack(config, self.fused), Head(config, self.fused)
        self.post_init()

    def forward(self, input_ids, **unused):
        return MaskedLMOutput(logits=self.cls.predictions(self.bert(input_ids), self.bert.embeddings.word_embeddings.weight))

    def _init_weights(self, module):
        pass  # the fixtures' weights are set afterwards


class JinaBertForMaskedLM(OwnBert):
    pass


class BertForMaskedLM(OwnBert):
    """MosaicBERT. Its class has the name of transformers' own."""

    fused = True


def own_model_of(config):
    """The class above that a BERT's config means, or None."""
    if config.model_type != "bert":
        return None
    if getattr(config, "alibi_starting_size", None):
        return BertForMaskedLM
    return JinaBertForMaskedLM if getattr(config, "position_embedding_type", "absolute") == "alibi" else None


checkpoints.OWN_CLASSES.append(own_model_of)
