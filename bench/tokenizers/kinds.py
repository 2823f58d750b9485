"""One tokenizer of each kind, trained on a part of the text."""

import json

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

SIZE = 32_000
# The words of Llama 3 and, with digits one by one, of Qwen.
WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level_bpe(texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(WORDS), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=SIZE, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return tokenizer


def byte_fallback_bpe(texts):
    """As Llama 2's: spaces become marks, the text is not split, unknown characters become bytes."""
    first = ["<unk>", "<s>", "</s>"]
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    trained.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=SIZE - 259, limit_alphabet=3000, show_progress=False))
    described = json.loads(trained.to_str())
    learned = sorted(described["model"]["vocab"], key=described["model"]["vocab"].get)
    texts_of_tokens = first + [f"<0x{byte:02X}>" for byte in range(256)] + [text for text in learned if text not in first]
    described["model"].update(vocab={text: place for place, text in enumerate(texts_of_tokens)}, fuse_unk=True, byte_fallback=True)
    described["normalizer"] = json.loads(normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]).__getstate__())
    described["pre_tokenizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(described))
    tokenizer.add_special_tokens(first)
    return tokenizer


def unigram(texts):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    # The trainer keeps every character, and takes NUL for the end of a text.
    texts = [text for text in texts if len(set(text)) < 150 and "\0" not in text]
    tokenizer.train_from_iterator(texts, trainers.UnigramTrainer(
        vocab_size=SIZE, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False))
    return tokenizer


def word_piece(texts):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(
        vocab_size=SIZE, limit_alphabet=3000, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
        show_progress=False))
    return tokenizer


def trained(work, documents):
    """Paths of the tokenizers in `work`; trains those that are missing."""
    texts = [text for text in documents[::4] if len(text) < 10_000]
    paths = []
    for train in (byte_level_bpe, byte_fallback_bpe, unigram, word_piece):
        path = work / f"{train.__name__.replace('_', '-')}.json"
        if not path.exists():
            train(texts).save(str(path))
        paths.append(path)
    return paths
