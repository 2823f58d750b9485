#!/usr/bin/env python3
"""Checks that bench/gpu.sh works, on a CPU and with tiny models: every part, an interruption in the middle, a failure,
and the tables.

    smoke.py --build FOLDER
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gpu
import machine
import parts
from steps import Results, Step

ROOT = Path(__file__).resolve().parent.parent.parent
PARTS = parts.PARTS
DONE, FAILED, USAGE, LEFT = 0, 1, 2, 3
PAGE = "# Before\n\nkept\n\n<!-- bench/gpu.sh tables: begin -->\nold\n<!-- bench/gpu.sh tables: end -->\n\n## After\n"


def check(holds, what):
    if not holds:
        sys.exit(f"smoke: {what}")


class Script:
    def __init__(self, folder, build):
        self.folder = Path(folder)
        self.results, self.page = self.folder / "results", self.folder / "page.md"
        self.env = {**os.environ, "DEVICE": "cpu", "SHAPES": "tiny", "PEERS": "", "BUILD": str(Path(build).resolve()),
                    "OTHER": str(Path(build).resolve()),
                    "RESULTS": str(self.results), "COPY": str(self.folder / "copy"), "WORK": str(self.folder / "work"),
                    "DOC": str(self.page), "PYTHON": sys.executable, "COMMIT": "abc1234", "OMP_NUM_THREADS": "2"}

    def start(self, *words, **env):
        return subprocess.Popen([str(ROOT / "bench/gpu.sh"), *words], env={**self.env, **env}, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def run(self, *words, expect=DONE, **env):
        child = self.start(*words, **env)
        out = child.communicate()[0]
        check(child.returncode == expect, f"{' '.join(words)}: exit status {child.returncode}, not {expect}:\n{out}")
        return out

    def files(self):
        """Results, by name, with the time they were written."""
        return {str(path.relative_to(self.results)): path.stat().st_mtime_ns for path in self.results.rglob("*.json")}

    def result(self, name):
        return json.loads((self.results / name).read_text())


def interrupt(script):
    """Ends the script in the middle; what was done stays, what was under way is done by the next call."""
    child = script.start("next")
    while child.poll() is None and len(script.files()) < 4:
        time.sleep(0.05)
    check(child.poll() is None, "it ended before it could be interrupted")
    child.send_signal(signal.SIGTERM)
    out = child.communicate()[0]
    check(child.returncode == LEFT, f"interrupted: exit status {child.returncode}:\n{out}")
    check("the next call continues" in out, f"it does not say that it can continue:\n{out}")
    return script.files()


def check_limits(script):
    """A step that is cut short is left for the next call. One that has the whole limit has failed."""
    script.run("--again", "memory", expect=LEFT, LIMIT="0.2")
    result = script.result("memory/tiny-plain.json")
    check(result["state"] == "failed" and "longer than" in result["why"], f"a step beyond the limit: {result}")
    out = script.run("--again", "memory")
    check(script.result("memory/tiny-plain.json")["state"] == "done", f"--again did not repeat it:\n{out}")


def check_failure(script):
    """A failed step is kept with its last lines; the others of its part and later parts run all the same."""
    (script.folder / "work" / "tiny").rename(script.folder / "work" / "elsewhere")
    (script.folder / "work" / "tiny").mkdir()
    script.run("--again", "memory", expect=FAILED)
    states = [script.result(f"memory/{path.name}") for path in (script.results / "memory").glob("*.json")]
    check(len(states) == 5 and all(each["state"] == "failed" and each["last_lines"] for each in states),
          f"a model without files did not fail: {states}")
    script.run("tables")
    check("memory/tiny-plain | failed" in script.page.read_text(), "the page does not tell the failure")
    (script.folder / "work" / "tiny").rmdir()
    (script.folder / "work" / "elsewhere").rename(script.folder / "work" / "tiny")


def check_copy(script, names):
    """The copy is one file, from which a machine without results takes them."""
    copies = [path.name for path in (script.folder / "copy").rglob("*")]
    check(copies == ["results.json"], f"the copy is not one file: {copies}")
    found = json.loads((script.folder / "copy" / "results.json").read_text())
    check({f"{name}.json": result for name, result in found.items()} == {name: script.result(name) for name in names},
          "the copies are not the results")
    script.run("tables")
    page = script.page.read_text()
    script.page.write_text(PAGE)
    fresh = str(script.folder / "fresh")
    check("took " in script.run("tables", RESULTS=fresh), "it does not say that it took the copy")
    check(script.page.read_text() == page, "tables of the copy are others")
    check(script.run("next", RESULTS=fresh).count("finished before") == len(PARTS), "what the copy has was run again")
    script.page.write_text(PAGE)


def check_build_failure(folder):
    """What needs a program that could not be built is neither run nor kept, and runs once it is built."""
    folder.mkdir()
    cure, first, second = (folder / name for name in ("cure", "first", "second"))
    day = gpu.Day()
    day.results = Results(folder / "results", folder / "copy")
    day.steps = {part: [] for part in PARTS}
    day.steps["build"] = [
        Step("compile-first", ["sh", "-c", f"test -e {cure} && touch {first}"], continues=True, makes=str(first)),
        Step("compile-second", ["touch", str(second)], continues=True, makes=str(second))]
    day.steps["test"] = [Step("uses-first", ["true"], built=("build/compile-first",)),
                         Step("uses-second", ["true"], built=("build/compile-second",))]
    check(gpu.run_parts(day, PARTS, shared_limit=True) == FAILED, "a failed build is no failure")
    check(set(day.results.all()) == {"build/compile-first", "build/compile-second", "test/uses-second"},
          f"not what could be run: {sorted(day.results.all())}")
    cure.touch()
    check(gpu.run_parts(day, PARTS, shared_limit=True) == DONE, "the build was repaired, but not all is done")
    first.unlink()
    check(gpu.run_parts(day, PARTS, shared_limit=True) == DONE and not first.exists(), "built though nothing needs it")
    day.results.forget("test")
    check(gpu.run_parts(day, PARTS, shared_limit=True) == DONE and first.exists(), "a lost program was not built again")


def check_headers(folder):
    """CUDA's headers are there if the wheels have all of them, or a toolkit."""
    wheels = folder / "nvidia" / "cu13" / "include"
    for name in ("cuda_runtime_api.h", "crt/host_defines.h", "nv/target"):
        none = not Path("/usr/local/cuda/include/cuda_runtime_api.h").exists() and not os.environ.get("CUDA_HOME")
        check(not none or not machine.has_cuda_headers(folder / "torch"), f"headers without {name} are enough")
        (wheels / name).parent.mkdir(parents=True, exist_ok=True)
        (wheels / name).touch()
    check(machine.has_cuda_headers(folder / "torch"), "all headers are not enough")


