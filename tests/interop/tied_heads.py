"""The output projection where config and tensors disagree on whether it is the token embedding: regroup eval computes what transformers
loads. Each model is stored with a projection that differs although the config ties it, with only one of the tied names, and with
a projection and a bias of its own."""

import json
import shutil

import checkpoints  # first: it skips the script if a package is missing
import torch
from regroup_binary import TOLERANCE, expect, expect_same_logits, largest_difference, run_script
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    BartConfig,
    BertConfig,
    BioGptConfig,
    BloomConfig,
    CamembertConfig,
    CodeGenConfig,
    Cohere2Config,
    CohereConfig,
    DistilBertConfig,
    ElectraConfig,
    FalconConfig,
    Gemma2Config,
    GemmaConfig,
    GPT2Config,
    GPTBigCodeConfig,
    GPTJConfig,
    GPTNeoConfig,
    GPTNeoXConfig,
    GraniteConfig,
    LlamaConfig,
    M2M100Config,
    MarianConfig,
    MBartConfig,
    MixtralConfig,
    ModernBertConfig,
    MPNetConfig,
    MptConfig,
    MT5Config,
    NomicBertConfig,
    OlmoConfig,
    OPTConfig,
    PegasusConfig,
    PersimmonConfig,
    Phi3Config,
    PhiConfig,
    Qwen2Config,
    Qwen3Config,
    RobertaConfig,
    StableLmConfig,
    Starcoder2Config,
    T5Config,
    UMT5Config,
    XGLMConfig,
)

V = 97
LLAMA = dict(vocab_size=V, hidden_size=48, intermediate_size=40, num_hidden_layers=2, num_attention_heads=6)
LLAMA |= dict(num_key_value_heads=6, max_position_embeddings=64, pad_token_id=None, bos_token_id=1, eos_token_id=2)
BERT = dict(vocab_size=V, hidden_size=48, intermediate_size=40, num_hidden_layers=2, num_attention_heads=6)
BERT |= dict(max_position_embeddings=64)
GPT = dict(vocab_size=V, n_embd=48, n_layer=2, n_head=6, n_positions=64, bos_token_id=1, eos_token_id=2)
T5 = dict(vocab_size=V, d_model=48, d_kv=8, d_ff=40, num_layers=2, num_heads=6)
BART = dict(vocab_size=V, d_model=48, encoder_layers=2, decoder_layers=2, encoder_attention_heads=6)
BART |= dict(decoder_attention_heads=6, encoder_ffn_dim=40, decoder_ffn_dim=32, max_position_embeddings=64)
SPECIAL = dict(pad_token_id=0, bos_token_id=1, eos_token_id=1, cls_token_id=1, sep_token_id=1)

CONFIGS = {
    "Llama": LlamaConfig(**LLAMA),
    "Qwen2": Qwen2Config(**LLAMA),
    "Qwen3": Qwen3Config(**LLAMA, head_dim=8),
    "Gemma": GemmaConfig(**LLAMA, head_dim=8),
    "Gemma2": Gemma2Config(**LLAMA, head_dim=8),
    "OLMo": OlmoConfig(**LLAMA),
    "Phi": PhiConfig(**LLAMA),
    "Phi3": Phi3Config(**LLAMA),
    "Cohere": CohereConfig(**LLAMA),
    "Cohere2": Cohere2Config(**LLAMA),
    "Granite": GraniteConfig(**LLAMA),
    "Mixtral": MixtralConfig(**LLAMA),
    "StableLM": StableLmConfig(**LLAMA),
    "StarCoder2": Starcoder2Config(**LLAMA),
    "Persimmon": PersimmonConfig(**LLAMA),
    "OPT": OPTConfig(vocab_size=V, hidden_size=48, ffn_dim=40, num_hidden_layers=2, num_attention_heads=6, max_position_embeddings=64, word_embed_proj_dim=48),
    "BioGPT": BioGptConfig(**BERT),
    "XGLM": XGLMConfig(vocab_size=V, d_model=48, ffn_dim=40, num_layers=2, attention_heads=6),
    "GPT-2": GPT2Config(**GPT),
    "GPTBigCode": GPTBigCodeConfig(**GPT),
    "GPT-Neo": GPTNeoConfig(vocab_size=V, hidden_size=48, num_layers=2, num_heads=6, attention_types=[[["global"], 2]], max_position_embeddings=64),
    "GPT-NeoX": GPTNeoXConfig(**BERT),
    "GPT-J": GPTJConfig(**GPT, rotary_dim=8),
    "CodeGen": CodeGenConfig(**(GPT | dict(n_head=4)), rotary_dim=8),
    "BLOOM": BloomConfig(vocab_size=V, hidden_size=48, n_layer=2, n_head=6),
    "MPT": MptConfig(vocab_size=V, d_model=48, n_layers=2, n_heads=6, max_seq_len=64),
    "Falcon": FalconConfig(vocab_size=V, hidden_size=48, num_hidden_layers=2, num_attention_heads=6),
    "T5": T5Config(**T5),
    "mT5": MT5Config(**T5, decoder_start_token_id=5),
    "UMT5": UMT5Config(**T5),
    "BART": BartConfig(**BART),
    "mBART": MBartConfig(**BART, decoder_start_token_id=4),
    "Marian": MarianConfig(**BART, decoder_start_token_id=96, pad_token_id=96),
    "M2M100": M2M100Config(**BART),
    "Pegasus": PegasusConfig(**BART),
    "BERT": BertConfig(**BERT),
    "RoBERTa": RobertaConfig(**BERT, type_vocab_size=1),
    "CamemBERT": CamembertConfig(**BERT, type_vocab_size=1),
    "ELECTRA": ElectraConfig(**BERT, embedding_size=48),
    "DistilBERT": DistilBertConfig(vocab_size=V, dim=48, hidden_dim=40, n_layers=2, n_heads=6, max_position_embeddings=64),
    "MPNet": MPNetConfig(**BERT),
    "NomicBERT": NomicBertConfig(**BERT),
    "ModernBERT": ModernBertConfig(**BERT, **SPECIAL),
}


