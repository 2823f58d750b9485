"""Packs a build folder into a wheel, installs it into an empty virtual environment outside of the checkout, and uses it
there: without LibTorch, with a wrong one, and with that of the build. Needs scikit-build-core, but no network."""

import argparse
import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]

# Trains a model of bytes for five steps.
TRAINING = """
import regroup
losses = []
regroup.uptrain("bytes", "trained", data="tokens.bin", steps=5, context=16, batch=2, lr=1e-2,
                on_step=lambda line: losses.append(line["loss"]))
after = regroup.eval("trained", data="tokens.bin", context=16, max_tokens=256)
assert len(losses) == 5 and after["loss"] < losses[0], (losses, after)
"""


def expect(part, text):
    if part not in text:
        sys.exit(f"{part!r} is not in:\n{text}")


class Environment:
    """An empty virtual environment. Commands run in the folder that it is in, without variables of this process."""

    def __init__(self, folder):
        self.folder, self.prefix = folder, folder / "env"
        venv.create(self.prefix, symlinks=True)
        [self.packages] = self.prefix.glob("lib/python3*/site-packages")
        self.variables = {"PATH": f"{self.prefix}/bin:/usr/bin:/bin", "HOME": str(folder), "OMP_NUM_THREADS": "1"}

    def run(self, *words, exit_code=0):
        """What a command prints to stdout; to stderr if it is expected to fail."""
        done = subprocess.run(words, cwd=self.folder, env=self.variables, capture_output=True, text=True, check=False)
        if done.returncode != exit_code:
            sys.exit(f"exit code {done.returncode}, not {exit_code}, of {words}:\n{done.stdout}{done.stderr}")
        return done.stderr if exit_code else done.stdout


def build_wheel(options, folder):
    settings = [f"cmake.define.REGROUP_BUILD={options.build}", f"build-dir={folder / 'build'}"]
    given = [word for setting in settings for word in ("--config-settings", setting)]
    command = [*PIP, "wheel", ".", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder, *given]
    subprocess.run(command, cwd=options.source, check=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def check_contents(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in ("regroup/py.typed", "/man/man1/regroup.1", "/completions/regroup", "/_regroup", "/regroup.fish"):
        assert any(name.endswith(wanted) for name in names), wanted
    unwanted = [name for name in names if name.endswith((".a", ".h", ".cmake")) or "libtorch" in name]
    assert not unwanted, unwanted


def use_without_libtorch(env):
    env.run("regroup", "inspect", "model")
    env.run("regroup", "convert", "model", "grouped", "--kv-heads", "2")
    env.run("regroup", "verify", "model", "grouped")
    env.run("regroup", "expand", "grouped", "stored", "--kv-heads", "6")
    (env.folder / "text.txt").write_text("To be, or not to be. " * 400)
    env.run("regroup", "tokenize", "text.txt", "--tokenizer", "bytes", "-o", "tokens.bin")
    env.run("python3", "-c", "import regroup; assert regroup.inspect('grouped')['kv_heads'] == 2")


def check_refusals(env):
    """Without LibTorch, and with one of another version, the error says what to type: what the extra requires."""
    requirement = env.run("python3", "-c", "import importlib.metadata as m; print(*m.requires('regroup'))").split(";")[0]
    remedy = f"{env.prefix}/bin/python3 -m pip install '{requirement}'\n"
    expect(f"libtorch.so was not found: {remedy}", env.run("regroup", "eval", "model", exit_code=4))
    other = env.packages / "torch"
    (other / "lib").mkdir(parents=True)
    (other / "lib/libtorch.so").touch()
    (other / "version.py").write_text("__version__ = '1.2.3'\n")
    expect(f"{other} is 1.2.3: {remedy}", env.run("regroup", "eval", "model", exit_code=4))
    shutil.rmtree(other)


def use_with_libtorch(env, libtorch):
    if libtorch.name == "torch":  # its packages become visible, as with --system-site-packages
        (env.packages / "more.pth").write_text(f"{libtorch.parent}\n")
    else:  # an unpacked archive
        env.variables["LibTorch_ROOT"] = str(libtorch)
    config = json.loads((env.folder / "model/config.json").read_text()) | {"vocab_size": 256}
    (env.folder / "config.json").write_text(json.dumps(config))
    env.run("regroup", "init", "config.json", "bytes", "--seed", "1")
    env.run("python3", "-c", TRAINING)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--libtorch", default="", help="its folder; empty: built without it")
    options = parser.parse_args()
    if not all(map(importlib.util.find_spec, ("pip", "scikit_build_core"))):
        print("skipped: scripts/setup --wheel installs scikit-build-core")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="regroup-wheel-") as scratch:
        folder = pathlib.Path(scratch)
        wheel = build_wheel(options, folder)
        check_contents(wheel)
        env = Environment(folder)
        subprocess.run([*PIP, "--python", env.prefix / "bin/python3", "install", "--no-index", wheel], check=True)
        shutil.copytree(options.source / "tests/golden/llama", folder / "model")
        use_without_libtorch(env)
        if options.libtorch:
            check_refusals(env)
            use_with_libtorch(env, pathlib.Path(options.libtorch))
    print(f"{wheel.name}: installed and used")


main()
