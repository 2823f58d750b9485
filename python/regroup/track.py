"""Shows the metrics of a training run in TensorBoard, Weights & Biases, Trackio or MLflow.

    python -m regroup.track OUTPUT.run --to tensorboard [--follow]

reads metrics.jsonl of a run, during it (--follow) or afterwards. As a callback:

    with regroup.track.Tracker("wandb", name="gqa8") as tracker:
        regroup.uptrain(..., on_step=tracker)
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, Union

from regroup._errors import BadInputError, EnvironmentFailedError, UsageError

Path = Union[str, "os.PathLike[str]"]
Values = dict[str, float]


class Sink(Protocol):
    """A tracking package: takes values of a step, in order."""

    def log(self, values: Values, step: int, seconds: float) -> None: ...

    def close(self) -> None: ...


class _TensorBoard:
    def __init__(self, name: str, project: str, config: Mapping[str, Any], folder: Path) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        if os.path.isdir(folder) and os.listdir(folder):
            raise UsageError(f"{folder}: holds events already: remove it, or name another folder with --into", 2)
        self._event, self._summary = Event, Summary
        self._writer = EventFileWriter(os.fspath(folder))

    def log(self, values: Values, step: int, seconds: float) -> None:
        items = [self._summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        self._writer.add_event(self._event(wall_time=seconds, step=step, summary=self._summary(value=items)))

    def close(self) -> None:
        self._writer.close()


class _Wandb:
    """Weights & Biases, and Trackio, which has the same functions."""

    package = "wandb"

    def __init__(self, name: str, project: str, config: Mapping[str, Any], folder: Path) -> None:
        self._module = __import__(self.package)
        self._module.init(project=project, name=name, config=dict(config))

    def log(self, values: Values, step: int, seconds: float) -> None:
        self._module.log(values, step=step)

    def close(self) -> None:
        self._module.finish()


class _Trackio(_Wandb):
    package = "trackio"


class _Mlflow:
    def __init__(self, name: str, project: str, config: Mapping[str, Any], folder: Path) -> None:
        import mlflow

        self._module = mlflow
        mlflow.set_experiment(project)
        mlflow.start_run(run_name=name)
        mlflow.log_params({key: str(value)[:500] for key, value in config.items()})

    def log(self, values: Values, step: int, seconds: float) -> None:
        self._module.log_metrics(values, step=step)

    def close(self) -> None:
        self._module.end_run()


SINKS: dict[str, Any] = {"tensorboard": _TensorBoard, "wandb": _Wandb, "trackio": _Trackio, "mlflow": _Mlflow}


def values_of(line: Mapping[str, Any]) -> Values:
    """The numbers of a line of metrics.jsonl: train/loss, eval/loss and so on. Those that are not finite are left out."""
    return {
        ("eval/" + key.removeprefix("eval_") if key.startswith("eval_") else "train/" + key): float(value)
        for key, value in line.items()
        if key != "step" and isinstance(value, (int, float))
    }


class Tracker:
    """Passes lines of metrics.jsonl to `to`: a callback for `uptrain(on_step=)`. Close it, or use it in a with statement.

    `into` is the folder of TensorBoard's events (default: runs/NAME).
    """

    def __init__(
        self,
        to: str,
        name: str = "uptrain",
        project: str = "regroup",
        config: Mapping[str, Any] | None = None,
        into: Path | None = None,
    ) -> None:
        if to not in SINKS:
            raise UsageError(f"to: {to!r} is none of {', '.join(SINKS)}", 2)
        try:
            self._sink: Sink = SINKS[to](name, project, config or {}, into or os.path.join("runs", name))
        except ImportError as fault:
            raise EnvironmentFailedError(f"{to} is not installed ({fault}): pip install {to}", 4) from None
        except UsageError:
            raise
        except Exception as fault:  # of the package: no login, no server
            raise EnvironmentFailedError(f"{to}: {str(fault).splitlines()[0] if str(fault) else fault!r}", 4) from fault
        self.begin = time.time()
        self._seconds = 0.0
        self._last: dict[bool, int] = {}  # the last step that was logged, of evaluations and of steps

    def __call__(self, line: Mapping[str, Any]) -> None:
        """Logs a line. One that was logged before, such as those that a resumed run repeats, is left out."""
        step, evaluation = line["step"], "eval_loss" in line
        if step > self._last.get(evaluation, -1):
            self._last[evaluation] = step
            self._seconds += line.get("seconds") or 0.0
            self._sink.log(values_of(line), step, self.begin + self._seconds)

    def close(self) -> None:
        self._sink.close()

    def __enter__(self) -> Tracker:
        return self

    def __exit__(self, *fault: object) -> None:
        self.close()


def folder_of(run: Path) -> pathlib.Path:
    """OUTPUT.run for the output, its run, or the metrics of that."""
    path = pathlib.Path(run)
    for folder in (path.parent if path.name == "metrics.jsonl" else path, pathlib.Path(f"{path}.run")):
        if (folder / "run.json").is_file():
            return folder
    raise BadInputError(f"{path}: no training run: {path}.run/run.json is not there", 3)


def _text_from(path: pathlib.Path, place: int) -> bytes:
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        file.seek(place)
        return file.read()


def lines_of(folder: pathlib.Path, follow: bool) -> Iterator[dict[str, Any]]:
    """The lines of a run's metrics; with `follow`, until its output is complete. A resumed run repeats some."""
    metrics, output = folder / "metrics.jsonl", folder.with_suffix("")
    read = 0
    while True:
        complete = output.exists() or not follow
        text = _text_from(metrics, max(read - 1, 0))
        if read > 0 and not text.startswith(b"\n"):  # a resumed run has cut it
            read, text = 0, _text_from(metrics, 0)
        whole = text.rfind(b"\n") + 1
        for line in filter(None, text[:whole].splitlines()):
            try:
                values = json.loads(line)
                values["step"] + 0
            except (ValueError, KeyError, TypeError):
                raise BadInputError(f"{metrics}: {line[:60]!r} is no line of metrics", 3) from None
            yield values
        read = max(read - 1, 0) + whole
        if complete:
            return
        time.sleep(1)


