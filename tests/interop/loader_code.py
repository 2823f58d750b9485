"""Results that carry code for transformers: it loads them with trust_remote_code, computes what regroup computes, and
caches only the kv heads. Without trust_remote_code it refuses them."""

import json
import os
import pathlib
import shutil
import tempfile

os.environ["OMP_NUM_THREADS"] = "1"  # for torch and regroup: models this small would only wait for more
modules = tempfile.TemporaryDirectory()
os.environ["HF_MODULES_CACHE"] = modules.name  # transformers copies code here

import checkpoints  # noqa: E402  (first: it skips the script if a package is missing)
import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from regroup_binary import expect, expect_same_logits, run_script  # noqa: E402

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
FUSED = dict(num_attention_heads=6, num_hidden_layers=3, hidden_size=24, vocab_size=64)

T5 = dict(vocab_size=64, d_model=24, d_kv=4, d_ff=32, num_layers=2, num_heads=6, decoder_start_token_id=0)

BART = dict(vocab_size=64, d_model=24, encoder_layers=2, decoder_layers=2, max_position_embeddings=64)
BART |= dict(encoder_attention_heads=6, decoder_attention_heads=6, encoder_ffn_dim=32, decoder_ffn_dim=32)
WHISPER = dict(
    num_mel_bins=6,
    max_source_positions=8,
    max_target_positions=64,
    decoder_start_token_id=3,
    pad_token_id=0,
    bos_token_id=0,
    eos_token_id=0,
    begin_suppress_tokens=None,
)

NEO = dict(vocab_size=64, hidden_size=24, num_layers=3, num_heads=6, max_position_embeddings=64)
NEO |= dict(attention_types=[[["global", "local", "local"], 1]], window_size=3)
XGLM = dict(vocab_size=64, d_model=24, ffn_dim=32, num_layers=2, attention_heads=6, max_position_embeddings=64)

DISTILBERT = dict(vocab_size=64, dim=24, hidden_dim=32, n_layers=2, n_heads=6, max_position_embeddings=64)
MODERNBERT = dict(intermediate_size=32, local_attention=6, pad_token_id=0, bos_token_id=1, eos_token_id=1)
MODERNBERT |= dict(cls_token_id=1, sep_token_id=1)

