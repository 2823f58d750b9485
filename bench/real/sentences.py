#!/usr/bin/env python3
"""What an encoder's conversion does to its sentence embeddings: one row for each result.

    python3 bench/real/sentences.py SOURCE RESULT... --text wiki.test.txt

Models are directories that sentence-transformers loads; it pools and normalises as their modules.json says, and runs the code that a result carries (`pip install
sentence-transformers`). Sentences of 40 to 300 characters are taken from all over the text, with --paragraphs the first lines of more than
700. The columns: the mean cosine of each embedding with the source's,
the least one, and the order of the similarities of all pairs (Spearman). Prints a table in Markdown.
"""

import argparse
import pathlib
import re

import torch
from sentence_transformers import SentenceTransformer


def texts_of(path, paragraphs, count):
    lines = path.read_text(encoding="utf-8").splitlines()
    sentences = re.split(r"(?<=[.!?])\s+", " ".join(line for line in lines if not line.startswith(" =")))
    if paragraphs:
        found = [line.strip() for line in lines if len(line) > 700][:count]
    else:
        found = [part.strip() for part in sentences if 40 <= len(part.strip()) <= 300]
    if len(found) < count:
        raise SystemExit(f"{path}: has {len(found)} {'paragraphs' if paragraphs else 'sentences'}, {count} are needed")
    return found[:: len(found) // count][:count]


def similarities(embeddings):
    """Of all pairs, without a text and itself."""
    above = torch.triu_indices(len(embeddings), len(embeddings), 1)
    return (embeddings @ embeddings.T)[above[0], above[1]]


def spearman(left, right):
    ranks = [values.argsort().argsort().double() for values in (left, right)]
    return torch.corrcoef(torch.stack(ranks))[0, 1].item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("results", type=pathlib.Path, nargs="+")
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--paragraphs", action="store_true")
    parser.add_argument("--count", type=int, default=500)
    options = parser.parse_args()
    texts = texts_of(options.text, options.paragraphs, options.count)

    def embeddings_by(path):
        return SentenceTransformer(str(path), device="cpu", trust_remote_code=True).encode(texts, convert_to_tensor=True)

    source = embeddings_by(options.source)
    print("| model | cosine to source | least | order of similarities |\n|---|--:|--:|--:|")
    for path in options.results:
        result = embeddings_by(path)
        cosines = torch.nn.functional.cosine_similarity(source, result)
        order = spearman(similarities(source), similarities(result))
        print(f"| {path.name} | {cosines.mean():.4f} | {cosines.min():.4f} | {order:.4f} |")


if __name__ == "__main__":
    main()
