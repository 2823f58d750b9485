"""Runs the cases of cases.py in one runtime, and compares with what was measured (measured/NAME.json) and with what
regroup says about the runtime in the result's model card and in the notes of the conversion.

    run.py --runtime vllm|llama_cpp|mlx|ctranslate2|transformers --cases DIRECTORY [--quick] [--write]

Exit code 0: all as measured; 1: not; 77: the runtime or the cases are missing. --write replaces measured/NAME.json.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
TITLES = {
    "transformers": "transformers",
    "vllm": "vLLM",
    "llama_cpp": "llama.cpp",
    "mlx": "mlx-lm",
    "ctranslate2": "CTranslate2",
}
CONTROL = "llama with exchanged heads"
SAME, OTHER, REFUSED = "same", "something else", "refused"
# Of log-probabilities. Runtimes that compute GELU from half-precision tables differ by up to 1.5e-2, others by 1e-4;
# another model differs by more than 1.
TOLERANCE = 0.02


def python_of(runtime):
    return pathlib.Path(sys.executable) if runtime == "transformers" else ROOT / ".deps/runtimes" / runtime / "bin/python"


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def first_of_each_row(cases):
    """The control, and the first converted model of each row."""
    rows = {}
    for name, facts in cases.items():
        if facts["kv_heads"] is not None:
            rows.setdefault(facts["row"], name)
    return {name: cases[name] for name in rows.values()}


def run_all(python, runtime, folder, names, output):
    """Runs the adapter, again after each case that ends its process. Returns the results by name."""
    # vLLM remembers how it fused a stock attention, and would do the same in one that the result's code has changed.
    names = sorted(names, key=lambda name: not (folder / name / "model" / "regroup_heads.py").exists())
    command = [python, "-B", HERE / f"in_{runtime}.py", folder, output]
    results, left = {}, list(names)
    while left:
        with open(output / "log", "ab") as log:
            done = subprocess.run([*command, *left], stdout=log, stderr=log, check=False)
        lines = output / "results.jsonl"
        for line in lines.read_text().splitlines() if lines.exists() else []:
            results[json.loads(line)["name"]] = json.loads(line)
        left = [name for name in left if name not in results]
        if left:
            results[left[0]] = {"error": f"ended the process with exit code {done.returncode}"}
            left = left[1:]
    return results


def judge(result, facts, reference, logprobs):
    """What is recorded: outcome, and unless refused bytes of cache per token and the largest difference."""
    if "error" in result:
        return {"outcome": REFUSED, "error": result["error"][:160]}
    import numpy as np

    theirs, ours = np.load(logprobs), np.load(reference)
    theirs = theirs[..., : ours.shape[-1]]  # some runtimes pad the vocabulary
    difference = float(np.nanmax(np.abs(theirs - ours)))
    same = result["tokens"] == facts["tokens"] and difference <= TOLERANCE
    outcome = {"outcome": SAME if same else OTHER, "difference": float(f"{difference:.1g}")}
    return outcome | {"bytes_per_token": round(result["bytes_per_token"] or 0) or None}


def card_row(card, title):
    rows = [line for line in card.splitlines() if line.startswith(f"| {title} | ")]
    return rows[0].removeprefix(f"| {title} | ") if rows else ""


def complaints_about_words(runtime, facts, found, source, card):
    """Where the model card or the notes of the conversion say something else than what was found."""
    title, outcome = TITLES[runtime], found["outcome"]
    row = card_row(card, title)
    promised = SAME if "`" in row else OTHER if row.startswith("**no**") else REFUSED
    if promised != outcome:
        yield f"{outcome}, but the model card says: {row}"
    notes = facts["gguf_notes" if runtime == "llama_cpp" else "notes"]
    words = (title, "stock") if runtime == "transformers" else (title,)
    said = [line for line in notes.splitlines() if line.startswith(("note", "warning"))]
    mentions = [line for line in said if any(word in line for word in words)]
    if outcome == OTHER and not any(line.startswith("warning") for line in mentions):
        yield "computes something else, and convert did not warn"
    if outcome == REFUSED and source["outcome"] == SAME and runtime != "llama_cpp" and not mentions:
        yield "refuses the result but not the source, and convert did not say so"
    larger = found.get("bytes_per_token") not in (None, facts["fp32_bytes_per_token"])
    if larger and not any("cache" in line or "pads" in line for line in mentions):
        yield f"caches {found['bytes_per_token']} bytes per token instead of {facts['fp32_bytes_per_token']}: convert did not say so"


def check(runtime, cases, found, measured, folder):
    """Prints a line for each case. Returns whether all is as measured and as regroup says."""
    good = True
    for name, facts in cases.items():
        outcome, complaints = found[name], []
        if name == CONTROL:
            complaints = [] if outcome["outcome"] == OTHER else ["the exchanged heads were not noticed"]
        elif facts["kv_heads"] is not None:
            card = (folder / name / "model" / "README.md").read_text()
            source = found.get(f"{facts['source']} at 8") or measured[f"{facts['source']} at 8"]
            complaints = list(complaints_about_words(runtime, facts, outcome, source, card))
        known = measured.get(name)
        keys = ("outcome", "bytes_per_token")
        if facts["source"] is None:  # trained weights
            complaints = [] if outcome["outcome"] == SAME else ["other tokens than in transformers"]
            known = outcome | {"bytes_per_token": outcome.get("bytes_per_token") and facts["fp32_bytes_per_token"]}
        if known is None or any(known.get(key) != outcome.get(key) for key in keys):
            complaints.append(f"measured before: {known}")
        print(f"  {name}: {outcome}" + "".join(f"\n    FAILED: {complaint}" for complaint in complaints), flush=True)
        good = good and not complaints
    return good


def record(options, version, found, known):
    """What was measured before; if asked to write, replaced by what was found now. `known`: all names of cases."""
    path = HERE / "measured" / f"{options.runtime}.json"
    before = json.loads(path.read_text()) if path.exists() else {"version": version, "cases": {}}
    if before["version"] != version:
        print(f"measured with {before['version']}, this is {version}")
    if not options.write:
        return before["cases"]
    cases = {name: one for name, one in sorted((before["cases"] | found).items()) if name in known}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"version": version, "cases": cases}, indent=1) + "\n")
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runtime", required=True, choices=TITLES)
    parser.add_argument("--cases", required=True, type=pathlib.Path, metavar="DIRECTORY", help="what cases.py wrote")
    parser.add_argument("--quick", action="store_true", help="only the first converted model of each row")
    parser.add_argument("--only", metavar="TEXT", default="", help="only the cases with this in their name")
    parser.add_argument("--write", action="store_true", help="replace what was measured before")
    options = parser.parse_args()
    python = python_of(options.runtime)
    if not python.exists():
        skip(f"no {python.relative_to(ROOT)}: scripts/setup --runtimes installs it")
    paths = sorted(options.cases.glob("*/case.json"))
    if not paths:
        skip(f"no cases in {options.cases}: cases.py was skipped")
    cases = {path.parent.name: json.loads(path.read_text()) for path in paths}
    if options.quick:
        cases = first_of_each_row(cases)
    cases = {name: facts for name, facts in cases.items() if options.only in name}
    with tempfile.TemporaryDirectory(prefix="regroup-runtime-") as scratch:
        output = pathlib.Path(scratch)
        results = run_all(python, options.runtime, options.cases, cases, output)
        found = {
            name: judge(results[name], facts, options.cases / name / "logprobs.npy", output / f"{name}.npy")
            for name, facts in cases.items()
        }
        version = (output / "version").read_text() if (output / "version").exists() else ""
        if not version:  # the runtime itself does not start
            sys.exit(f"{options.runtime} does not start:\n{(output / 'log').read_text()[-2000:]}")
    measured = record(options, version, found, {path.parent.name for path in paths})
    good = check(options.runtime, cases, found, measured, options.cases)
    print("passed" if good else "FAILED")
    sys.exit(0 if good else 1)


main()
