"""Packs a build folder into a wheel, installs it into an empty virtual environment outside of the checkout, and uses it
there: without LibTorch, with the wrong one, and with the one of the build. Needs scikit-build-core, but no network."""

import argparse
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import venv
import zipfile

parser = argparse.ArgumentParser()
parser.add_argument("--source", type=pathlib.Path, required=True)
parser.add_argument("--build", type=pathlib.Path, required=True)
parser.add_argument("--libtorch", default="", help="its folder; empty: built without it")
options = parser.parse_args()
if not all(map(importlib.util.find_spec, ("pip", "scikit_build_core"))):
    print("skipped: scripts/setup --wheel installs scikit-build-core")
    sys.exit(77)


class Environment:
    """An empty virtual environment, and a model."""

    def __init__(self, folder):
        self.folder, self.prefix = folder, folder / "env"
        venv.create(self.prefix, symlinks=True)
        [self.site] = self.prefix.glob("lib/python3*/site-packages")
        # Nothing else in it could lead to a library or program of this machine.
        self.variables = {"PATH": f"{self.prefix / 'bin'}:/usr/bin:/bin", "HOME": str(folder), "OMP_NUM_THREADS": "1"}

    def run(self, *words, exit_code=0):
        """What a command prints to stdout; to stderr if it is expected to fail."""
        done = subprocess.run(
            list(map(str, words)), cwd=self.folder, env=self.variables, capture_output=True, text=True, check=False
        )
        if done.returncode != exit_code:
            sys.exit(f"exit code {done.returncode}, not {exit_code}, of {words}:\n{done.stdout}{done.stderr}")
        return done.stderr if exit_code else done.stdout

    def expect(self, part, text):
        if part not in text:
            sys.exit(f"{part!r} is not in:\n{text}")


def build_wheel(folder):
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", ".", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
        + ["--disable-pip-version-check", "--wheel-dir", folder]
        + ["--config-settings", f"cmake.define.REGROUP_BUILD={options.build}"]
        + ["--config-settings", f"build-dir={folder / 'build'}"],
        cwd=options.source,
        check=True,
    )
    [wheel] = folder.glob("*.whl")
    return wheel


def check_contents(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in ("regroup/py.typed", "/man/man1/regroup.1", "/completions/regroup", "/_regroup", "/regroup.fish"):
        assert any(name.endswith(wanted) for name in names), wanted
    unwanted = [name for name in names if name.endswith((".a", ".h", ".cmake")) or "torch" in name]
    assert not unwanted, unwanted


def use_without_libtorch(env):
    env.run("regroup", "inspect", "model")
    env.run("regroup", "convert", "model", "grouped", "--kv-heads", "2", "--quiet")
    env.run("regroup", "verify", "model", "grouped", "--quiet")
    env.run("regroup", "expand", "grouped", "stored", "--kv-heads", "6", "--quiet")
    (env.folder / "text.txt").write_text("To be, or not to be. " * 400)
    env.run("regroup", "tokenize", "text.txt", "--tokenizer", "bytes", "-o", "tokens.bin")
    report = env.run("python3", "-c", "import json, regroup; print(json.dumps(regroup.inspect('grouped')))")
    assert json.loads(report)["kv_heads"] == 2, report


def use_with_libtorch(env):
    version = json.loads(
        env.run(
            "python3",
            "-c",
            "import importlib.metadata as m, json; print(json.dumps(m.requires('regroup')))",
        )
    )
    [requirement] = version
    package = requirement.split(";")[0]
    refusal = env.run("regroup", "eval", "model", "--data", "tokens.bin", exit_code=4)
    env.expect(f"libtorch.so was not found: {env.prefix}/bin/python3 -m pip install '{package}'", refusal)
    other = env.site / "torch"
    (other / "lib").mkdir(parents=True)
    (other / "lib/libtorch.so").touch()
    (other / "version.py").write_text("__version__ = '1.2.3'\n")
    refusal = env.run("regroup", "eval", "model", "--data", "tokens.bin", exit_code=4)
    env.expect(f"{other} is 1.2.3: {env.prefix}/bin/python3 -m pip install '{package}'", refusal)
    (other / "lib/libtorch.so").unlink()

    # The packages next to the build's LibTorch become visible, as with --system-site-packages.
    (env.site / "more.pth").write_text(f"{pathlib.Path(options.libtorch).parent}\n")
    (other / "version.py").unlink()
    (other / "lib").rmdir()
    other.rmdir()
    config = json.loads((env.folder / "model/config.json").read_text()) | {"vocab_size": 256}
    (env.folder / "config.json").write_text(json.dumps(config))
    env.run("regroup", "init", "config.json", "bytes", "--seed", "1")
    program = """if True:
        import regroup
        losses = []
        regroup.uptrain("bytes", "trained", data="tokens.bin", steps=5, context=16, batch=2, lr=1e-2,
                        on_step=lambda line: losses.append(line["loss"]))
        after = regroup.eval("trained", data="tokens.bin", context=16, max_tokens=256)
        assert len(losses) == 5 and after["loss"] < losses[0], (losses, after)"""
    env.run("python3", "-c", program)


with tempfile.TemporaryDirectory(prefix="regroup-wheel-") as scratch:
    folder = pathlib.Path(scratch)
    wheel = build_wheel(folder)
    check_contents(wheel)
    env = Environment(folder)
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", env.prefix / "bin/python3", "install", "--quiet", "--no-index"]
        + ["--disable-pip-version-check", wheel],
        check=True,
    )
    model = folder / "model"
    model.mkdir()
    for file in (options.source / "tests/golden/llama").glob("*"):
        (model / file.name).write_bytes(file.read_bytes())
    use_without_libtorch(env)
    if options.libtorch:
        use_with_libtorch(env)
print(f"{wheel.name}: installed and used")