# Name: config, kv heads of the result (a list: per layer), and whether transformers has sdpa for it.
MODELS = {
    "gpt2": (transformers.GPT2Config(**FUSED), 2, True),
    "gpt2, layers differ": (transformers.GPT2Config(**FUSED), [1, 6, 3], True),
    "opt": (transformers.OPTConfig(**FUSED, word_embed_proj_dim=24, ffn_dim=32), 1, True),
    "gptj": (transformers.GPTJConfig(**FUSED, rotary_dim=2), 2, False),
    "gpt_neo": (transformers.GPTNeoConfig(**NEO), 2, False),
    "gpt_neo, layers differ": (transformers.GPTNeoConfig(**NEO), [1, 6, 3], False),
    "xglm": (transformers.XGLMConfig(**XGLM), 2, False),
    "gpt_neox": (transformers.GPTNeoXConfig(**FUSED, intermediate_size=32, rotary_pct=0.5), 2, True),
    "persimmon": (transformers.PersimmonConfig(**FUSED, intermediate_size=32), 2, True),
    "gpt_bigcode": (
        transformers.GPTBigCodeConfig(n_head=6, n_layer=3, n_embd=24, vocab_size=64, multi_query=False),
        [2, 1, 6],
        True,
    ),
    "bloom": (transformers.BloomConfig(**FUSED), 2, False),
    "bloom, layers differ": (transformers.BloomConfig(**FUSED), [3, 1, 6], False),
    "mpt": (transformers.MptConfig(d_model=24, n_heads=6, n_layers=3, vocab_size=64, max_seq_len=64), [2, 1, 3], False),
    "falcon": (
        transformers.FalconConfig(**FUSED, alibi=True, multi_query=False, parallel_attn=False, bias=True),
        2,
        True,
    ),
    "t5": (transformers.T5Config(**T5), 2, True),
    "mt5": (transformers.MT5Config(**T5), [1, 3], True),
    "umt5": (transformers.UMT5Config(**T5), 3, True),
    "bart": (transformers.BartConfig(**BART), 2, True),
    "bart, layers differ": (transformers.BartConfig(**BART), [1, 3], True),
    "mbart": (transformers.MBartConfig(**BART, decoder_start_token_id=4), 2, True),
    "marian": (transformers.MarianConfig(**BART, decoder_start_token_id=63, pad_token_id=63), 3, True),
    "m2m_100": (transformers.M2M100Config(**BART, encoder_layerdrop=0.0, decoder_layerdrop=0.0), [1, 3], True),
    "pegasus": (transformers.PegasusConfig(**BART), 2, True),
    "whisper": (transformers.WhisperConfig(**{key: BART[key] for key in BART if key != "max_position_embeddings"}, **WHISPER), [1, 3], True),
    "bert": (transformers.BertConfig(**FUSED, intermediate_size=32), [2, 1, 6], True),
    "roberta": (transformers.RobertaConfig(**FUSED, intermediate_size=32), 2, True),
    "xlm-roberta": (transformers.XLMRobertaConfig(**FUSED, intermediate_size=32), 3, True),
    "camembert": (transformers.CamembertConfig(**FUSED, intermediate_size=32), 2, True),
    "electra": (transformers.ElectraConfig(**FUSED, intermediate_size=32, embedding_size=16), [2, 1, 6], True),
    "distilbert": (transformers.DistilBertConfig(**DISTILBERT), [3, 1], True),
    "mpnet": (transformers.MPNetConfig(**FUSED, intermediate_size=32), [2, 1, 6], False),
    "modernbert": (transformers.ModernBertConfig(**FUSED, **MODERNBERT), [2, 1, 6], True),
}

