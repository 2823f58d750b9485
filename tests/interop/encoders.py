"""T5 and BERT: regroup eval computes from a model that transformers made what transformers computes."""

import checkpoints  # first: it skips the script where a package is missing
import torch
from regroup_binary import TOLERANCE, expect, expect_same_logits, largest_difference, run_script
from transformers import BertConfig, MT5Config, RobertaConfig, T5Config, UMT5Config

T5 = dict(vocab_size=97, d_model=40, d_kv=6, d_ff=48, num_layers=3, num_heads=12, num_decoder_layers=2)
BERT = dict(vocab_size=97, hidden_size=48, intermediate_size=40, num_hidden_layers=3, num_attention_heads=12)
MODELS = {
    "T5": T5Config(**T5, relative_attention_num_buckets=16, relative_attention_max_distance=40),
    "T5 v1.1": T5Config(**T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    "mT5": MT5Config(**T5, decoder_start_token_id=5),
    "UMT5": UMT5Config(**T5, relative_attention_num_buckets=16, relative_attention_max_distance=40),
    "BERT": BertConfig(**BERT, max_position_embeddings=160),
    "RoBERTa": RobertaConfig(**BERT, max_position_embeddings=160, type_vocab_size=1),
}


def first_attention(model):
    if model.config.is_encoder_decoder:
        return model.decoder.block[0].layer[1].EncDecAttention.v
    return model.base_model.encoder.layer[0].attention.self.value


def check_model(regroup, source, tokens, name):
    model = checkpoints.load(source)
    ours = regroup.logits(source, tokens)
    expect_same_logits(ours, checkpoints.logits(model, tokens), name)
    rows = first_attention(model).weight.data  # the negative control: the values' heads change places
    rows.copy_(rows.roll(len(rows) // 12, dims=0))
    broken = largest_difference(ours, checkpoints.logits(model, tokens))
    expect(broken > 100 * TOLERANCE, f"{name}: swapping value heads moved the logits by {broken:.3g} only")


def check(regroup, scratch):
    # Long enough for the farthest buckets; no padding, which RoBERTa's positions would not count.
    tokens = 2 + checkpoints.random_tokens(95, windows=2, context=131, seed=1)
    for seed, (name, config) in enumerate(MODELS.items()):
        model = checkpoints.random_model(config, seed, 0.2, untie=name in ("T5 v1.1", "mT5"))
        source = scratch / name
        model.to(torch.bfloat16 if name == "mT5" else torch.float32).save_pretrained(source)
        check_model(regroup, source, tokens, name)


run_script(__doc__, check)
