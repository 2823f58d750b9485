"""Makes tokenizers/: small tokenizers of each kind, and the ids that Python's `tokenizers` gives for a few texts.

    python3 tests/golden/make_tokenizers.py
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "interop"))

from spelled_as_text import reference_of
from tokenizer_kinds import KINDS
from tokenizers import Tokenizer

TRAINED_ON = [
    "The grouped heads share one key and one value head, and the cache is smaller by that factor. The heads of a group share the cache.",
    "Don't say it's hers; we've said they'll share 12 of 345 heads (or 1/3)! What? The teacher's heads, the reader's heads.",
    "for (int i = 0; i < count; ++i) {\n    sum += values[i] * values[i];\n}\nreturn sum;\n\n    if (sum > 0) {\n        return sum;\n    }\n",
    "Die Köpfe teilen sich den Speicher. L'été, les têtes partagent la mémoire. Общая память голов. 共有する頭。头共享缓存。 مرحبا بالعالم",
]
TEXTS = [
    "The reader shares the heads of a group.", " leading,  double and trailing  ", "it's WE'LL don't ’ve 'ſ", "12345 67,890.5 ½ ² Ⅻ ٣٤",
    "for (int i = 0;\n\n\n    i < 10; ++i) {\n\t\tx[i] *= 2;\r\n}\n", "Köpfe été ﬁne naïve Å ẞ ŉ İ", "e\u0301 a\u0308\u0323 나\u11a7 각 ㎏",
    "共有する頭。头共享缓存。Общая память, مرحبا بالعالم", "👩‍👩‍👧 👍🏽 🇩🇪 🙂🙂", "a\u00a0b\u200bc\u2028d\u3000e\u0085f\ufefff", "\x00\x01\x7f\x9f \ufffd",
    "▁▁ marks ▁ and ▁marks", "hello helloworld world  x <mask> \n<mask>", "<s> </s> <unk> [CLS] [UNK] <|endoftext|> <|begin|> <UNK> <0x41>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "********", "        eight\n  two", "\n", " ", "",
]


# Decoders as published files of these kinds have them.
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
SPACES = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
DECODERS = {
    **dict.fromkeys(["bloom", "falcon", "gpt2", "gpt_neox", "llama3", "roberta"], BYTE_LEVEL),
    "clip": {"type": "BPEDecoder", "suffix": "</w>"},
    "llama2": {"type": "Sequence", "decoders": [
        SPACES, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "gemma": {"type": "Sequence", "decoders": [SPACES, {"type": "ByteFallback"}, {"type": "Fuse"}]},
    "t5": METASPACE, "albert": METASPACE,
    "bert": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    "bert_cased": {"type": "WordPiece", "prefix": "##", "cleanup": False},
    "word_level": None,
}


def decoded(tokenizer: dict, decoder: dict | None, cases: list) -> dict:
    """The texts of the golden ids, of their first halves and of every third token, which cuts characters."""
    tokenizer = Tokenizer.from_str(json.dumps({**tokenizer, "decoder": decoder}))
    ids = [part for case in cases for part in (case["ids"], case["ids"][: len(case["ids"]) // 2], case["ids"][::3])]
    special = [token["id"] for token in json.loads(tokenizer.to_str())["added_tokens"]]
    ids.append([*special, *cases[0]["ids"], *special])
    return {"decoder": decoder, "cases": [{"ids": each, "text": tokenizer.decode(each)} for each in ids]}


def main():
    directory = HERE / "tokenizers"
    directory.mkdir(exist_ok=True)
    for name, make in KINDS.items():
        described = make(TRAINED_ON, 420).to_str()
        tokenizer, reference = Tokenizer.from_str(described), reference_of(described)
        ends = tokenizer.encode("a").ids
        inner = reference.encode("a").ids
        place = next(i for i in range(len(ends)) if ends[i : i + len(inner)] == inner)
        golden = {"first": ends[:place], "last": ends[place + len(inner) :], "tokenizer": json.loads(described),
                  "cases": [{"text": text, "ids": reference.encode(text).ids} for text in TEXTS]}
        (directory / f"{name}.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
        print(f"{name}: {tokenizer.get_vocab_size()} tokens")
    decode()


def decode():
    golden = {name: json.loads((HERE / "tokenizers" / f"{name}.json").read_text()) for name in KINDS}
    texts = {name: decoded(golden[name]["tokenizer"], DECODERS[name], golden[name]["cases"]) for name in KINDS}
    (HERE / "tokenizers/decoded.json").write_text(json.dumps(texts, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
