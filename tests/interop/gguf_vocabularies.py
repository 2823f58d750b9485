"""The tokenizers inside GGUF files: `regroup tokenize` gives the ids of the tokenizer that a file was made from, on text, code and
random strings, and so does what `convert` writes for transformers. Compares with llama.cpp and the package sentencepiece, too, where
they are installed."""

import json
import os
import pathlib
import random
import tempfile

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import checkpoints  # noqa: F401  first: it skips the script if a package is missing
import gguf
import numpy as np
import tokenizer_kinds
from regroup_binary import expect, run_script
from spelled_as_text import reference_of
from token_files import ODD, ROOT, TEXT, megatron
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
from transformers import AutoTokenizer

try:
    import llama_cpp
except ImportError as missing_package:
    llama_cpp = None
    print(f"  not compared with llama.cpp: {missing_package}")

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DIGITS = [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(False)]
PUNCTUATION = [pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(False), pre_tokenizers.Digits(),
               pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")]
PRE_TOKENIZERS = {
    "gpt-2": pre_tokenizers.ByteLevel(False),
    "smollm": pre_tokenizers.Sequence(DIGITS),
    "falcon": pre_tokenizers.Sequence(PUNCTUATION),
    "llama-bpe": tokenizer_kinds.words(tokenizer_kinds.LLAMA3_WORDS),
    "dbrx": tokenizer_kinds.words(tokenizer_kinds.LLAMA3_WORDS),
    "qwen2": tokenizer_kinds.words(tokenizer_kinds.LLAMA3_WORDS.replace("{1,3}", "")),
    "gpt-4o": tokenizer_kinds.words(GPT4O),
    "tekken": tokenizer_kinds.words(GPT4O.replace("{1,3}", "").replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "")),
    "bloom": tokenizer_kinds.words(tokenizer_kinds.BLOOM_WORDS),
}
SPLIT_BY_LLAMA_CPP = ("deepseek-llm", "deepseek-coder", "deepseek-v3", "refact", "smaug-bpe", "default", "exaone", "stablelm2")
IN_TRANSFORMERS = ("gpt-2", "llama-bpe", "qwen2", "unigram", "word-piece-lower", "scored", "bpe-symbols", "unigram-spaces")
LOSSLESS = (*PRE_TOKENIZERS, "scored", "bpe-symbols")
WHOLE_WORDS = ("llama-bpe", "tekken")
LANGUAGES = ("Ein Satz über Größe und Übermut. Съешь же ещё этих мягких французских булок. 我能吞下玻璃而不伤身体。"
             "いろはにほへと 한국어 문장입니다. الجملة العربية हिन्दी वाक्य ภาษาไทย 🙂🙃👩‍👩‍👧 x² ≠ ½ ﬁ\u00a0\u3000 Ⅷ ")


def documents():
    numbers = random.Random(7)
    code = (ROOT / "tokens" / "tokenize.cpp").read_text() + (ROOT / "scripts" / "setup").read_text()
    yield from (TEXT[begin : begin + 5000] for begin in range(0, 100_000, 5000))
    yield from (code, ODD, LANGUAGES * 3, "a" * 3000, " " * 30, "=" * 77 + " " * 33 + "-" * 50, "\x00\x01\x1b\x7f a")
    words = (TEXT[:50_000] + LANGUAGES * 20).split(" ")
    for _ in range(300):
        yield " ".join(numbers.choice(words) for _ in range(numbers.randint(1, 60)))
        yield "".join(numbers.choice("ab=- \n.,'1Aé漢") for _ in range(numbers.randint(1, 200)))