def track(run: Path, to: str, follow: bool = False, project: str = "regroup", into: Path | None = None) -> int:
    """Passes the metrics of a run to `to`, and returns how many lines there were.

    `run` is the output of `uptrain`, its OUTPUT.run or the metrics.jsonl there. TensorBoard's events go to `into`
    (default: OUTPUT.run/tensorboard). With `follow` it returns when the run is complete.
    """
    folder = folder_of(run)
    config = json.loads((folder / "run.json").read_text()).get("recipe", {})
    count = 0
    with Tracker(to, folder.stem, project, config, into or folder / "tensorboard") as tracker:
        tracker.begin = (folder / "run.json").stat().st_mtime
        for line in lines_of(folder, follow):
            tracker(line)
            count += 1
    return count


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m regroup.track", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", help="the output of uptrain, or its OUTPUT.run")
    parser.add_argument("--to", required=True, choices=SINKS)
    parser.add_argument("--follow", action="store_true", help="wait for further lines until the run is complete")
    parser.add_argument("--project", default="regroup", help="the project, or MLflow's experiment (default: regroup)")
    parser.add_argument("--into", help="TensorBoard: the folder of the events (default: OUTPUT.run/tensorboard)")
    options = parser.parse_args(words)
    try:
        count = track(options.run, options.to, options.follow, options.project, options.into)
    except (BadInputError, EnvironmentFailedError, UsageError) as fault:
        print(f"regroup.track: {fault}", file=sys.stderr)
        return fault.exit_code
    except KeyboardInterrupt:
        return 130
    print(f"{count} lines of metrics to {options.to}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
