"""Every link in the documents leads to a file, or to a heading of one; README.md stays short."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_WORDS = 800  # of README.md


def anchors(document):
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def faults(document):
    for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        target = (document.parent / path) if path else document
        if "://" in link:
            continue
        if not target.exists():
            yield f"{document.relative_to(ROOT)}: {link}: no such file"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"{document.relative_to(ROOT)}: {link}: no such heading"


def main():
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("bench/*.md"), *ROOT.glob("examples/*/*.md")]
    found = [fault for document in documents for fault in faults(document)]
    words = len((ROOT / "README.md").read_text(encoding="utf-8").split())
    if words > MOST_WORDS:
        found.append(f"README.md: {words} words, at most {MOST_WORDS} are wanted")
    print("\n".join(found) or f"{len(documents)} documents, all links lead somewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
