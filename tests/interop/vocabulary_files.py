"""Tokenizers in files that are older than tokenizer.json: `regroup tokenize` gives the ids of transformers' classes for vocab.json
with merges.txt and for vocab.txt, and those of tiktoken's own rule for its ranks."""

import base64
import json
import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import checkpoints  # noqa: F401  first: it skips the script if a package is missing
import regex
from regroup_binary import expect, run_script
from token_files import ODD, TEXT, megatron
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import BertTokenizer, GPT2Tokenizer, Qwen2Tokenizer, RobertaTokenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode

TEXTS = [TEXT[begin : begin + 3000] for begin in range(0, 30_000, 3000)] + [ODD.replace("</s> <unk>", ""), "It's 12345 café\n\n  don't", "e\u0301 \u4e2d\u6587 x"]
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def trained_bytes(specials):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator([TEXT[:60_000]], trainers.BpeTrainer(
        vocab_size=700, special_tokens=specials, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return tokenizer


def check_ids(regroup, scratch, name, reference, *options):
    """`reference` gives the ids of a text with what it adds at the ends."""
    output = scratch / f"{name}.bin"
    regroup.run("tokenize", scratch / "texts.jsonl", "--tokenizer", scratch / name, "-o", output, *options)
    for number, (ours, text) in enumerate(zip(megatron(output), TEXTS, strict=True)):
        expect(ours == reference(text), f"{name}: other ids in document {number}")
    print(f"  {name}: {len(TEXTS)} documents")


def check_bytes(regroup, scratch, made, specials, *options, **settings):
    name = made.__name__
    directory = scratch / name
    directory.mkdir()
    trained_bytes(specials).model.save(str(directory))
    (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name, **settings}))
    theirs = made.from_pretrained(directory)
    check_ids(regroup, scratch, name, lambda text: theirs(text)["input_ids"], *options)


def check_words(regroup, scratch):
    directory = scratch / "BertTokenizer"
    directory.mkdir()
    words = sorted({word for word in TEXT[:60_000].lower().split() if word.isalpha()})
    pieces = ["##" + chr(letter) for letter in range(97, 123)] + [chr(letter) for letter in range(33, 127)]
    (directory / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, *pieces]) + "\n")
    for lower in (True, False):
        (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": lower}))
        theirs = BertTokenizer.from_pretrained(directory)
        (scratch / "BertTokenizer.bin").unlink(missing_ok=True)
        (scratch / "BertTokenizer.idx").unlink(missing_ok=True)
        check_ids(regroup, scratch, "BertTokenizer", lambda text: theirs(text)["input_ids"])


def merged(word, ranks):
    """What tiktoken makes of a word: of all pairs of neighbours that are a token, the one with the lowest rank is merged first."""
    parts = [word] if word in ranks else [bytes([byte]) for byte in word]
    while True:
        pairs = [(ranks[left + right], at) for at, (left, right) in enumerate(zip(parts, parts[1:])) if left + right in ranks]
        if not pairs:
            return [ranks[part] for part in parts]
        at = min(pairs)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def check_ranks(regroup, scratch):
    directory = scratch / "tiktoken"
    directory.mkdir()
    bytes_of = {character: byte for byte, character in bytes_to_unicode().items()}
    vocabulary = trained_bytes([]).get_vocab()
    lines = (base64.b64encode(bytes(bytes_of[each] for each in token)).decode() + f" {rank}\n" for token, rank in vocabulary.items())
    (directory / "tokenizer.model").write_text("".join(lines))
    ranks = {bytes(bytes_of[each] for each in token): rank for token, rank in vocabulary.items()}
    split = regex.compile(LLAMA3)
    check_ids(regroup, scratch, "tiktoken", lambda text: [identity for word in split.findall(text) for identity in merged(word.encode(), ranks)],
              "--no-bos", "--no-eos")


def check(regroup, scratch):
    (scratch / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    end = ["<|endoftext|>"]
    check_bytes(regroup, scratch, GPT2Tokenizer, end, "--no-eos")
    check_bytes(regroup, scratch, Qwen2Tokenizer, end, "--no-eos")
    check_bytes(regroup, scratch, RobertaTokenizer, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    check_words(regroup, scratch)
    check_ranks(regroup, scratch)


if __name__ == "__main__":
    run_script(__doc__, check)
