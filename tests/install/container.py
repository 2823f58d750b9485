"""Reads examples/container/Dockerfile without a container engine: what it copies and runs from the checkout is there, the
checkout that it gets has all of it, and its stages and arguments are declared before they are used."""

import argparse
import os
import pathlib
import re
import sys

OPTIONS = re.compile(r"--[a-z]+")


def instructions(text):
    """Pairs of an instruction and its arguments, with lines joined and comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]


def check_scripts(source, command, ignored):
    for script in re.findall(r"\bscripts/[a-z_-]+", command):
        path = source / script
        if not os.access(path, os.X_OK) or script.split("/")[0] in ignored:
            sys.exit(f"{script} is not a program of the checkout")
        for option in OPTIONS.findall(command.split(script, 1)[1].split("&&")[0]):
            if option not in path.read_text():
                sys.exit(f"{script} has no option {option}")


def check(source, dockerfile):
    ignored = [line.strip() for line in pathlib.Path(f"{dockerfile}.dockerignore").read_text().splitlines()]
    stages, declared = set(), set()
    for name, rest in instructions(dockerfile.read_text()):
        if name == "FROM":
            stages.update(re.findall(r" AS (\w+)", rest))
            declared = {"PATH", "PIP_EXTRA_INDEX_URL"}
        elif name == "ARG":
            declared.add(rest.split("=")[0])
        elif name == "COPY" and not all((source / path).exists() for path in rest.split()[:-1]):
            sys.exit(f"COPY {rest}: not in the checkout")
        elif name == "RUN":
            check_scripts(source, rest, ignored)
            unknown = (set(re.findall(r"\$(\w+)", rest)) - declared) | (set(re.findall(r"from=(\w+)", rest)) - stages)
            if unknown:
                sys.exit(f"{' '.join(sorted(unknown))}: not declared before: RUN {rest}")
    if not stages:
        sys.exit("no stage builds the wheel")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    source = parser.parse_args().source
    dockerfile = source / "examples/container/Dockerfile"
    if f"-f {dockerfile.relative_to(source)}" not in dockerfile.read_text():
        sys.exit("the Dockerfile does not say how it is built")
    check(source, dockerfile)


if __name__ == "__main__":
    main()
