"""tokenizer.json: `regroup tokenize` gives the ids of Python's `tokenizers` for each kind of tokenizer, on text, code, every
character and random strings. Special tokens that a text spells out are text."""

import json
import os
import random
import unicodedata

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import checkpoints  # noqa: F401  first: it skips the script if a package is missing
from regroup_binary import expect, run_script
from spelled_as_text import reference_of
from token_files import ODD, ROOT, TEXT, megatron
from tokenizer_kinds import KINDS
from tokenizers import Tokenizer

SPELLED = "<s> </s> <unk> <|endoftext|> <|begin|> [CLS] [SEP] [UNK] <mask> hello world\n\n<0x41> ▁"


def documents():
    numbers = random.Random(5)
    code = (ROOT / "tokens" / "tokenize.cpp").read_text() + (ROOT / "scripts" / "setup").read_text()
    characters = [code for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")]
    composed = [code for code in characters if unicodedata.decomposition(chr(code)) or unicodedata.combining(chr(code))]
    yield from (TEXT[begin : begin + 5000] for begin in range(0, 100_000, 5000))
    yield from (code, ODD, SPELLED, TEXT[:1000] * 1200, "a" * 20_000, " " * 20_000)  # of over 1 MiB is encoded in parts
    yield from ("".join(map(chr, characters[begin : begin + 2000])) for begin in range(0, len(characters), 2000))
    for _ in range(200):
        pools = [characters, composed, range(32, 127), range(0x1100, 0x1200), [32, 10, 9, 0xA0, 0x3000]]
        yield "".join(chr(numbers.choice(numbers.choice(pools))) for _ in range(numbers.randint(1, 300)))
        yield numbers.randbytes(300).decode("utf-8", errors="replace")


def check_ids(regroup, scratch, name, described, texts):
    tokenizer, reference = scratch / f"{name}.json", reference_of(described)
    tokenizer.write_text(described)
    output = scratch / f"{name}.bin"
    regroup.run("tokenize", scratch / "texts.jsonl", "--tokenizer", tokenizer, "-o", output, "--no-bos", "--no-eos")
    expected = [each.ids for each in reference.encode_batch_fast(texts, add_special_tokens=False)]
    ours, theirs = megatron(output), [ids for ids in expected if ids]
    expect(len(ours) == len(theirs), f"{name}: {len(ours)} documents instead of {len(theirs)}")
    for number, (mine, ids) in enumerate(zip(ours, theirs)):
        expect(mine == ids, f"{name}: other ids in document {number}")
    print(f"  {name}: {sum(map(len, theirs)):,} ids")


def check_ends(regroup, scratch, name, described):
    """BOS and EOS are what the post-processor adds."""
    (scratch / "a.txt").write_text("a text")
    output = scratch / f"{name}-ends.bin"
    regroup.run("tokenize", scratch / "a.txt", "--tokenizer", scratch / f"{name}.json", "-o", output)
    expect(megatron(output) == [Tokenizer.from_str(described).encode("a text").ids], f"{name}: other tokens at the ends")


def check_parsed(regroup, scratch, name, described):
    """With --parse-special, spelled-out special tokens are those that Python finds."""
    (scratch / "spelled.txt").write_text(SPELLED)
    output = scratch / f"{name}-parsed.bin"
    regroup.run("tokenize", scratch / "spelled.txt", "--tokenizer", scratch / f"{name}.json", "-o", output, "--no-bos",
                "--no-eos", "--parse-special")
    ids = Tokenizer.from_str(described).encode(SPELLED, add_special_tokens=False).ids
    expect(megatron(output) == [ids], f"{name}: other tokens with --parse-special")


def check(regroup, scratch):
    texts = [text for text in documents() if text]
    (scratch / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    for name, make in KINDS.items():
        described = make([TEXT[:60_000]], 600).to_str()
        check_ids(regroup, scratch, name, described, texts)
        check_ends(regroup, scratch, name, described)
        check_parsed(regroup, scratch, name, described)


if __name__ == "__main__":
    run_script(__doc__, check)