def check_page(script):
    text = script.page.read_text()
    check(text.startswith("# Before\n\nkept\n") and text.endswith("## After\n") and "old" not in text,
          "the rest of the page changed, or the old tables stayed")
    for words in ("Measured on ", "LibTorch ", "commit abc1234", "| test_gpu |", "| tiny | regroup |", "| 16 | 2 | 64 |",
                  "| 64 | extra dimensions | 128 |", "| 64 | mask | 128 |", "| calibrate |", "| refit |",
                  "| verify-lowrank |", "| tiny-checkpointing |", "| tiny-compact |", "| tiny-accumulate-8 |",
                  "Two builds in turn",
                  "Fused CUDA kernels: ", "| test_uptrain |", "The peak is between "):
        check(words in text, f"the page lacks {words!r}:\n{text}")
    check("| failed |" not in text and "Not measured" not in text, f"something failed or is missing:\n{text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        check_headers(Path(folder) / "wheels")
        check_build_failure(Path(folder) / "failure")
        script = Script(folder, options.build)
        script.page.write_text(PAGE)
        script.run("nonsense", expect=USAGE)
        script.run("tables", expect=FAILED)  # nothing was measured yet
        check(script.page.read_text() == PAGE, "tables without results changed the page")
        out = script.run("next", expect=FAILED, BUILD=folder)
        check("BUILD must name a finished build" in out and "test:" not in out, f"it went on without a build:\n{out}")
        before = interrupt(script)
        script.run("all")
        after = script.files()
        check(all(after[name] == stamp for name, stamp in before.items()), "a finished step was run again")
        measured = set(PARTS) - {"peers"}  # none is installed for this check
        check({name.split("/")[0] for name in after} == measured, f"parts are missing: {sorted(after)}")
        check_copy(script, after)
        check(script.run("next").count("finished before") == len(PARTS), "a finished part was run again")
        script.run("tables")
        check_page(script)
        check(not list(Path(folder).rglob("*.part")), "a half-written file stayed")
        check_limits(script)
        check_failure(script)


if __name__ == "__main__":
    main()
