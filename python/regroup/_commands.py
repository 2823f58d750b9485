"""A function for each command of the program.

Every function takes the command's options as keyword arguments (`kv_heads=8` is `--kv-heads 8`) and `on_progress`,
which is called up to ten times a second with a line of `--json-progress`: `progress` (what is done), `unit`, `done`,
`total` (None if unknown), `seconds`, and perhaps `detail`. An exception in a callback stops the command as Ctrl-C does.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from inspect import Parameter, cleandoc, signature
from typing import TYPE_CHECKING, Any, Union

from regroup import _options
from regroup._errors import DifferenceFoundError, UsageError, error_of, in_python
from regroup._program import Callback, Path, Report, program, run
from regroup.documents import is_columns, rows_of, texts_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from regroup._options import (
        BenchDecodeOptions,
        BenchTrainOptions,
        CalibrateOptions,
        ConvertOptions,
        DiffOptions,
        EvalOptions,
        ExpandOptions,
        InitOptions,
        InspectOptions,
        PlanOptions,
        PlotOptions,
        SampleOptions,
        TeachOptions,
        TokenizeOptions,
        UptrainOptions,
        VerifyOptions,
    )

Paths = Union[Path, Sequence[Path]]


def help(command: str = "") -> None:
    """Prints what a command does and its options, by the names of keyword arguments: `regroup.help("convert")`.

    Without a command it lists the commands. Raises UsageError for an unknown one.
    """
    found = subprocess.run([program(), "help", *command.replace("_", " ").split()], capture_output=True, text=True)
    if found.returncode != 0:
        raise error_of(found.returncode, found.stderr.strip().removeprefix("regroup: "), {})
    shell = False  # within an example, a command of the shell
    for line in found.stdout.splitlines():
        shell = line.startswith(("Example", "Usage")) or (shell and line.startswith(" "))
        if shell or re.match(r"  (-h, --help|--json)\b", line):
            if shell:
                print(line)
            continue
        option = re.match(r"  -.*?(  +|$)", line)  # and what stands between it and its description
        end = option.end() if option else 0
        print((in_python(line[:end]).ljust(end) + in_python(line[end:], "=")).rstrip())


def inspect(model: Path, *, on_progress: Callback | None = None, **options: Unpack[InspectOptions]) -> Report:
    """What a checkpoint is: heads per layer, KV cache, dtypes, how it was made, disagreements. Reads headers only."""
    return run("inspect", [model], options, on_progress)


def plan(model: Path, *, on_progress: Callback | None = None, **options: Unpack[PlanOptions]) -> Report:
    """What fewer kv heads would change: cache, memory and least time of a step. A config.json is enough."""
    return run("plan", [model], options, on_progress)


def diff(before: Path, after: Path, *, on_progress: Callback | None = None, **options: Unpack[DiffOptions]) -> Report:
    """Compares two checkpoints: `same`, and the tensors and settings that differ."""
    try:
        return run("diff", [before, after], options, on_progress)
    except DifferenceFoundError as found:  # an answer like the other
        return found.report


def verify(source: Path, result: Path, *, on_progress: Callback | None = None, **options: Unpack[VerifyOptions]) -> Report:
    """Repeats a recorded conversion and compares `result` with it. Raises DifferenceFoundError, with the report, if it differs."""
    return run("verify", [source, result], options, on_progress)


def convert(source: Path, output: Path, *, on_progress: Callback | None = None, **options: Unpack[ConvertOptions]) -> Report:
    """Makes `output`, a model with fewer kv heads (`kv_heads`), or in another container or architecture."""
    return run("convert", [source, output], options, on_progress)


def expand(
    source: Path, output: Path, *, on_progress: Callback | None = None, **options: Unpack[ExpandOptions]
) -> Report:
    """Stores the kv heads of a grouped model several times, `kv_heads` in all; it computes the same."""
    return run("expand", [source, output], options, on_progress)


def tokenize(
    inputs: Paths | Iterable[str | Mapping[str, Any]],
    output: Path,
    *,
    on_progress: Callback | None = None,
    **options: Unpack[TokenizeOptions],
) -> Report:
    """Makes the token file `output` of text or JSON. `tokenizer`: a tokenizer.json, a model, or "bytes".

    `inputs` are paths (one, or a list or tuple), also of Parquet and Arrow files (with pyarrow); or any other iterable
    of texts or of rows with `field` (default: "text"), such as a generator or a `datasets.Dataset`. It is streamed to
    the program, from another thread.
    """
    words: dict[str, Any] = {"output": output, **options}
    paths = _several(inputs) if isinstance(inputs, (str, bytes, os.PathLike, list, tuple)) else None
    if paths is not None and not any(map(is_columns, paths)):
        return run("tokenize", paths, words, on_progress)
    if paths is not None and not all(map(is_columns, paths)):
        raise UsageError("Parquet and Arrow files cannot be mixed with others", 2)
    rows = inputs if paths is None else (row for path in paths for row in rows_of(path))
    texts = texts_of(rows, words.pop("field", None) or "text")
    return run("tokenize", ["-"], {**words, "jsonl": True}, on_progress, documents=texts)


def calibrate(
    model: Path, output: Path, *, on_progress: Callback | None = None, **options: Unpack[CalibrateOptions]
) -> Report:
    """Measures the inputs of a model's attention layers on tokens, for `convert(calibration=output)`. Needs LibTorch.

    `text=` instead of `data` names text files.
    """
    return run("calibrate", [model], {"output": output, **options}, on_progress)


def sample(
    model: Path, output: Path | None = None, *, on_progress: Callback | None = None, **options: Unpack[SampleOptions]
) -> Report:
    """Continues `prompt=`, or makes the token file `output` of `tokens` tokens that a model writes. Needs LibTorch."""
    return run("sample", [model], {"output": output, **options}, on_progress)


def eval(model: Path, *, on_progress: Callback | None = None, **options: Unpack[EvalOptions]) -> Report:
    """Loss (nats per token) and perplexity of a model on a token file, or on `text=` files. Needs LibTorch."""
    return run("eval", [model], options, on_progress)


def init(config: Path, output: Path, *, on_progress: Callback | None = None, **options: Unpack[InitOptions]) -> Report:
    """Makes a model with random weights for a config.json. Needs LibTorch."""
    return run("init", [config, output], options, on_progress)


def teach(
    model: Path, output: Path, *, on_progress: Callback | None = None, **options: Unpack[TeachOptions]
) -> Report:
    """Stores a teacher's predictions, for `uptrain(teacher_logits=output)`. Needs LibTorch."""
    return run("teach", [model], {"output": output, **options}, on_progress)


