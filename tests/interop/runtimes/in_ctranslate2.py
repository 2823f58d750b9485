"""Cases in CTranslate2, through its converter for transformers. It does not tell the size of its cache."""

import json
import pathlib
import tempfile

import adapter  # first: it sets the environment
import ctranslate2
import numpy as np
from ctranslate2.converters import TransformersConverter


def add_tokenizer(directory):
    """The converter needs a tokenizer: one in which token i is "ti"."""
    vocabulary = {f"t{i}": i for i in range(json.loads((directory / "config.json").read_text())["vocab_size"])}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "t3"}
    parts = {key: None for key in ("truncation", "padding", "normalizer", "post_processor", "decoder")}
    text = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": model} | parts
    (directory / "tokenizer.json").write_text(json.dumps(text))


def add_special_tokens(directory):
    """The converter needs their names: the first token serves as all of them, since none is generated here."""
    vocabulary = json.loads((directory / "tokenizer.json").read_text())["model"]["vocab"]
    first = min(vocabulary, key=vocabulary.get)
    names = {kind: first for kind in ("bos_token", "eos_token", "unk_token", "pad_token")}
    (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"} | names))


def converted(model, scratch):
    """A directory of CTranslate2's format."""
    source = pathlib.Path(scratch, "source")
    source.mkdir()
    for path in model.iterdir():
        (source / path.name).symlink_to(path.resolve())
    if not (source / "tokenizer.json").exists():
        add_tokenizer(source)
    if not (source / "tokenizer_config.json").exists():
        add_special_tokens(source)
    return TransformersConverter(str(source), trust_remote_code=True).convert(str(pathlib.Path(scratch, "converted")))


def generate(generator, vocabulary, prompt, count):
    options = dict(max_length=count, min_length=count, beam_size=1, include_prompt_in_result=False)
    words = [vocabulary[token] for token in prompt]
    tokens = generator.generate_batch([words], **options)[0].sequences_ids[0]
    logits = generator.forward_batch([prompt + tokens[:-1]], return_log_probs=False)
    return tokens, np.array(logits.to(ctranslate2.DataType.float32))[0, -count:]


def run(folder, facts):
    count = len(facts["tokens"][0])
    with tempfile.TemporaryDirectory() as scratch:
        directory = converted(folder / "model", scratch)
        generator = ctranslate2.Generator(directory, compute_type="float32", intra_threads=2)
        vocabulary = json.loads(pathlib.Path(directory, "vocabulary.json").read_text())
    made = [generate(generator, vocabulary, prompt, count) for prompt in facts["prompts"]]
    tokens, logits = zip(*made)
    return tokens, adapter.log_softmax(logits), None


adapter.run_cases(run, f"CTranslate2 {ctranslate2.__version__}")
