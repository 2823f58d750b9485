"""Runs cases in one runtime, in the Python environment of that runtime. Each in_*.py is such a program:

    in_NAME.py CASES OUTPUT CASE...

The name and version of the runtime go to OUTPUT/version. For each case, one line of JSON goes to OUTPUT/results.jsonl: {"name", "error"} or {"name", "tokens",
"bytes_per_token"}. Log-probabilities go to OUTPUT/CASE.npy. A case that ends the process has no line; the caller
continues with the next one.
"""

import json
import os
import pathlib
import sys
import traceback

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
os.environ.setdefault("OMP_NUM_THREADS", "1")  # models this small would only wait for more

import numpy as np  # noqa: E402


class Refused(Exception):
    """The case is not for this runtime: its message says why."""


def log_softmax(logits):
    logits = np.asarray(logits, dtype=np.float64)
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def reason(fault):
    """The kind and the first line of an error."""
    lines = [line for line in str(fault).splitlines() if line.strip()] or [""]
    return f"{type(fault).__name__}: {lines[0].strip()[:300]}"


def run_cases(run, version):
    """`version`: the runtime's name and version. run(folder, facts) returns tokens [P, N], log-probabilities [P, N, V] or None, and bytes of cache per token or
    None."""
    cases, output = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    (output / "version").write_text(version)
    for name in sys.argv[3:]:
        facts = json.loads((cases / name / "case.json").read_text())
        line = {"name": name}
        try:
            tokens, logprobs, bytes_per_token = run(cases / name, facts)
            line |= {"tokens": np.asarray(tokens).tolist(), "bytes_per_token": bytes_per_token}
            if logprobs is not None:
                np.save(output / f"{name}.npy", np.asarray(logprobs, dtype=np.float64))
        except (Exception, SystemExit) as fault:  # whatever a runtime raises for a model that it does not take
            if not isinstance(fault, Refused):
                traceback.print_exc()
            line["error"] = str(fault) if isinstance(fault, Refused) else reason(fault)
        with open(output / "results.jsonl", "a") as results:
            results.write(json.dumps(line) + "\n")
