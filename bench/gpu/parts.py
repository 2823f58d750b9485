"""The parts of the GPU day: for each a list of steps, most useful first."""

import json
import os
import re
import sys
from pathlib import Path

import machine
from steps import Step

PARTS = ("build", "test", "train", "compare", "batches", "forms", "profile", "decode", "attention", "conversion", "memory",
         "peers", "cpu-tests")
ROUNDS = 3
FIRST_PEERS = ("bf16-compiled",)  # the others are measured in the part peers
CHECK = str(Path(__file__).resolve().parent / "check.py")


class Settings:
    """The environment variables of bench/gpu.sh."""

    def __init__(self):
        value = os.environ.get
        self.device = value("DEVICE") or "cuda"
        self.tiny = value("SHAPES") == "tiny"
        self.shapes = (value("SHAPES") or "0.1b 0.5b 1.5b 1.5b-alibi").split()
        self.limit = float(value("LIMIT") or 540)
        self.peak_flops = float(value("PEAK_FLOPS") or (0 if self.device == "cpu" else 989e12))
        self.given_build = value("BUILD")
        self.other_build = value("OTHER")
        self.build = Path(self.given_build or "build/gpu")
        self.packages = value("PACKAGES") or "build/gpu-packages"
        self.results = Path(value("RESULTS") or "build/gpu/results")
        self.work = Path(value("WORK") or "build/gpu/work")
        self.python = value("PYTHON") or sys.executable
        peers = value("PEERS", "" if self.tiny else "autocast,bf16-compiled,autocast-compiled")
        self.peers = [name for name in peers.split(",") if name]
        self.regroup = str(self.build / "regroup")
        self.rounds = 2 if self.tiny else ROUNDS


def steps_of(part, settings):
    return {"build": build, "test": test, "train": train, "compare": compare, "batches": batches, "forms": forms,
            "profile": profile, "decode": decode, "attention": attention, "conversion": conversion, "memory": memory,
            "peers": peers, "cpu-tests": cpu_tests}[part](settings)


# --- build

# Targets and the programs that they make. The GPU's tests first, so that they can run if the time ends here; the CPU's,
# which take longest to build, in the last part.
PROGRAMS = {"test_gpu": "tests/test_gpu", "regroup": "regroup", "regroup_compute": "regroup-compute",
            "bench_alibi_attention": "bench/bench_alibi_attention"}
CPU_TESTS = {"test_uptrain": "tests/test_uptrain"}


def built(settings, *targets):
    """The steps that build these programs."""
    return ("build/programs",) if settings.given_build else tuple(f"build/compile-{name}" for name in targets)


def compile_step(settings, target, program):
    cmake = machine.tool("cmake", settings.packages) or "cmake"
    return Step(f"compile-{target}", [cmake, "--build", str(settings.build), "--parallel", str(os.cpu_count()), "--target",
                                      target], continues=True, makes=str(settings.build / program))


def build(settings):
    # Not in the way of the others: without fused kernels everything runs, only slower.
    kernels = Step("fused-kernels", [settings.python, CHECK, "kernels", str(settings.build), settings.device], json.loads)
    if settings.given_build:
        names = (str(settings.build / name) for name in PROGRAMS.values())
        return [Step("programs", [settings.python, CHECK, "programs", *names], makes=settings.regroup), kernels]
    cmake = machine.tool("cmake", settings.packages) or "cmake"
    ninja = machine.tool("ninja", settings.packages)
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"] if ninja else ["-G", "Unix Makefiles"]
    prefix, cache = Path(settings.packages).absolute() / "usr", str(settings.build / "CMakeCache.txt")
    kernels.needs = "configure"
    compiling = [compile_step(settings, *both) for both in PROGRAMS.items()]
    for step in compiling:
        step.needs = "configure"
    return [
        Step("check", [settings.python, CHECK, "packages", settings.packages, settings.device], json.loads),
        Step("configure", [cmake, "-S", ".", "-B", str(settings.build), *generator, "-DCMAKE_BUILD_TYPE=Release",
                           "-DREGROUP_BENCH=ON", "-DREGROUP_WERROR=OFF", "-DCMAKE_UNITY_BUILD=ON",
                           "-DCMAKE_UNITY_BUILD_BATCH_SIZE=6", f"-DCMAKE_PREFIX_PATH={prefix}"], needs="check",
             makes=cache),
        kernels, *compiling]


# --- test

def read_catch(text):
    """Catch2's last lines: "All tests passed (12 assertions in 3 test cases)", or counts in a table."""
    passed = re.search(r"All tests passed \((\d+) assertions? in (\d+) test cases?", text)
    skipped = re.search(r"test cases:.*?(\d+) skipped", text)
    if passed:
        return {"assertions": int(passed[1]), "cases": int(passed[2])}
    counts = re.search(r"test cases:\s*(\d+)(?:.*?(\d+) passed)?", text)
    asserted = re.search(r"assertions:\s*(\d+)", text)
    return {"assertions": int(asserted[1]), "cases": int(counts[2] or 0), "skipped": int(skipped[1]) if skipped else 0}