def store(source, target, tensors, **changes):
    """A copy of a model directory with these tensors and changes of the config."""
    shutil.copytree(source, target)
    save_file({name: value.contiguous() for name, value in tensors.items()}, target / "model.safetensors", {"format": "pt"})
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | changes))
    return target


def compare(regroup, directory, tokens, name, load=checkpoints.load):
    """Returns the logits; both must agree."""
    theirs = checkpoints.logits(load(directory), tokens)
    expect_same_logits(regroup.logits(directory, tokens), theirs, name)
    return theirs


def names_of(model):
    """Names of the tied pair in the file, and the bias of the output projection and what it is tied to, or None."""
    model.config.tie_word_embeddings = True
    ties = model.get_expanded_tied_weights_keys(all_submodels=True)
    output = next(name for name, module in model.named_modules() if module is model.get_output_embeddings())
    return output, ties[output + ".weight"], ties.get(output + ".bias")


def check_model(regroup, scratch, name, config, tokens):
    config.tie_word_embeddings = True
    model = checkpoints.random_model(config, 3, 0.2)
    output, embedding, bias = names_of(model)
    stored_output = "embed_out" if name == "GPT-NeoX" else output
    plain = scratch / name
    model.save_pretrained(plain)
    tensors = load_file(plain / "model.safetensors")
    expect(embedding in tensors, f"{name}: {embedding} is not stored")
    noise = torch.randn(tensors[embedding].shape, generator=torch.Generator().manual_seed(4)) * 0.2
    before = compare(regroup, plain, tokens, name)

    said = dict(tie_word_embeddings=True)
    own = store(plain, scratch / f"{name} own", tensors | {stored_output + ".weight": noise}, **said)
    moved = largest_difference(compare(regroup, own, tokens, f"{name}, a projection of its own"), before)
    expect(moved > 100 * TOLERANCE, f"{name}: the projection moved the logits by {moved:.3g} only")
    told = regroup.inspect(own)["disagreements"]
    said_so = any(stored_output in line for line in told)
    expect(said_so or name in ("mT5", "UMT5"), f"{name}: inspect says {told}")  # transformers saves all these as tied
    expect(regroup.inspect(plain)["disagreements"] == [], f"{name}: {regroup.inspect(plain)['disagreements']}")

    renamed = {stored_output + ".weight" if key == embedding else key: value for key, value in tensors.items()}
    alias = store(plain, scratch / f"{name} alias", renamed, **said)
    expect(largest_difference(compare(regroup, alias, tokens, f"{name}, the other name"), before) == 0, f"{name}: alias")
    both = store(plain, scratch / f"{name} both", tensors | {stored_output + ".weight": tensors[embedding].clone()}, **said)
    compare(regroup, both, tokens, f"{name}, both names")
    if bias is not None:
        check_bias(regroup, scratch, name, plain, tensors, noise, output, bias, tokens)


def check_bias(regroup, scratch, name, plain, tensors, noise, output, bias, tokens):
    """A bias under two names: tied and different, and of an untied projection."""
    other = {output + ".bias": tensors[bias].roll(1) + 0.5}
    compare(regroup, store(plain, scratch / f"{name} bias", tensors | other), tokens, f"{name}, two biases")
    untied, said = {output + ".weight": noise}, dict(tie_word_embeddings=False)
    compare(regroup, store(plain, scratch / f"{name} untied", tensors | untied | other, **said), tokens, f"{name}, untied")
    lost = store(plain, scratch / f"{name} lost", tensors | untied, **said)
    incomplete = checkpoints.auto_class(AutoConfig.from_pretrained(lost)).from_pretrained
    compare(regroup, lost, tokens, f"{name}, untied without a bias", lambda path: incomplete(path).eval())
    told = regroup.inspect(lost)["disagreements"]
    expect(any(bias in line for line in told), f"{name}: inspect says {told}")


def check(regroup, scratch):
    tokens = 2 + checkpoints.random_tokens(V - 2, windows=2, context=30, seed=1)
    for name, config in CONFIGS.items():
        check_model(regroup, scratch, name, config, tokens)
    # Whatever the config says, transformers ties T5's projection unless it is stored.
    for name in ("T5", "mT5"):
        tensors = load_file(scratch / name / "model.safetensors")
        said = store(scratch / name, scratch / f"{name} said", tensors, tie_word_embeddings=False)
        compare(regroup, said, tokens, f"{name}, tie_word_embeddings = false")


run_script(__doc__, check)
