"""Small tokenizers of the kinds in use, trained on a text: KINDS names them after a model that has the same parts."""

import base64
import functools
import json
import struct

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3_WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BLOOM_WORDS = r" ?[^(\s|[.,!?…。，、।۔،])]+"
CLIP_WORDS = r"<\|startoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
MARK = "▁"


def words(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), behavior, invert=invert),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def byte_level(texts, size, pre_tokenizer, normalizer=None, special=("<|endoftext|>",), added=(), post=None, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    suffix = {"end_of_word_suffix": model["end_of_word_suffix"]} if "end_of_word_suffix" in model else {}
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(special), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False, **suffix))
    tokenizer.add_tokens(list(added))
    if post:
        tokenizer.post_processor = post
    return tokenizer


def byte_fallback(texts, size, pre_tokenizer, normalizer, special, added=(), post=None):
    """A BPE of characters, in which unknown characters become the tokens of their bytes."""
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.normalizer = normalizers.Replace(" ", MARK)
    trained.pre_tokenizer = pre_tokenizers.Split(MARK, "merged_with_next")
    trained.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, limit_alphabet=size // 4, show_progress=False))
    described = json.loads(trained.to_str())
    learned = sorted(described["model"]["vocab"], key=described["model"]["vocab"].get)
    tokens = list(special) + [f"<0x{byte:02X}>" for byte in range(256)] + [text for text in learned if text not in special]
    described["model"].update(vocab={text: place for place, text in enumerate(tokens)}, fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer.from_str(json.dumps(described))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.add_special_tokens(list(special))
    tokenizer.add_tokens(list(added))
    if post:
        tokenizer.post_processor = post
    return tokenizer


def charsmap(rules):
    """A precompiled_charsmap: a double-array trie with a block of 256 units for each node, and the replacements."""
    unused = 1 << 31  # marked as a value, so the child of no node
    units, replacements = [256 << 10] + [unused] * 511, b""
    for text, replacement in rules.items():
        base, raw = 256, text.encode()
        for i, byte in enumerate(raw):
            place = base ^ byte
            if units[place] == unused:
                units[place] = (place ^ len(units)) << 10 | byte
                units += [unused] * 256
            base = place ^ units[place] >> 10
            if i + 1 == len(raw):
                units[place] |= 1 << 8
                units[base] = unused | len(replacements)
        replacements += replacement.encode() + b"\0"
    trie = struct.pack(f"<{len(units)}I", *units)
    return struct.pack("<I", len(trie)) + trie + replacements


def precompiled(rules):
    described = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap(rules)).decode()}
    holder = json.loads(Tokenizer(models.BPE()).to_str()) | {"normalizer": described}
    return Tokenizer.from_str(json.dumps(holder)).normalizer


RULES = {"ﬁ": "fi", "\u00a0": " ", "é": "e", "\n": " ", "\t": " ", "\u3000": " ", "½": "1/2", "ａ": "a", "\u00ad": ""}


def unigram(texts, size, normalizer, pre_tokenizer, special, unknown, post=None, added=(), byte_fallback=False):
    trained = Tokenizer(models.Unigram())
    trained.normalizer = normalizer
    trained.pre_tokenizer = pre_tokenizer
    trained.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=size, special_tokens=list(special), unk_token=unknown, show_progress=False))
    described = json.loads(trained.to_str())
    if byte_fallback:
        described["model"]["vocab"] += [[f"<0x{byte:02X}>", 0.0] for byte in range(256)]
        described["model"]["byte_fallback"] = True
    tokenizer = Tokenizer.from_str(json.dumps(described))
    tokenizer.add_tokens(list(added))
    if post:
        tokenizer.post_processor = post
    return tokenizer


def word_piece(texts, size, normalizer, pre_tokenizer):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=40))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=size, special_tokens=special, show_progress=False))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def word_level(texts, size):
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Strip()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(texts, trainers.WordLevelTrainer(vocab_size=size, special_tokens=["[UNK]"], show_progress=False))
    return tokenizer