# Families whose stock classes have one number of kv heads for all layers. With heads per layer, they need code.
DIFFERENT = [6, 1, 3]
LAYERS = dict(FUSED, num_key_value_heads=6, intermediate_size=32, pad_token_id=0, bos_token_id=1, eos_token_id=1)
EXPERTS = dict(LAYERS, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
OWN_DIM = dict(LAYERS, head_dim=4)
# Windows are longer than the sequences: transformers keeps more than a window alive in a cache.
MODELS_OF_LAYERS = {
    "llama": transformers.LlamaConfig(**LAYERS),
    "mistral": transformers.MistralConfig(**LAYERS, sliding_window=64),
    "qwen2": transformers.Qwen2Config(**LAYERS),
    "qwen3": transformers.Qwen3Config(**OWN_DIM),
    "gemma": transformers.GemmaConfig(**OWN_DIM),
    "gemma2": transformers.Gemma2Config(**OWN_DIM, query_pre_attn_scalar=4, sliding_window=64),
    "gemma3_text": transformers.Gemma3TextConfig(**OWN_DIM, query_pre_attn_scalar=4, sliding_window=64),
    "olmo": transformers.OlmoConfig(**LAYERS),
    "olmo2": transformers.Olmo2Config(**LAYERS),
    "olmo3": transformers.Olmo3Config(**LAYERS, sliding_window=64),
    "phi": transformers.PhiConfig(**LAYERS, partial_rotary_factor=0.5),
    "phi3": transformers.Phi3Config(**LAYERS),
    "cohere": transformers.CohereConfig(**LAYERS),
    "cohere2": transformers.Cohere2Config(**LAYERS, sliding_window=64),
    "granite": transformers.GraniteConfig(**LAYERS),
    "smollm3": transformers.SmolLM3Config(**LAYERS),
    "mixtral": transformers.MixtralConfig(**LAYERS, num_local_experts=4),
    "granitemoe": transformers.GraniteMoeConfig(**LAYERS, num_local_experts=4, num_experts_per_tok=2),
    "qwen2_moe": transformers.Qwen2MoeConfig(**EXPERTS, shared_expert_intermediate_size=16),
    "qwen3_moe": transformers.Qwen3MoeConfig(**EXPERTS, head_dim=4),
    "olmoe": transformers.OlmoeConfig(**LAYERS, num_experts=4, num_experts_per_tok=2),
    "stablelm": transformers.StableLmConfig(**LAYERS, partial_rotary_factor=0.5),
    "starcoder2": transformers.Starcoder2Config(**LAYERS),
    "nemotron": transformers.NemotronConfig(**LAYERS, partial_rotary_factor=0.5),
    "glm": transformers.GlmConfig(**OWN_DIM, partial_rotary_factor=0.5),
}


def of_family(name):
    return name.split(",")[0]


def load(directory, attention="eager", dtype=torch.float32):
    model = checkpoints.load(directory, attention, dtype, trusted=True)
    expect(type(model).__name__.startswith("Regroup"), f"{directory}: loaded as {type(model).__name__}")
    return model


def expect_refused(directory, what):
    """A loader that ignores auto_map must not load the directory."""
    try:
        checkpoints.load(directory)
    except Exception as refusal:  # the name, the shapes, or the list in the config
        words = ("trust_remote_code", "mismatch", "shape", "num_key_value_heads")
        expect(any(word in str(refusal) for word in words), str(refusal))
        return
    expect(False, f"{what}: transformers loads it without its code")


def generated(model, ids, mask, **options):
    options = dict(max_new_tokens=6, min_new_tokens=6, do_sample=False, use_cache=True, pad_token_id=0) | options
    return model.generate(ids, attention_mask=mask, **options)


def check_cache(cache, kv_heads, what):
    layers = len(cache.layers)
    expected = kv_heads if isinstance(kv_heads, list) else [kv_heads] * layers
    found = [layer.keys.shape[1] for layer in cache.layers]
    expect(found == expected, f"{what}: the cache has {found} heads, expected {expected}")
    for layer, heads in zip(cache.layers, expected):
        for stored in (layer.keys, layer.values):
            batch, _, positions, head_dim = stored.shape
            found = stored.untyped_storage().nbytes()  # also what a view would keep alive
            needed = batch * heads * positions * head_dim * stored.element_size()
            expect(found == needed, f"{what}: the cache holds {found} bytes for {heads} heads, expected {needed}")


def check_generation(model, kv_heads, what):
    ids = torch.tensor(2 + checkpoints.random_tokens(62, 2, 7, seed=3))
    mask = torch.ones_like(ids)
    greedy = generated(model, ids, mask, return_dict_in_generate=True)
    cache = greedy.past_key_values
    both = [cache.self_attention_cache, cache.cross_attention_cache] if model.config.is_encoder_decoder else [cache]
    for one in both:
        check_cache(one, kv_heads, what)
    plain = generated(model, ids, mask, use_cache=False)
    expect(torch.equal(greedy.sequences, plain), f"{what}: other tokens without a cache")
    beams = [generated(model, ids, mask, num_beams=3, use_cache=cached) for cached in (True, False)]
    expect(torch.equal(*beams), f"{what}: beam search finds other tokens without a cache")
    padding = torch.zeros(2, 3, dtype=torch.long)
    if model.config.is_encoder_decoder:  # on the right, where positions of the text do not change
        padded = generated(model, torch.cat([ids, padding], 1), torch.cat([mask, padding], 1))
        expect(torch.equal(padded, plain), f"{what}: other tokens with padding")
    else:
        padded = generated(model, torch.cat([padding, ids], 1), torch.cat([padding, mask], 1))
        expect(torch.equal(padded[:, 3:], plain), f"{what}: other tokens with padding")


def check_decoding(model, kv_heads, tokens, what):
    """Whisper: token by token with a cache as all at once."""
    tokens = torch.tensor(tokens)
    encoded = model.get_encoder()(checkpoints.spectra(model, len(tokens)))
    cache, steps = None, []
    with torch.no_grad():
        whole = model(encoder_outputs=encoded, decoder_input_ids=tokens, use_cache=False).logits
        for i in range(tokens.shape[1]):
            step = model(encoder_outputs=encoded, decoder_input_ids=tokens[:, i : i + 1], past_key_values=cache, use_cache=True)
            cache = step.past_key_values
            steps.append(step.logits)
    for one in (cache.self_attention_cache, cache.cross_attention_cache):
        check_cache(one, kv_heads, what)
    expect_same_logits(torch.cat(steps, 1).numpy(), whole.numpy(), f"{what}, with a cache")


def check_other_attention(model, kv_heads, tokens, ours, what):
    """vLLM replaces the attention function by its own, which gets each key and value head once."""
    seen = []

    def attend(module, query, key, value, mask, scaling=None, **options):
        seen.append(key.shape[1])
        key, value = (states.repeat_interleave(query.shape[1] // states.shape[1], dim=1) for states in (key, value))
        out = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling)
        return out.transpose(1, 2).contiguous(), None

    transformers.AttentionInterface.register("vllm", attend)
    other = checkpoints.load(model.name_or_path, trusted=True)
    other.config._attn_implementation = "vllm"
    expect_same_logits(ours, checkpoints.logits(other, tokens), f"{what}, with another attention function")
    per_layer = kv_heads if isinstance(kv_heads, list) else [kv_heads] * model.config.num_hidden_layers
    expect(seen == per_layer, f"{what}: the other attention function gets {seen} heads, expected {per_layer}")


def check_training(model, tokens, what):
    """A few steps with recomputed activations reduce the loss, and every parameter has a gradient."""
    inputs = torch.tensor(tokens)
    model.train()
    model.config.use_cache = False
    if model.supports_gradient_checkpointing:  # transformers' MPNet does not
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    torch.manual_seed(0)
    for _ in range(4):
        optimizer.zero_grad()
        loss = model(input_ids=inputs, labels=inputs).loss
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    expect(losses[-1] < losses[0], f"{what}: training changed the loss from {losses[0]:.4f} to {losses[-1]:.4f}")
    idle = [name for name, value in model.named_parameters() if value.grad is None and "k_proj" in name]
    expect(not idle, f"{what}: no gradients: {idle}")


def check_saved_again(regroup, model, result, tokens, what):
    """transformers saves model and code; regroup reads that, and transformers loads it again."""
    again = result.with_name(result.name + " saved")
    model.save_pretrained(again)
    before = checkpoints.logits(model, tokens)
    expect_same_logits(checkpoints.logits(load(again), tokens), before, f"{what}, saved again")
    if of_family(what) == "whisper":
        return
    if of_family(what) != "mpt" or hasattr(model.config.attn_config, "kv_n_heads"):
        expect_same_logits(regroup.logits(again, tokens), before, f"{what}, saved again, in regroup")


def check_model(regroup, scratch, name, grouping, model):
    config, kv_heads, has_sdpa = model
    what, options = f"{name}, {grouping}", ["--grouping", grouping]
    source, result, expanded = (scratch / f"{name} {kind} {grouping}" for kind in ("source", "result", "expanded"))
    checkpoints.save_random(config, len(name), source)
    if config.is_encoder_decoder:
        options += ["--attention", "self,cross,encoder"]
    regroup.convert(source, result, kv_heads, *options)
    stock_attention = "sdpa" if name == "falcon" else "eager"  # the stock "eager" adds Falcon's ALiBi twice
    tokens = 2 + checkpoints.random_tokens(62, 2, 12, seed=1)
    model = load(result)
    if of_family(name) == "whisper":  # regroup does not compute it, transformers does once the heads are repeated
        regroup.run("expand", result, scratch / f"{name} stock {grouping}", "--kv-heads", 6)
        ours = checkpoints.logits(checkpoints.load(scratch / f"{name} stock {grouping}"), tokens)
    else:
        ours = regroup.logits(result, tokens)
    expect_same_logits(ours, checkpoints.logits(model, tokens), what)
    expect_refused(result, what)
    regroup.run("verify", source, result)
    if has_sdpa:
        expect_same_logits(ours, checkpoints.logits(load(result, "sdpa"), tokens), f"{what}, sdpa")
    if of_family(name) == "whisper":
        check_decoding(model, kv_heads, tokens, what)
    elif of_family(name) not in checkpoints.ENCODERS:
        check_generation(model, kv_heads, what)
    if grouping == "contiguous" and of_family(name) in ("gpt2", "opt", "gpt_neox", "gpt_bigcode"):
        check_other_attention(model, kv_heads, tokens, ours, what)
    if grouping == "contiguous":
        regroup.run("expand", result, expanded, "--kv-heads", 6)
        expect("auto_map" not in json.loads((expanded / "config.json").read_text()), f"{what}: auto_map after expand")
        expect(not list(expanded.glob("*.py")), f"{what}: code after expand")
        expect_same_logits(ours, checkpoints.logits(checkpoints.load(expanded, stock_attention), tokens), f"{what}, expanded, stock")
    check_saved_again(regroup, model, result, tokens, what)
    if grouping == "contiguous":
        # Rounding may choose other experts.
        for dtype in () if "experts" in str(model.config) else (torch.bfloat16, torch.float16):
            rounded = checkpoints.logits(load(result, dtype=dtype).float(), tokens)
            expect(np.abs(rounded - ours).max() < 0.1 * np.abs(ours).max(), f"{what}: far off in {dtype}")
        if of_family(name) != "whisper":
            check_training(model, tokens, what)


def check_vllm_refused(scratch):
    """vLLM gives each layer's cache the same number of heads. check_other_attention() has registered its function."""
    try:
        load(scratch / "llama, heads per layer result contiguous")
    except ValueError as refusal:
        expect("nemotron-nas" in str(refusal), str(refusal))
        return
    expect(False, "a model with heads per layer is built for vLLM's attention")


def check_tokenizers(regroup, scratch):
    """AutoTokenizer, which reads the config by the code that the result carries, gives the ids of the source."""
    for name, config in {"llama": MODELS_OF_LAYERS["llama"], "gpt2": MODELS["gpt2"][0]}.items():
        source, result = (scratch / f"{name} with a tokenizer, {kind}" for kind in ("source", "result"))
        checkpoints.save_random(config, 1, source)
        shutil.copy(GOLDEN.parent / "docs" / "tokenizer.json", source)
        regroup.convert(source, result, DIFFERENT)
        expect("auto_map" in json.loads((result / "config.json").read_text()), f"{name}: no code")
        text = "Grüße: 12 heads, <b>3</b> kept."
        expected = transformers.AutoTokenizer.from_pretrained(source)(text).input_ids
        found = transformers.AutoTokenizer.from_pretrained(result, trust_remote_code=True)
        expect(found(text).input_ids == expected, f"{name}: other ids: {found(text).input_ids}, expected {expected}")
        expect(text in found.decode(expected), f"{name}: decoded as {found.decode(expected)}")


OTHER = ["", "SequenceClassification", "TokenClassification", "QuestionAnswering", "MultipleChoice"]
OTHER += ["NextSentencePrediction", "PreTraining", "CausalLM"]
# Classes whose tensors have names that regroup refuses.
NOT_READ = [(t5, kind) for t5 in ("t5", "mt5", "umt5") for kind in ("SequenceClassification", "TokenClassification")]
NOT_READ += [("modernbert", kind) for kind in OTHER]
NOT_READ += [(name, "QuestionAnswering") for name in ("llama", "qwen2", "qwen3", "smollm3", "qwen3_moe", "nemotron")]


def first_output(model, tokens):
    tokens, inputs = torch.tensor(tokens), {}
    if model.config.is_encoder_decoder:
        tokens[:, -1] = model.config.eos_token_id  # where BART's classifiers look
        inputs = {"decoder_input_ids": tokens} if type(model).__name__.endswith("Model") else {}
    with torch.no_grad():
        return model(input_ids=tokens[:, None] if "MultipleChoice" in type(model).__name__ else tokens, **inputs)[0].numpy()


def check_other_class(regroup, scratch, name, config, kv_heads, auto):
    """What the source's `architectures` names, such as a classifier, is loaded by its own AutoModel."""
    what = f"{name}, {auto.__name__}"
    source, result, expanded = (scratch / f"{what} {kind}" for kind in ("source", "result", "expanded"))
    stock = checkpoints.random_model(config, len(what), cls=auto)
    stock.save_pretrained(source)
    options = ["--attention", "self,cross,encoder"] if config.is_encoder_decoder else []
    regroup.convert(source, result, kv_heads, *options)
    regroup.run("expand", result, expanded, "--kv-heads", 6)
    model, info = auto.from_pretrained(result, trust_remote_code=True, output_loading_info=True)
    expect(type(model).__name__ == "Regroup" + type(stock).__name__, f"{what}: loaded as {type(model).__name__}")
    expect(not any(info.values()), f"{what}: loaded with {info}")
    tokens = 2 + checkpoints.random_tokens(62, 1, 12, seed=4)
    expected = first_output(auto.from_pretrained(expanded).eval(), tokens)
    expect_same_logits(first_output(model.eval(), tokens), expected, what)
    model.save_pretrained(again := scratch / f"{what} saved")
    saved = auto.from_pretrained(again, trust_remote_code=True).eval()
    expect_same_logits(first_output(saved, tokens), expected, f"{what}, saved again")


def check_other_classes(regroup, scratch):
    models = {name: (config, kv_heads) for name, (config, kv_heads, _) in MODELS.items() if "," not in name}
    models |= {f"{name}, heads per layer": (config, DIFFERENT) for name, config in MODELS_OF_LAYERS.items()}
    del models["whisper"]  # reads spectra
    for name, (config, kv_heads) in models.items():
        usual = checkpoints.auto_class(config)._model_mapping[type(config)]  # check_model() has it
        for kind in OTHER:
            auto = getattr(transformers, "AutoModel" + ("For" + kind if kind else ""))
            has_class = type(config) in auto._model_mapping and auto._model_mapping[type(config)] is not usual
            if has_class and (config.model_type, kind) not in NOT_READ and not (kind == "CausalLM" and config.is_encoder_decoder):
                check_other_class(regroup, scratch, name, config, kv_heads, auto)


def check_uptrained(regroup, scratch):
    """uptrain keeps the code, and converting again adds it to a result without."""
    source, plain, result, trained = (scratch / f"to train, {kind}" for kind in ("source", "plain", "result", "trained"))
    checkpoints.save_random(MODELS["gpt2"][0], 1, source)
    regroup.convert(source, plain, 2, "--loader", "none")
    expect(not list(plain.glob("*.py")), "code in spite of --loader none")
    regroup.run("convert", plain, result, "--loader", "transformers")
    data = scratch / "tokens.bin"
    checkpoints.random_tokens(64, 1, 400, seed=5).astype("<u2").tofile(data)
    options = ["--data", data, "--steps", 1, "--context", 16, "--batch", 1, "--device", "cpu", "--dtype", "fp32"]
    regroup.run("uptrain", result, "-o", trained, *options)
    tokens = checkpoints.random_tokens(64, 2, 12, seed=6)
    expect_same_logits(regroup.logits(trained, tokens), checkpoints.logits(load(trained), tokens), "uptrained")


def check(regroup, scratch):
    check_uptrained(regroup, scratch)
    check_tokenizers(regroup, scratch)
    check_other_classes(regroup, scratch)
    for name, config in MODELS_OF_LAYERS.items():
        check_model(regroup, scratch, f"{name}, heads per layer", "contiguous", (config, DIFFERENT, name != "gemma2"))
    for name, model in MODELS.items():
        for grouping in ("contiguous", "similar"):
            check_model(regroup, scratch, name, grouping, model)
    check_vllm_refused(scratch)


run_script(__doc__, check)
