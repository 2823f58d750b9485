"""Cases of the encoders with RoPE, ALiBi, windows or projected embeddings."""

import torch
from case import Case, rope, without
from families_encoder import BERT, IDLE
from own_encoders import JinaBertConfig, MosaicBertConfig
from transformers import ElectraConfig, ModernBertConfig, MPNetConfig, NomicBertConfig

TOKENS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2)


def modernbert(**settings):
    return ModernBertConfig(**BERT | TOKENS | dict(num_attention_heads=6, num_hidden_layers=4, max_position_embeddings=16) | settings)


def as_first_modernbert(config):
    """Like the hub's: keys of transformers 4."""
    ropes = config.pop("rope_parameters")
    config = without("layer_types", "dtype")(config) | {"torch_dtype": "bfloat16", "global_attn_every_n_layers": 2}
    thetas = {f"{new}_rope_theta": ropes[old]["rope_theta"] for new, old in KINDS.items()}
    return dict(sorted((config | thetas).items()))


KINDS = {"global": "full_attention", "local": "sliding_attention"}


def ropes(whole, local):
    return {"full_attention": rope(whole), "sliding_attention": rope(local)}


ALTERNATING = ["full_attention", "sliding_attention"] * 2

CASES = {
    "modernbert": Case(
        modernbert(local_attention=6, norm_eps=0.02, rope_parameters=ropes(300.0, 40.0)),
        lowest=3,
        expand=(3, 2),
        controls=(
            {"local_attention": 4},
            {"local_attention": 8},
            {"layer_types": ["full_attention"] * 4},
            {"rope_parameters": ropes(300.0, 300.0)},
            {"rope_parameters": ropes(40.0, 40.0)},
            {"hidden_activation": "silu"},
            {"classifier_activation": "relu"},
            {"norm_eps": 1e-5},
        ),
    ),
    "modernbert_biases": Case(
        modernbert(
            layer_types=ALTERNATING,
            local_attention=5,
            attention_bias=True,
            mlp_bias=True,
            norm_bias=True,
            classifier_bias=True,
            rope_parameters=ropes(300.0, 40.0),
        ),
        dtype=torch.bfloat16,
        rewrite=as_first_modernbert,
        lowest=3,
        expand=(2,),
        controls=({"global_attn_every_n_layers": 3}, {"local_rope_theta": 300.0}),
    ),
    "nomic_bert": Case(
        NomicBertConfig(**BERT | dict(num_attention_heads=6), max_position_embeddings=16, layer_norm_eps=0.02),
        lowest=1,
        expand=(3, 2),
        controls=({"rope_parameters": rope(20.0)}, {"hidden_act": "gelu"}, {"layer_norm_eps": 1e-12}),
    ),
    "mpnet": Case(
        MPNetConfig(**BERT, max_position_embeddings=64, layer_norm_eps=0.02, hidden_act="relu"),
        context=41,
        lowest=2,
        expand=(4, 3),
        controls=({"hidden_act": "gelu"}, {"layer_norm_eps": 1e-12}),
        idle=("attn.k.bias",),
    ),
    "electra_small": Case(
        ElectraConfig(**BERT, embedding_size=16, max_position_embeddings=16, layer_norm_eps=0.02),
        expand=(4, 3),
        controls=({"hidden_act": "relu"}, {"layer_norm_eps": 1e-12}),
        idle=IDLE,
    ),
    "jina_bert": Case(
        JinaBertConfig(**BERT, max_position_embeddings=16, layer_norm_eps=0.02, feed_forward_type="geglu"),
        expand=(4, 3),
        controls=({"feed_forward_type": "reglu"}, {"layer_norm_eps": 1e-12}, {"hidden_act": "relu"}),
        idle=IDLE,
    ),
    "mosaic_bert": Case(
        MosaicBertConfig(**BERT, max_position_embeddings=16, layer_norm_eps=0.02, alibi_starting_size=16),
        dtype=torch.bfloat16,
        expand=(4, 3),
        controls=({"layer_norm_eps": 1e-12}, {"hidden_act": "relu"}),
        inert=({"alibi_starting_size": 32}, {"position_embedding_type": "relative_key"}),
    ),
}