def ends(template, **tokens):
    return processors.TemplateProcessing(single=template, special_tokens=[(text, identity) for text, identity in tokens.values()])


def kinds():
    level, marks = pre_tokenizers.ByteLevel, pre_tokenizers.Metaspace
    begin, end = ("<s>", 1), ("</s>", 2)
    whole = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), marks(MARK, prepend_scheme="always")])
    squeezed = normalizers.Replace(Regex(" {2,}"), " ")
    llama = ["<unk>", "<s>", "</s>"]
    bloom_tokens = [AddedToken("<mask>", lstrip=True), AddedToken("hello", single_word=True), AddedToken("world", rstrip=True)]
    return {
        "gpt2": functools.partial(byte_level, pre_tokenizer=level(add_prefix_space=False), post=processors.ByteLevel(trim_offsets=False)),
        "gpt_neox": functools.partial(byte_level, pre_tokenizer=level(add_prefix_space=False), normalizer=normalizers.NFC(),
                                      added=[AddedToken(" " * count, normalized=True) for count in range(8, 1, -1)]),
        "roberta": functools.partial(byte_level, pre_tokenizer=level(add_prefix_space=True), special=llama,
                                     post=processors.RobertaProcessing(end, begin)),
        "llama3": functools.partial(byte_level, pre_tokenizer=words(LLAMA3_WORDS), ignore_merges=True, special=["<|begin|>", "<|end|>"],
                                    post=processors.Sequence([processors.ByteLevel(trim_offsets=False), ends("<|begin|> $A", begin=("<|begin|>", 0))])),
        "bloom": functools.partial(byte_level, pre_tokenizer=words(BLOOM_WORDS), added=bloom_tokens),
        "falcon": functools.partial(byte_level, pre_tokenizer=pre_tokenizers.Sequence([
            pre_tokenizers.Punctuation("contiguous"), level(add_prefix_space=False), pre_tokenizers.Digits(False),
            pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")])),
        "clip": functools.partial(byte_level, pre_tokenizer=words(CLIP_WORDS, "removed", True), end_of_word_suffix="</w>", unk_token="<|endoftext|>",
                                  normalizer=normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])),
        "llama2": functools.partial(byte_fallback, pre_tokenizer=None, special=llama, post=ends("<s> $A", begin=begin),
                                    normalizer=normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])),
        "gemma": functools.partial(byte_fallback, pre_tokenizer=pre_tokenizers.Split(" ", "merged_with_previous"), special=llama,
                                   normalizer=normalizers.Replace(" ", MARK), added=[AddedToken("\n\n", normalized=False)]),
        "t5": functools.partial(unigram, normalizer=normalizers.Sequence([precompiled(RULES), squeezed]), pre_tokenizer=whole,
                                special=["<pad>", "</s>", "<unk>"], unknown="<unk>", post=ends("$A </s>", end=("</s>", 1))),
        "albert": functools.partial(unigram, pre_tokenizer=marks(MARK, prepend_scheme="first"), special=["<unk>", "[CLS]", "[SEP]"], unknown="<unk>",
                                    byte_fallback=True, added=[AddedToken("<mask>", lstrip=True, normalized=False)], normalizer=normalizers.Sequence(
                                        [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), squeezed]),
                                    post=ends("[CLS] $A [SEP]", begin=("[CLS]", 1), end=("[SEP]", 2))),
        "bert": functools.partial(word_piece, normalizer=normalizers.BertNormalizer(), pre_tokenizer=pre_tokenizers.BertPreTokenizer()),
        "bert_cased": functools.partial(word_piece, normalizer=normalizers.BertNormalizer(lowercase=False), pre_tokenizer=pre_tokenizers.Whitespace()),
        "word_level": word_level,
    }


KINDS = kinds()
