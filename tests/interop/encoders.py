"""T5, BART, BERT and their relatives: regroup eval computes the same as transformers, for models from transformers, for grouped models (with
repeated heads in transformers), and with ALiBi (with ALiBi's penalties as learned biases in transformers)."""

import json

import checkpoints  # first: it skips the script if a package is missing
import numpy as np
import torch
from regroup_binary import TOLERANCE, expect, expect_same_logits, largest_difference, run_script
from transformers import (
    BartConfig,
    BertConfig,
    CamembertConfig,
    DistilBertConfig,
    ElectraConfig,
    M2M100Config,
    MarianConfig,
    MBartConfig,
    ModernBertConfig,
    MPNetConfig,
    MT5Config,
    NomicBertConfig,
    PegasusConfig,
    RobertaConfig,
    T5Config,
    UMT5Config,
    XLMRobertaConfig,
)

T5 = dict(vocab_size=97, d_model=40, d_kv=6, d_ff=48, num_layers=3, num_heads=12, num_decoder_layers=2)
BERT = dict(vocab_size=97, hidden_size=48, intermediate_size=40, num_hidden_layers=3, num_attention_heads=12)
BART = dict(vocab_size=97, d_model=48, encoder_layers=3, decoder_layers=2, encoder_attention_heads=12)
BART |= dict(decoder_attention_heads=12, encoder_ffn_dim=40, decoder_ffn_dim=32, max_position_embeddings=160)
MODELS = {
    "T5": T5Config(**T5, relative_attention_num_buckets=16, relative_attention_max_distance=40),
    "T5 v1.1": T5Config(**T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    "mT5": MT5Config(**T5, decoder_start_token_id=5),
    "UMT5": UMT5Config(**T5, relative_attention_num_buckets=16, relative_attention_max_distance=40),
    "BART": BartConfig(**BART),
    "mBART": MBartConfig(**BART, scale_embedding=True, decoder_start_token_id=4),
    "Marian": MarianConfig(**BART, activation_function="swish", decoder_start_token_id=96, pad_token_id=96),
    "M2M100": M2M100Config(**BART),
    "Pegasus": PegasusConfig(**BART, activation_function="relu", scale_embedding=True),
    "BERT": BertConfig(**BERT, max_position_embeddings=160),
    "RoBERTa": RobertaConfig(**BERT, max_position_embeddings=160, type_vocab_size=1),
    "XLM-RoBERTa": XLMRobertaConfig(**BERT, max_position_embeddings=160, type_vocab_size=1),
    "CamemBERT": CamembertConfig(**BERT, max_position_embeddings=160, type_vocab_size=1),
    "ELECTRA": ElectraConfig(**BERT, embedding_size=48, max_position_embeddings=160),
    "DistilBERT": DistilBertConfig(
        vocab_size=97, dim=48, hidden_dim=40, n_layers=3, n_heads=12, max_position_embeddings=160
    ),
}


SPECIAL = dict(pad_token_id=0, bos_token_id=1, eos_token_id=1, cls_token_id=1, sep_token_id=1)
MODELS |= {
    "small ELECTRA": ElectraConfig(**BERT, embedding_size=20, max_position_embeddings=160),
    "ModernBERT": ModernBertConfig(**BERT, **SPECIAL, local_attention=18, max_position_embeddings=160),
    "NomicBERT": NomicBertConfig(**BERT, max_position_embeddings=160),
    "MPNet": MPNetConfig(**BERT, max_position_embeddings=160),
}

# 64 buckets: one for each distance up to 15, in both directions.
BUCKETS = dict(relative_attention_num_buckets=64, relative_attention_max_distance=128)
ALL_ROLES = ("--attention", "self,cross,encoder")


def first_attention(model):
    if model.config.is_encoder_decoder:
        decoder = model.get_decoder()
        return decoder.block[0].layer[1].EncDecAttention.v if hasattr(decoder, "block") else decoder.layers[0].encoder_attn.v_proj
    if model.config.model_type == "distilbert":
        return model.base_model.transformer.layer[0].attention.v_lin
    if model.config.model_type in ("modernbert", "nomic_bert"):
        attention = model.base_model.layers[0]
        return attention.attn.Wqkv if hasattr(attention, "attn") else attention.self_attn.v_proj
    attention = model.base_model.encoder.layer[0].attention
    return attention.attn.v if model.config.model_type == "mpnet" else attention.self.value


def check_model(regroup, source, tokens, name):
    model = checkpoints.load(source)
    ours = regroup.logits(source, tokens)
    expect_same_logits(ours, checkpoints.logits(model, tokens), name)
    rows = first_attention(model).weight.data  # the negative control: swaps heads of the values
    rows.copy_(rows.roll(len(rows) // 12, dims=0))
    broken = largest_difference(ours, checkpoints.logits(model, tokens))
    expect(broken > 100 * TOLERANCE, f"{name}: swapping value heads moved the logits by {broken:.3g} only")


def check_grouped(regroup, source, tokens, name, grouping):
    """Groups every role, stores heads repeatedly, and loads the result with transformers' own classes."""
    grouped, expanded = (source.with_name(f"{name} {kind} {grouping}") for kind in ("grouped", "expanded"))
    regroup.convert(source, grouped, 4, *ALL_ROLES, "--grouping", grouping)
    regroup.run("verify", source, grouped)
    regroup.run("convert", grouped, expanded, "--target", "expanded")
    moved = json.loads((grouped / "config.json").read_text())["regroup"]["query_order"] is not None
    expect(moved == (grouping == "similar"), f"{name}, {grouping}: heads moved: {moved}")
    theirs = checkpoints.logits(checkpoints.load(expanded), tokens)
    expect_same_logits(regroup.logits(grouped, tokens), theirs, f"{name}, 4 kv heads in every role, {grouping}")
    before = largest_difference(regroup.logits(source, tokens), theirs)
    expect(before > 100 * TOLERANCE, f"{name}: grouping moved the logits by {before:.3g} only")


def recorded_slopes(directory, key):
    return np.array(json.loads((directory / "config.json").read_text())["regroup"]["alibi"][key])


def fill_tables(stack, slopes, both_sides):
    """Sets every table of a T5 to the penalty of the single distance in each bucket."""
    for block in stack.block:
        attention = block.layer[0].SelfAttention
        if attention.has_relative_attention_bias:
            table = attention.relative_attention_bias.weight.data
            for distance in range(16):
                penalty = torch.tensor(-slopes * distance, dtype=table.dtype)
                table[distance] = penalty
                if both_sides:
                    table[32 + distance] = penalty


def check_alibi(regroup, scratch):
    tokens = 2 + checkpoints.random_tokens(95, windows=2, context=30, seed=2)
    configs = {"T5": T5Config(**T5, **BUCKETS), "UMT5": UMT5Config(**T5, **BUCKETS)}
    for seed, (name, config) in enumerate(configs.items()):
        source, alibi = scratch / f"{name} for ALiBi", scratch / f"{name} ALiBi"
        model = checkpoints.random_model(config, seed, 0.2)
        model.save_pretrained(source)
        regroup.run("convert", source, alibi, "--positions", "alibi")
        ours = regroup.logits(alibi, tokens)
        before = largest_difference(ours, checkpoints.logits(model, tokens))
        expect(before > 100 * TOLERANCE, f"{name}: ALiBi moved the logits by {before:.3g} only")
        fill_tables(model.encoder, recorded_slopes(alibi, "encoder_slopes"), both_sides=True)
        fill_tables(model.decoder, recorded_slopes(alibi, "slopes"), both_sides=False)
        expect_same_logits(ours, checkpoints.logits(model, tokens), f"{name} with ALiBi")


def check_alibi_of_bert(regroup, scratch):
    """Compares with a mask of the penalties and position embeddings of zero."""
    tokens = 2 + checkpoints.random_tokens(95, windows=2, context=40, seed=3)
    for name in ("BERT", "RoBERTa"):
        source, alibi = scratch / f"{name} for ALiBi", scratch / f"{name} ALiBi"
        model = checkpoints.random_model(MODELS[name], 5, 0.2)
        model.save_pretrained(source)
        regroup.run("convert", source, alibi, "--positions", "alibi")
        model.base_model.embeddings.position_embeddings.weight.data.zero_()
        distance = np.abs(np.subtract.outer(np.arange(40), np.arange(40)))
        penalty = -recorded_slopes(alibi, "slopes")[None, :, None, None] * distance
        mask = torch.tensor(penalty, dtype=torch.float32).expand(2, -1, -1, -1)
        with torch.no_grad():
            masked, plain = (
                model(input_ids=torch.tensor(tokens), attention_mask=attention_mask).logits.numpy()
                for attention_mask in (mask, None)
            )
        ours = regroup.logits(alibi, tokens)
        expect_same_logits(ours, masked, f"{name} with ALiBi")
        without = largest_difference(ours, plain)
        expect(without > 100 * TOLERANCE, f"{name}: ALiBi moved the logits by {without:.3g} only")


def check(regroup, scratch):
    # Long enough for the farthest buckets. No padding, which RoBERTa's positions would not count.
    tokens = 2 + checkpoints.random_tokens(95, windows=2, context=131, seed=1)
    for seed, (name, config) in enumerate(MODELS.items()):
        model = checkpoints.random_model(config, seed, 0.2, untie=name in ("T5 v1.1", "mT5"))
        source = scratch / name
        model.to(torch.bfloat16 if name == "mT5" else torch.float32).save_pretrained(source)
        check_model(regroup, source, tokens, name)
        for grouping in ("contiguous", "similar"):
            check_grouped(regroup, source, tokens, name, grouping)
    check_alibi(regroup, scratch)
    check_alibi_of_bert(regroup, scratch)


run_script(__doc__, check)
