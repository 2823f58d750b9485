"""Cases of the families with an encoder: T5 and its relatives, BERT and RoBERTa."""

import torch
from case import Case, without
from transformers import BertConfig, CamembertConfig, DistilBertConfig, ElectraConfig, MT5Config, RobertaConfig, T5Config
from transformers import UMT5Config, XLMRobertaConfig

# 12 heads: pooled to 4 and 3, so that H/G differs from G.
T5 = dict(vocab_size=40, d_model=20, d_kv=3, d_ff=24, num_layers=2, num_heads=12, layer_norm_epsilon=0.02)
BUCKETS = dict(relative_attention_num_buckets=8, relative_attention_max_distance=12)
BERT = dict(vocab_size=40, hidden_size=24, num_hidden_layers=2, num_attention_heads=12, intermediate_size=20)

# The bias of the keys adds the same to all scores of a query.
IDLE = ("key.bias",)


def as_first_seen(config):
    """Like Google's files: only feed_forward_proj gives the activation, and v1.1 is not tied."""
    made = ("dense_act_fn", "is_gated_act", "scale_decoder_outputs", "num_decoder_layers")
    scaled = config.get("scale_decoder_outputs", True)
    return without(*made)(config) | {"tie_word_embeddings": scaled, "decoder_start_token_id": 0}


def with_copies(tensors):
    """Like the first T5's files: every copy of the embedding, and a cross-attention bias that is not used."""
    bias = tensors["decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
    copies = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
    unused = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    return tensors | {name: tensors["shared.weight"] for name in copies} | {unused: bias}


def as_from_tensorflow(tensors):
    """Like bert-base-uncased: gamma and beta, and copies of the tied weight and of its bias."""
    old = {}
    for name, stored in tensors.items():
        if "LayerNorm" in name:
            name = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        old[name] = stored
    copies = {"weight": "bert.embeddings.word_embeddings.weight", "bias": "cls.predictions.bias"}
    return old | {f"cls.predictions.decoder.{part}": tensors[name] for part, name in copies.items()}


CASES = {
    "t5": Case(
        T5Config(**T5, **BUCKETS, num_decoder_layers=3),
        spread=0.25,
        context=61,  # 30 for the encoder and 31 for the decoder: distances beyond the last bucket
        expand=(4, 3),
        controls=(
            {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 40},
            {"layer_norm_epsilon": 1e-6},
            {"scale_decoder_outputs": False},
            {"dense_act_fn": "gelu_new"},
        ),
    ),
    "t5_small": Case(T5Config(**T5), spread=0.25, rewrite=as_first_seen, retensor=with_copies),
    "t5_v1_1": Case(
        T5Config(**T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
        untie=True,
        std=0.2,
        rewrite=as_first_seen,
        expand=(4,),
        controls=({"feed_forward_proj": "gated-silu"}, {"tie_word_embeddings": True}, {"decoder_start_token_id": 3}),
    ),
    "t5_v1_1_saved_again": Case(
        T5Config(**T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False), untie=True, std=0.2
    ),
    "mt5": Case(MT5Config(**T5, decoder_start_token_id=2), untie=True, std=0.2, dtype=torch.bfloat16, expand=(3,)),
    "umt5": Case(
        UMT5Config(**T5 | BUCKETS, tie_word_embeddings=True),
        spread=0.25,
        context=43,
        expand=(3,),
        controls=({"relative_attention_max_distance": 40},),
    ),
    "bert": Case(
        BertConfig(**BERT, max_position_embeddings=16, layer_norm_eps=0.02),
        expand=(4, 3),
        controls=({"hidden_act": "relu"}, {"layer_norm_eps": 1e-12}),
        idle=IDLE,
    ),
    "bert_base": Case(
        BertConfig(**BERT, max_position_embeddings=16, layer_norm_eps=0.02), retensor=as_from_tensorflow, idle=IDLE
    ),
    "roberta": Case(
        RobertaConfig(**BERT, max_position_embeddings=18, layer_norm_eps=0.02, type_vocab_size=1),
        lowest=2,  # no padding tokens, which do not count as positions
        expand=(4,),
        controls=({"pad_token_id": 0}, {"layer_norm_eps": 1e-12}),
        idle=IDLE,
    ),
    "xlm_roberta": Case(
        XLMRobertaConfig(**BERT, max_position_embeddings=18, layer_norm_eps=0.02, type_vocab_size=1),
        lowest=2,
        expand=(4,),
        controls=({"pad_token_id": 0}, {"layer_norm_eps": 1e-12}),
        idle=IDLE,
    ),
    "camembert": Case(
        CamembertConfig(**BERT, max_position_embeddings=18, layer_norm_eps=0.02, type_vocab_size=1),
        lowest=2,
        expand=(4,),
        controls=({"pad_token_id": 0}, {"layer_norm_eps": 1e-12}),
        idle=IDLE,
    ),
    "electra": Case(
        ElectraConfig(**BERT, embedding_size=24, max_position_embeddings=16, layer_norm_eps=0.02, hidden_act="relu"),
        expand=(4,),
        controls=({"hidden_act": "gelu"}, {"layer_norm_eps": 1e-12}),
        idle=IDLE,
    ),
    "distilbert": Case(
        DistilBertConfig(
            vocab_size=40, dim=24, n_layers=2, n_heads=12, hidden_dim=20, max_position_embeddings=16, activation="relu"
        ),
        expand=(4, 3),
        controls=({"activation": "gelu"},),
        idle=("k_lin.bias",),
    ),
}