def test(settings):
    only = ["logits on a GPU*,decoding*,heads solved*"] if settings.tiny else ["--skip-benchmarks"]
    return [Step("test_gpu", [str(settings.build / "tests/test_gpu"), *only], read_catch,
                 {"REGROUP_TEST_DEVICE": settings.device}, built=built(settings, "test_gpu"))]


def cpu_tests(settings):
    only = ["*learning rate*"] if settings.tiny else ["--skip-benchmarks"]
    compiling = [] if settings.given_build else [compile_step(settings, *both) for both in CPU_TESTS.items()]
    for step in compiling:
        step.built = ("build/configure",)
    program = settings.build / "tests/test_uptrain"
    without = f"{settings.build} has no {program.name}" if settings.given_build and not program.exists() else ""
    return [*compiling,
            Step("test_uptrain", [str(program), *only], read_catch, skip=without,
                 built=("build/programs",) if settings.given_build else ("cpu-tests/compile-test_uptrain",))]


# --- train

# Sequences per batch that fill the card at 2048 tokens each.
BATCHES = {"tiny": 2, "0.1b": 32, "0.5b": 16}


def compute(settings):
    return built(settings, "regroup", "regroup_compute")


def training(settings, shape, *more):
    sequence, steps, warmup = ("64", "3", "1") if settings.tiny else ("2048", "10", "4")
    return [settings.python, "bench/training/training.py", "--work", str(settings.work), "--shape", shape, "--device",
            settings.device, "--batch", str(BATCHES.get(shape, 8)), "--sequence", sequence, "--steps", steps, "--warmup",
            warmup, "--peak-flops", str(settings.peak_flops), "--regroup", settings.regroup, *more]


def program_runs(settings, number, programs, shapes=None):
    """One round: the programs alternate."""
    without = "" if machine.has_module(settings.python, "transformers") else f"{settings.python} has no transformers"
    return [Step(f"{shape}-{program}-{number}", training(settings, shape, "--one", program), json.loads,
                 skip=without if program != "regroup" else "", built=compute(settings))
            for shape in shapes or settings.shapes for program in programs]


def first_peers(settings):
    return [name for name in settings.peers if name in FIRST_PEERS] or settings.peers[:1]


def train(settings):
    """regroup and its first peer in turn, in several rounds; a model at a time, the most telling one first."""
    shapes = sorted(settings.shapes, key=lambda shape: shape not in ("0.5b", "1.5b"))
    return [step for shape in shapes for number in range(1, settings.rounds + 1)
            for step in program_runs(settings, number, ["regroup", *first_peers(settings)], [shape])]


def peers(settings):
    """The other peers."""
    others = [name for name in settings.peers if name not in first_peers(settings)]
    return [step for number in range(1, settings.rounds + 1) for step in program_runs(settings, number, others)]


def compare(settings):
    """Two builds in turn: BUILD's and OTHER's."""
    if not settings.other_build:
        return []
    other = str(Path(settings.other_build) / "regroup")
    return [Step(f"{shape}-{name}-{number}", [*training(settings, shape, "--one", "regroup"), "--regroup", program],
                 json.loads, built=compute(settings))
            for number in range(1, settings.rounds + 1) for shape in settings.shapes
            for name, program in (("other", other), ("regroup", settings.regroup))]


def batches(settings):
    """Several batches a step, and larger ones."""
    def run(shape, name, batch, accumulation):
        more = ["--batch", str(batch), "--ours", "--accumulate", str(accumulation)]
        return Step(f"{shape}-{name}", [*training(settings, shape, "--one", "regroup"), *more], json.loads,
                    built=compute(settings))
    shapes = settings.shapes if settings.tiny else [shape for shape in settings.shapes if shape != "0.1b"]
    return [step for shape in shapes for size in [BATCHES.get(shape, 8)]
            for step in (run(shape, "accumulate-8", size, 8), run(shape, "accumulate-16", size, 16),
                         run(shape, "twice-the-batch", 2 * size, 1))]


def forms(settings):
    """The forms of attention that cuDNN's graphs offer."""
    without = "" if machine.has_module(settings.python, "cudnn") else f"{settings.python} has no nvidia-cudnn-frontend"
    return [Step("cudnn", [settings.python, str(Path(CHECK).with_name("cudnn_forms.py"))], lambda text: {"text": text},
                 skip=without)]


def profile(settings):
    """The time of each kernel of one step, by ncu, with the clocks as they are."""
    without = "" if machine.tool("ncu", settings.packages) else "there is no ncu"
    return [Step(shape, [settings.python, CHECK, "profile", *training(settings, shape, "--one", "regroup"), "--steps", "1",
                         "--warmup", "1"], json.loads, skip=without, built=compute(settings))
            for shape in settings.shapes if shape != "0.1b"]