def uptrain(
    model: Path,
    output: Path,
    *,
    on_step: Callback | None = None,
    on_progress: Callback | None = None,
    **options: Unpack[UptrainOptions],
) -> Report:
    """Trains a model for a share (`alpha`) of its pretraining, or for `steps`. Needs LibTorch.

    `text=` instead of `data` names text files. `on_step` is called with each line of metrics.jsonl: after a step (`step`, `loss`, `lr`, ...), and after an
    evaluation (`step`, `eval_loss`, ...). Ctrl-C saves the state and raises StateSaved; the same call with
    `resume=True` continues.
    """
    return run("uptrain", [model], {"output": output, **options}, on_progress, on_step)


def bench_train(model: Path, *, on_progress: Callback | None = None, **options: Unpack[BenchTrainOptions]) -> Report:
    """Measures training steps: tokens/s, share of the machine's speed, memory. Needs LibTorch."""
    return run("bench train", [model], options, on_progress)


def bench_decode(models: Paths, *, on_progress: Callback | None = None, **options: Unpack[BenchDecodeOptions]) -> Report:
    """Measures time per token and size of the KV cache when decoding. Needs LibTorch."""
    return run("bench decode", _several(models), options, on_progress)


def plot(runs: Paths, output: Path, **options: Unpack[PlotOptions]) -> None:
    """Draws the curves of training runs into `output`: one chart (.svg), or a page of all (.html)."""
    run("plot", _several(runs), {"output": output, **options})


def _several(paths: Paths) -> Sequence[Path]:
    return [paths] if isinstance(paths, (str, bytes, os.PathLike)) else paths


def _with_options_shown(function: Any) -> None:
    """Lists the options in the function's signature, which help() and notebooks show, in place of **options."""
    name = function.__name__
    command = getattr(_options, name.title().replace("_", "") + "Options")
    shown = signature(function)
    *named, last = shown.parameters.values()
    if last.kind is Parameter.VAR_KEYWORD:
        options = []
        for key, kind in command.__annotations__.items():
            text = getattr(kind, "__forward_arg__", kind)
            needed = text.startswith("Required[")
            options.append(
                Parameter(
                    key,
                    Parameter.KEYWORD_ONLY,
                    default=Parameter.empty if needed else None,
                    annotation=text[len("Required[") : -1] if needed else text,
                )
            )
        function.__signature__ = shown.replace(parameters=[*named, *options])
        function.__doc__ = cleandoc(function.__doc__ or "") + f'\n\n`regroup.help("{name}")` says what each option does.'


for _function in list(globals().values()):
    if getattr(_function, "__module__", None) == __name__ and "options" in getattr(_function, "__annotations__", ()):
        _with_options_shown(_function)
