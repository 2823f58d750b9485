"""The table of docs/compatibility.md, made from what the runtimes' tests measured (measured/*.json).

    table.py            fails if the table in the page is another one
    table.py --write    replaces it

The Python standard library suffices.
"""

import argparse
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "compatibility.md"
BEGIN, END = "<!-- begin: tests/interop/runtimes/table.py -->", "<!-- end -->"
RUNTIMES = ("transformers", "vllm", "llama_cpp", "mlx", "ctranslate2")
SOURCE_BYTES = 4096  # of cache per token


def measurements():
    return {name: json.loads((HERE / "measured" / f"{name}.json").read_text()) for name in RUNTIMES}


def rows_of(cases):
    """Converted models by row: {row: {heads: case name}}; "at 8" is the source."""
    rows = {}
    for name in cases:
        row, _, heads = name.rpartition(" at ")
        if row and heads != "8":
            rows.setdefault(row, {})[heads] = name
    return rows


def text_of(found, planned):
    if found["outcome"] == "refused":
        return "–"
    if found["outcome"] == "something else":
        return "**something else**"
    cache = found["bytes_per_token"]
    note = f", cache {cache / SOURCE_BYTES:.0%}" if cache not in (None, planned) else ""
    return f"{found['difference']:.0e}".replace("e-0", "e-") + note


def cell(measured, cases, planned):
    """One text if all numbers of heads have the same kind of outcome, else one for each."""
    found = {heads: measured["cases"].get(name) for heads, name in cases.items()}
    if None in found.values():
        return "?"
    kinds = {heads: text_of(one, planned[heads]) for heads, one in found.items()}
    outcomes = {one["outcome"] for one in found.values()}
    if outcomes == {"same"} and not any("cache" in text for text in kinds.values()):
        worst = max(one["difference"] for one in found.values())
        return f"{worst:.0e}".replace("e-0", "e-")
    if len(set(kinds.values())) == 1:
        return next(iter(kinds.values()))
    return "; ".join(f"{heads}: {text}" for heads, text in sorted(kinds.items(), reverse=True))


def planned_bytes(row, heads):
    """What regroup plan says: 2 layers with keys and values of 32 numbers in fp32 for each head; 8 where expanded."""
    layers = [int(count) for count in heads.split(",")]
    layers = layers if len(layers) == 2 else layers * 2
    return sum(8 if "expanded" in row else count for count in layers) * 2 * 32 * 4


def table(measured):
    versions = [measured[name]["version"] for name in RUNTIMES]
    lines = [f"| Result | {' | '.join(versions)} |", "|---" * (len(versions) + 1) + "|"]
    for row, cases in rows_of(measured["transformers"]["cases"]).items():
        planned = {heads: planned_bytes(row, heads) for heads in cases}
        cells = [cell(measured[name], cases, planned) for name in RUNTIMES]
        numbers = " and ".join(sorted(cases, reverse=True))
        lines.append(f"| {row} at {numbers} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="replace the table in the page")
    page = PAGE.read_text()
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    wanted = page[:begin] + "\n" + table(measurements()) + "\n" + page[end:]
    if parser.parse_args().write:
        PAGE.write_text(wanted)
    elif wanted != page:
        sys.exit(f"{PAGE.name} has another table than tests/interop/runtimes/measured: table.py --write")


main()