# --- decode

def model_step(settings, shape):
    return Step("model", training(settings, shape, "--prepare-only"), built=compute(settings),
                makes=str(settings.work / shape))


def decode(settings):
    shape = "tiny-mha" if settings.tiny else "1.5b-mha"
    # All variants are in memory at a time.
    loads = [(2, 64)] if settings.tiny else [(16, 4096), (8, 16384), (1, 4096)]
    more = ["--tokens", "4", "--rounds", "2"] if settings.tiny else []
    return [model_step(settings, shape),
            *(Step(f"batch-{batch}-context-{context}",
                   [settings.regroup, "--quiet", "bench", "decode", str(settings.work / shape), "--kv-heads", "16,8,4,2,1",
                    "--batch", str(batch), "--context", str(context), "--device", settings.device, "--dtype", "bf16",
                    "--json", *more], json.loads, needs="model", built=compute(settings)) for batch, context in loads)]


# --- attention

def read_attention(text):
    """Lines of bench_alibi_attention: tokens, form, milliseconds, times plain, MiB."""
    rows = [{"tokens": int(found[1]), "form": found[2].strip(), "ms": float(found[3]), "times": float(found[4]),
             "mib": float(found[5])}
            for found in re.finditer(r"^ *(\d+)  (.{17}) +([\d.]+) ms +([\d.]+) +(-?[\d.]+) MiB$", text, re.MULTILINE)]
    if not rows:
        raise ValueError("no rows")
    return {"rows": rows}


def attention(settings):
    program = [str(settings.build / "bench/bench_alibi_attention"), "--device", settings.device]
    ready = built(settings, "bench_alibi_attention")
    if settings.tiny:
        return [Step("head-dim-64", [*program, "--lengths", "128", "--rounds", "2", "--dtype", "fp32"], read_attention,
                     built=ready)]
    return [Step(f"head-dim-{width}", [*program, "--heads", str(4096 // width), "--kv-heads", "8", "--head-dim", str(width),
                                       "--batch", "4", "--rounds", "20"], read_attention, built=ready)
            for width in (128, 64)]


# --- conversion

def conversion(settings):
    """The conversion of best quality: statistics, lowrank and refitting on the device; lowrank also on the CPU."""
    shape, kv_heads, tokens, steps = ("tiny-mha", "4", "4096", "4") if settings.tiny else ("7b-4-layers", "8", "131072", "400")
    source, tokens_file = str(settings.work / shape), str(settings.work / "tokens.bin")
    statistics = str(settings.work / f"{shape}-statistics.safetensors")
    convert = ["convert", source, "OUT", "--kv-heads", kv_heads, "--pool", "lowrank", "--calibration", statistics, "--json"]
    refit = ["--refit", tokens_file, "--refit-steps", steps, "--refit-tokens", tokens, "--allow-any-text"]

    def timed(name, *words, needs="model"):
        out = statistics if name == "calibrate" else str(settings.work / f"{shape}-{name}")
        words = [out if word == "OUT" else word for word in words]
        return Step(name, [settings.python, CHECK, "timed", source, out, settings.regroup, "--quiet", *words],
                    json.loads, needs=needs, built=compute(settings), makes=out)

    def verified(name):
        return Step(f"verify-{name}", [settings.regroup, "--quiet", "verify", source, str(settings.work / f"{shape}-{name}"),
                                       "--calibration", statistics, "--logits", "--json", *here, *few], json.loads,
                    needs=name, built=compute(settings))
    here, few = ["--device", settings.device], ["--max-tokens", "64"] if settings.tiny else []
    return [model_step(settings, shape),
            timed("calibrate", "calibrate", source, "--data", tokens_file, "--max-tokens", tokens, "--allow-any-text", "-o", "OUT",
                  *here),
            timed("lowrank", *convert, *here, needs="calibrate"),
            timed("refit", *convert, *refit, *here, needs="calibrate"),
            timed("lowrank-on-the-cpu", *convert, needs="calibrate"),
            verified("lowrank"), verified("lowrank-on-the-cpu")]


# --- memory

def memory(settings):
    """The peak of a training step, compared with the plan's figure."""
    full = ["--memory", "full"]
    ways = {"plain": full, "compact": ["--memory", "compact"], "host": ["--memory", "host"],
            "checkpointing": [*full, "--activation-checkpointing"], "bf16-moments": [*full, "--moments", "bf16"],
            "adafactor": [*full, "--optimizer", "adafactor"]}
    if settings.device == "cpu":
        del ways["host"]  # is refused: on a CPU everything is in host memory
    return [Step(f"{shape}-{name}", [*training(settings, shape, "--one", "regroup"), "--ours", *more], json.loads,
                 built=compute(settings))
            for shape in settings.shapes for name, more in ways.items()]
