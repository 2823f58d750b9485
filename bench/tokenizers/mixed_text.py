"""Text for comparisons of tokenizers: given files, then characters of all kinds."""

import json
import random
import unicodedata

SCRIPTS = [(0x20, 0x7F), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x52F), (0x590, 0x5FF), (0x600, 0x6FF),
           (0x900, 0x97F), (0x980, 0x9FF), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x2000, 0x206F), (0x2100, 0x218F), (0x2460, 0x24FF),
           (0x3040, 0x30FF), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3), (0xFF00, 0xFFEF), (0x1D400, 0x1D7FF), (0x1F300, 0x1FAFF), (0, 0x20)]
BETWEEN = [" "] * 12 + ["  ", "   ", "\n", "\n\n", " \n", "\t", "\r\n", "", ".", ",", "!", "'s", "'ll", "\x0b", "\x85", "\xa0",
                        "\u180e", "\u200b", "\u2028", "\u2581", "\u3000", "\ufeff"]
ODD = ["👩‍👩‍👧‍👦👍🏽🏳️‍🌈🇩🇪🇫🇷", "e\u0301a\u0308\u0323 ﬁ ½ Å ſ İ ŉ ẞ", "don't DON'T I'LL we've 'ſ", " leading  and trailing  ",
       "\n\n\n   x   \n\n", "a" * 3000, " " * 3000, "1234567890" * 50, "🙂" * 500, "[CLS] <s> </s> <unk> <|endoftext|> <UNK>"]


def generated(random_numbers):
    """Every assigned character, words of random scripts, random characters, and what replaces broken UTF-8."""
    characters = [code for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Cs")]
    for begin in range(0, len(characters), 3000):
        yield "".join(map(chr, characters[begin:begin + 3000]))

    def word():
        first, last = random_numbers.choice(SCRIPTS)
        return "".join(chr(random_numbers.randint(first, last)) for _ in range(random_numbers.randint(1, 9)))

    for _ in range(2500):
        yield "".join(word() + random_numbers.choice(BETWEEN) for _ in range(300))
    for _ in range(300):
        yield "".join(chr(random_numbers.choice(characters)) for _ in range(1500))
        yield random_numbers.randbytes(2000).decode("utf-8", errors="replace")
    yield from ODD


def texts_in(path):
    """The documents in a file: JSON lines, or the text in parts; or those of all files in a folder."""
    if path.is_dir():
        for each in sorted(path.rglob("*")):
            if each.is_file() and not each.is_symlink():
                yield from texts_in(each)
    elif path.suffix == ".jsonl":
        yield from (json.loads(line)["text"] for line in path.open())
    else:
        raw = path.read_bytes()
        if b"\0" not in raw[:1000]:  # no text
            text = raw.decode("utf-8", errors="replace")
            yield from (text[begin:begin + 8000] for begin in range(0, len(text), 8000))
            if len(raw) < 4_000_000:
                yield text  # also as a whole, which regroup encodes in parts if it is long


def documents(cache, paths, size):
    """At least `size` bytes of documents in random order, if there is so much, from `cache` or else put there."""
    if not cache.exists():
        random_numbers = random.Random(7)
        found, held = list(generated(random_numbers)), 0
        held = sum(len(text.encode()) for text in found)
        for path in paths:
            for text in texts_in(path):
                if text and held < size:
                    found.append(text)
                    held += len(text.encode())
        random_numbers.shuffle(found)
        cache.write_text("".join(json.dumps({"text": text}) + "\n" for text in found))
    return list(texts_in(cache))
