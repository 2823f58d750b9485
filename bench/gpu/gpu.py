#!/usr/bin/env python3
"""The parts of bench/gpu.sh, which explains them: runs steps, and says what is done."""

import os
import signal
import sys
import time
from pathlib import Path

import machine
import parts
import tables
from steps import DONE, FAILED, SKIPPED, STOPPING, Results, Runner, Stopped

DONE_STATUS, FAILED_STATUS, USAGE_STATUS, LEFT_STATUS = 0, 1, 2, 3
LEAST_SECONDS = 10  # with less left of the time limit, no step is begun


class Day:
    def __init__(self):
        self.settings = parts.Settings()
        self.results = Results(self.settings.results, os.environ.get("COPY"))
        self.program = machine.digest_of(self.settings.build / "regroup-compute")
        self.steps = {part: parts.steps_of(part, self.settings) for part in parts.PARTS}

    def states(self, part):
        """The state of each step, None: not yet run, or to be repeated."""
        found = {step.name: (self.results.get(part, step.name) or {}).get("state") for step in self.steps[part]}
        return {step.name: found[step.name] if found[step.name] != DONE or self.finished(part, step) else None
                for step in self.steps[part]}

    def finished(self, part, step):
        """A build that failed can be repaired, so it is tried again. What is gone is made again if it is needed."""
        result = self.results.get(part, step.name)
        if result is None:
            return False
        if part != "build" and result["machine"].get("program", self.program) != self.program:
            return False  # the program has changed since
        if result["state"] != DONE:
            return part != "build" and not step.continues
        return self.is_there(step) or all(self.finished(*each) for each in self.users(part, step))

    def is_there(self, step):
        return not step.makes or Path(step.makes).exists()

    def users(self, part, step):
        """The steps that need this one, with their parts."""
        return [(other, each) for other, steps in self.steps.items() for each in steps
                if f"{part}/{step.name}" in each.built or (other == part and each.needs == step.name)]

    def unfinished(self, part):
        return [step for step in self.steps[part] if not self.finished(part, step)]

    def todo(self, part):
        """The steps to run. In a folder that is configured anew, everything is built anew."""
        steps = self.unfinished(part)
        names = {step.name for step in steps} | ({"check"} if any(step.name == "configure" for step in steps) else set())
        for step in self.steps[part]:
            if part == "build" and step.needs in names:
                names.add(step.name)
        return [step for step in self.steps[part] if step.name in names]

    def not_built(self, step):
        """The builds that the step needs and that are not there."""
        def there(part, name):
            done = (self.results.get(part, name) or {}).get("state") == DONE
            return done and all(self.is_there(each) for each in self.steps[part] if each.name == name)
        return [name for name in step.built if not there(*name.split("/"))]

    def nothing_built(self):
        states = self.states("build")
        return any(states.get(name) == FAILED for name in ("check", "configure", "programs"))

    def run(self, part, deadline):
        """Runs the steps of a part that have no result. False if the time ended before all were run."""
        runner = Runner(self.results, self.settings.limit, {**machine.facts(self.settings.device), "program": self.program})
        for step in self.todo(part):
            missing = self.not_built(step)
            if missing:
                print(f"{part}: {step.name}: not run without {', '.join(missing)}", flush=True)
                continue
            left = deadline - time.monotonic()
            if left < min(LEAST_SECONDS, self.settings.limit / 2):
                print(f"{part}: the time limit ends here; the next call continues with {step.name}", flush=True)
                return False
            print(f"{part}: {step.name} ...", flush=True)
            state = runner.run(part, step, left)
            self.tell(part, step.name, state)
            if state is None:
                return False
        return True

    def tell(self, part, name, state):
        if state is None:
            print(f"{part}: {name}: the time limit ended it; the next call runs it again", flush=True)
            return
        result = self.results.get(part, name)
        seconds = f" in {result['seconds']} s" if "seconds" in result else ""
        print(f"{part}: {name}: {state}{seconds}" + (f": {result['why']}" if "why" in result else ""), flush=True)
        for line in result.get("last_lines", []) + (result.get("values") or {}).get("notes", []):
            print(f"    {line}", flush=True)

    def status(self):
        for part in parts.PARTS:
            states = self.states(part)
            counts = {state: list(states.values()).count(state) for state in (DONE, FAILED, SKIPPED, None)}
            words = [f"{count} {state or 'left'}" for state, count in counts.items() if count]
            print(f"{part:<11} {', '.join(words)}")
            for name, state in states.items():
                if state == FAILED:
                    print(f"            {name}: {self.results.get(part, name)['why']}")

    def exit_status(self, names):
        """Steps whose programs could not be built are not left for the next call: that would not end."""
        states = {(part, name): state for part in parts.PARTS for name, state in self.states(part).items()}
        chosen = [(part, step) for part in names for step in self.steps[part]]
        stuck = [(part, step.name) for part, step in chosen
                 if any(states[tuple(name.split("/"))] == FAILED for name in self.not_built(step))]
        left = [step for part, step in chosen if states[part, step.name] is None and (part, step.name) not in stuck]
        failed = stuck or any(states[part, step.name] == FAILED for part, step in chosen)
        return LEFT_STATUS if left else FAILED_STATUS if failed else DONE_STATUS


def run_parts(day, names, shared_limit):
    """Each part has the time limit, or all share one. What one part leaves does not stop the others."""
    begin = time.monotonic()
    for part in names:
        if not day.unfinished(part):
            print(f"{part}: finished before", flush=True)
            continue
        if part != "build" and day.nothing_built():
            print("gpu.sh: without a build nothing else can run; the next call tries it again", file=sys.stderr)
            return FAILED_STATUS
        start = begin if shared_limit else time.monotonic()
        if not day.run(part, start + day.settings.limit) and shared_limit:
            break
    return day.exit_status(names)


def stop(number, _frame):
    raise Stopped(signal.Signals(number).name)


def parts_named(names, again):
    """The parts to run; None: a name is wrong."""
    if names in (["next"], ["all"]):
        return None if again else parts.PARTS
    return names if names and all(name in parts.PARTS for name in names) else None


def main(words):
    for number in STOPPING:
        signal.signal(number, stop)
    day = Day()
    if words == ["status"]:
        day.status()
        return DONE_STATUS
    if words == ["tables"]:
        return tables.write(day.settings, day.results, Path(os.environ.get("DOC") or "docs/benchmarks.md"))
    again = words[:1] == ["--again"]
    names = words[1:] if again else words
    chosen = parts_named(names, again)
    if chosen is None:
        print(f"gpu.sh: {' '.join(words)}: unknown; there are next, all, status, tables, packages, --again PART, and the "
              f"parts {', '.join(parts.PARTS)}", file=sys.stderr)
        return USAGE_STATUS
    if again:
        for part in names:
            day.results.forget(part)
    try:
        return run_parts(day, chosen, shared_limit=names == ["next"])
    except Stopped as reason:
        print(f"gpu.sh: ended by {reason}; the next call continues", file=sys.stderr)
        return LEFT_STATUS


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
