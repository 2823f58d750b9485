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
    names = {"bos_token": "t1", "eos_token": "t2", "unk_token": "t3", "pad_token": "t0"}
    (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"} | names))


def converted(model, scratch):
    """A directory of CTranslate2's format."""
    source = pathlib.Path(scratch, "source")
    source.mkdir()
    for path in model.iterdir():
        (source / path.name).symlink_to(path.resolve())
    if not (source / "tokenizer.json").exists():
        add_tokenizer(source)
    return TransformersConverter(str(source), trust_remote_code=True).convert(str(pathlib.Path(scratch, "converted")))


def run(folder, facts):
    count = len(facts["tokens"][0])
    with tempfile.TemporaryDirectory() as scratch:
        directory = converted(folder / "model", scratch)
        generator = ctranslate2.Generator(directory, compute_type="float32", intra_threads=2)
        vocabulary = json.loads(pathlib.Path(directory, "vocabulary.json").read_text())
    prompts = [[vocabulary[token] for token in prompt] for prompt in facts["prompts"]]
    options = dict(max_length=count, min_length=count, beam_size=1, include_prompt_in_result=False)
    tokens = [one.sequences_ids[0] for one in generator.generate_batch(prompts, **options)]
    whole = [prompt + row[:-1] for prompt, row in zip(facts["prompts"], tokens)]
    logits = np.array(generator.forward_batch(whole, return_log_probs=False).to(ctranslate2.DataType.float32))
    return tokens, adapter.log_softmax(logits[:, -count:]), None


adapter.run_cases(run, f"CTranslate2 {ctranslate2.__version__}")