def put_gguf(path, model, tokens, types, scores=None, merges=None, **more):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if scores is not None:
        writer.add_token_scores(scores)
    if merges is not None:
        writer.add_token_merges(merges)
    for key, value in more.items():
        {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string, bytes: writer.add_array}[type(value)](
            f"tokenizer.ggml.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def type_of(tokenizer, identity, text):
    added = tokenizer.get_added_tokens_decoder().get(identity)
    if added:
        return CONTROL if added.special else USER
    return BYTE if len(text) == 6 and text.startswith("<0x") else NORMAL


def put_byte_level(path, name, pre_tokenizer=None):
    """A byte-level BPE, learned from text that is split by `pre_tokenizer` or as `name` says, and its GGUF file."""
    composes = name == "qwen2"
    tokenizer = tokenizer_kinds.byte_level([TEXT[:60_000] + LANGUAGES * 5], 900, pre_tokenizer or PRE_TOKENIZERS[name], added=["<tool>"],
                                           normalizer=normalizers.NFC() if composes else None, ignore_merges=name in WHOLE_WORDS)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = [tokenizer.id_to_token(identity) for identity in range(tokenizer.get_vocab_size())]
    put_gguf(path, "gpt2", tokens, [type_of(tokenizer, *each) for each in enumerate(tokens)],
             merges=[" ".join(merge) for merge in model["merges"]], pre=name, bos_token_id=0, eos_token_id=0)
    return tokenizer


def put_unigram(path, byte_fallback):
    rules = tokenizer_kinds.RULES
    steps = [tokenizer_kinds.precompiled(rules), normalizers.Strip(left=False), normalizers.Replace(Regex(" {2,}"), "▁")]
    tokenizer = tokenizer_kinds.unigram([TEXT[:60_000]], 700, normalizers.Sequence(steps), pre_tokenizers.Metaspace(),
                                        ["<pad>", "</s>", "<unk>"], "<unk>", byte_fallback=byte_fallback)
    described = json.loads(tokenizer.to_str())
    model = described["model"]
    model["vocab"] = [[text, float(np.float32(score))] for text, score in model["vocab"]]  # as in a model of SentencePiece
    types = [UNKNOWN if text == "<unk>" else type_of(tokenizer, *each)
             for each in enumerate(text for text, _ in model["vocab"]) for text in [each[1]]]
    put_gguf(path, "t5", [text for text, _ in model["vocab"]], types, [score for _, score in model["vocab"]],
             precompiled_charsmap=tokenizer_kinds.charsmap(rules), add_space_prefix=True, remove_extra_whitespaces=True,
             unknown_token_id=2, eos_token_id=1, padding_token_id=0)
    return Tokenizer.from_str(json.dumps(described))


def put_word_piece(path, lower):
    tokenizer = tokenizer_kinds.word_piece([TEXT[:60_000] + LANGUAGES * 5], 800, normalizers.BertNormalizer(lowercase=lower),
                                           pre_tokenizers.BertPreTokenizer())
    described = json.loads(tokenizer.to_str())
    described["model"]["max_input_chars_per_word"] = 100
    tokens = sorted(described["model"]["vocab"], key=described["model"]["vocab"].get)
    marked = [text if identity < 5 else text[2:] if text.startswith("##") else "▁" + text for identity, text in enumerate(tokens)]
    put_gguf(path, "bert", marked, [CONTROL] * 5 + [NORMAL] * (len(tokens) - 5), bos_token_id=2, seperator_token_id=3,
             cls_token_id=2, unknown_token_id=1, padding_token_id=0, mask_token_id=4)
    return Tokenizer.from_str(json.dumps(described))


def put_scored(path):
    """A BPE with byte fallback and a score for each token, in the order in which they were learned."""
    trained = tokenizer_kinds.byte_fallback([TEXT[:60_000]], 700, None, None, ["<unk>", "<s>", "</s>"])
    tokens = [trained.id_to_token(identity) for identity in range(trained.get_vocab_size())]
    types = [UNKNOWN] + [type_of(trained, *each) for each in list(enumerate(tokens))[1:]]
    put_gguf(path, "llama", tokens, types, [-float(place) for place in range(len(tokens))])


def put_sentencepiece(path, kind, **options):
    """A model of the package sentencepiece, and its GGUF file."""
    import sentencepiece

    corpus = path.with_suffix(".txt")
    corpus.write_text(TEXT + (LANGUAGES + "\n") * 20)
    sentencepiece.SentencePieceTrainer.train(input=str(corpus), model_prefix=str(path.with_suffix("")), vocab_size=1200, model_type=kind,
                                             minloglevel=3, **options)
    model = sentencepiece.SentencePieceProcessor(model_file=str(path.with_suffix(".model")))
    places = range(model.get_piece_size())
    types = [UNKNOWN if model.is_unknown(i) else CONTROL if model.is_control(i) else BYTE if model.is_byte(i) else NORMAL for i in places]
    pieces = [model.id_to_piece(i) for i in places]
    for symbol in options.get("user_defined_symbols", ()):
        types[pieces.index(symbol)] = USER
    pieces = [piece.replace("▁", " ") if each == USER else piece for piece, each in zip(pieces, types)]
    put_gguf(path, "llama" if kind == "bpe" else "t5", pieces, types,
             [model.get_score(i) for i in places], bos_token_id=1, eos_token_id=2, unknown_token_id=0,
             add_space_prefix=options.get("add_dummy_prefix", True),
             **({} if kind == "bpe" else {"remove_extra_whitespaces": options.get("remove_extra_whitespaces", True)}))
    return model


def ids_of_regroup(regroup, scratch, name, texts):
    (scratch / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    output = pathlib.Path(tempfile.mkdtemp(dir=scratch)) / "ids.bin"
    regroup.run("tokenize", scratch / "texts.jsonl", "--tokenizer", scratch / f"{name}.gguf", "-o", output, "--no-bos", "--no-eos")
    return megatron(output)


def compare(name, ours, other, theirs):
    theirs = [ids for ids in theirs if ids]
    expect(len(ours) == len(theirs), f"{name}: {len(ours)} documents instead of {len(theirs)} of {other}")
    for number, (mine, ids) in enumerate(zip(ours, theirs)):
        expect(mine == ids, f"{name}: other ids than {other} in document {number}")
    print(f"  {name}: {sum(map(len, ours)):,} ids of {other}")


# Where llama.cpp's ids are not those of the original: it has no bytes for Unigram, reads BERT's words differently, and ends the
# process at a character without a token.
NOT_IN_LLAMA_CPP = ("unigram-bytes", "unigram-spaces", "word-piece", "word-piece-lower", "bpe-unknown")


def compare_with_llama_cpp(name, ours, path, texts):
    if llama_cpp and name not in NOT_IN_LLAMA_CPP:
        model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
        compare(name, ours, "llama.cpp", [model.tokenize(text.encode(), add_bos=False, special=False) for text in texts])


CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "intermediate_size": 32,
          "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64,
          "rms_norm_eps": 1e-5, "hidden_act": "silu", "initializer_range": 0.02, "torch_dtype": "float32"}


def put_model(regroup, scratch, vocabulary, path):
    """A GGUF file with random weights and the tokenizer of the GGUF file `vocabulary`."""
    tokenizer = gguf.GGUFReader(vocabulary).fields
    rows = len(tokenizer["tokenizer.ggml.tokens"].data)
    config, model, plain = (scratch / f"{rows}-{name}" for name in ("config.json", "model", "model.gguf"))
    if not plain.exists():
        config.write_text(json.dumps(CONFIG | {"vocab_size": rows}))
        regroup.run("init", config, model, "--seed", "1")
        regroup.run("convert", model, plain, "--to", "gguf")
    reader = gguf.GGUFReader(plain)
    writer = gguf.GGUFWriter(path, "llama")
    fields = {key: field for key, field in reader.fields.items() if not key.startswith(("GGUF.", "regroup.", "tokenizer."))}
    fields |= {key: field for key, field in tokenizer.items() if key.startswith("tokenizer.")}
    for key, field in fields.items():
        if key != "general.architecture":
            writer.add_key_value(key, field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None)
    writer.add_string("general.license", "apache-2.0")
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def stored_keys(path):
    return {key: (tuple(field.types), b"".join(np.asarray(part).tobytes() for part in field.parts[3:]))
            for key, field in gguf.GGUFReader(path).fields.items() if not key.startswith(("GGUF.", "regroup."))}


def check_transformers(regroup, scratch, name, texts):
    """The directory that `convert` makes of a GGUF file has a tokenizer with the same ids, and gives the file's keys back."""
    source, directory, back = (scratch / f"{name}-model{suffix}" for suffix in (".gguf", "", "-back.gguf"))
    put_model(regroup, scratch, scratch / f"{name}.gguf", source)
    regroup.run("convert", source, directory, "--to", "safetensors")
    tokenizer = AutoTokenizer.from_pretrained(directory)
    plain = [text for text in texts if not any(token in text for token in tokenizer.all_special_tokens)]
    ours = ids_of_regroup(regroup, scratch, name, plain)
    compare(f"{name} in a directory", ours, "transformers", tokenizer(plain, add_special_tokens=False)["input_ids"])
    ids = tokenizer(TEXT[:5000], add_special_tokens=False)["input_ids"]
    if name in LOSSLESS:
        expect(tokenizer.decode(ids) == TEXT[:5000], f"{name}: decoding gives another text")
    regroup.run("convert", directory, back, "--to", "gguf")
    before, after = stored_keys(source), stored_keys(back)
    lost = [key for key in before if before[key] != after.get(key)]
    expect(not lost, f"{name}: the way back changes {lost}")


def check(regroup, scratch):
    texts = [text for text in documents() if text]
    made = {}
    for name in PRE_TOKENIZERS:
        made[name] = put_byte_level(scratch / f"{name}.gguf", name)
    for fallback in (False, True):
        name = "unigram-bytes" if fallback else "unigram"
        made[name] = put_unigram(scratch / f"{name}.gguf", fallback)
    for lower in (False, True):
        name = "word-piece-lower" if lower else "word-piece"
        made[name] = put_word_piece(scratch / f"{name}.gguf", lower)
    for name, tokenizer in made.items():
        ours = ids_of_regroup(regroup, scratch, name, texts)
        expected = reference_of(tokenizer.to_str()).encode_batch_fast(texts, add_special_tokens=False)
        compare(name, ours, "tokenizers", [each.ids for each in expected])
        compare_with_llama_cpp(name, ours, scratch / f"{name}.gguf", texts)
        if name in IN_TRANSFORMERS:
            check_transformers(regroup, scratch, name, texts)
    for name in SPLIT_BY_LLAMA_CPP if llama_cpp else ():
        path = scratch / f"{name}.gguf"
        put_byte_level(path, name, PRE_TOKENIZERS["gpt-2"])
        compare_with_llama_cpp(name, ids_of_regroup(regroup, scratch, name, texts), path, texts)
    put_scored(scratch / "scored.gguf")
    compare_with_llama_cpp("scored", ids_of_regroup(regroup, scratch, "scored", texts), scratch / "scored.gguf", texts)
    check_transformers(regroup, scratch, "scored", texts)
    check_sentencepiece(regroup, scratch, texts)


SENTENCEPIECE = {
    "bpe": dict(byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True,
                allow_whitespace_only_pieces=True),
    "bpe-gemma": dict(byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
                      add_dummy_prefix=False, split_by_whitespace=False),
    "bpe-symbols": dict(byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
                        add_dummy_prefix=False, user_defined_symbols=["<tool>", "\n\n", "▁▁", "▁▁▁▁", "==="]),
    "bpe-unknown": dict(normalization_rule_name="identity", remove_extra_whitespaces=False),
    "unigram-identity": dict(normalization_rule_name="identity"),
    "unigram-spaces": dict(normalization_rule_name="identity", remove_extra_whitespaces=False, byte_fallback=True,
                           allow_whitespace_only_pieces=True),
}


def check_sentencepiece(regroup, scratch, texts):
    try:
        import sentencepiece  # noqa: F401
    except ImportError as missing:
        print(f"  sentencepiece and its GGUF files are not compared: {missing}")
        return
    for name, options in SENTENCEPIECE.items():
        path = scratch / f"{name}.gguf"
        model = put_sentencepiece(path, name.split("-")[0], **options)
        ours = ids_of_regroup(regroup, scratch, name, texts)
        compare(name, ours, "sentencepiece", [model.encode(text) for text in texts])
        compare_with_llama_cpp(name, ours, path, texts)
        if name in IN_TRANSFORMERS:
            check_transformers(regroup, scratch, name, texts)


if __name__ == "__main__":
    run_script(__doc__, check)
