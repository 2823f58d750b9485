"""Runs that torchrun starts again after a failure: they end as if nothing had happened."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time
import unittest
import unittest.mock

import program

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATHS = f"{ROOT / '.venv/bin'}:{os.environ['PATH']}"
STEPS = 400


def free_port():
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        return any_port.getsockname()[1]


def ranks_of(agent):
    """The processes that an agent of torchrun has started, by rank."""
    found = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int(re.search(r"PPid:\t(\d+)", (entry / "status").read_text()).group(1))
            variables = (entry / "environ").read_text().split("\0")
        except (OSError, AttributeError):
            continue
        rank = [value[5:] for value in variables if value.startswith("RANK=")]
        if parent == agent.pid and rank:
            found[int(rank[0])] = int(entry.name)
    return found


def is_asked_to_stop(process):
    """Whether a process that is paused has a SIGTERM waiting for it."""
    masks = re.findall(r"(?:SigPnd|ShdPnd):\t(\w+)", pathlib.Path(f"/proc/{process}/status").read_text(encoding="utf-8"))
    return any(int(mask, 16) >> (signal.SIGTERM - 1) & 1 for mask in masks)


@unittest.skipUnless(shutil.which("torchrun", path=PATHS), "no torchrun")
class Torchrun(program.TrainingTest):
    def setUp(self):
        super().setUp()
        self.port = free_port()

    def start(self, output, *torchrun, shard="optimizer"):
        """An agent of torchrun on this machine, whose ranks train the model into `output`."""
        log = open(self.scratch / f"agent-{time.monotonic_ns()}", "w", encoding="utf-8")
        self.addCleanup(log.close)
        agent = subprocess.Popen(
            ["torchrun", "--no-python", "--max-restarts", "3", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{self.port}",
             "--local-addr", "127.0.0.1", "--rdzv-id", "test", "--rdzv-conf", "last_call_timeout=1,keep_alive_interval=1", *torchrun,
             os.environ["REGROUP_PROGRAM"], "uptrain", program.GOLDEN / "llama", "--data", self.scratch / "corpus.bin",
             "--steps", str(STEPS), "--context", "8", "--batch", "1", "--accumulate", "2", "--lr", "2e-4", "--threads", "1",
             "--save-every", "20", "--output", self.scratch / output, "--resume=auto", "--shard", shard, "--timeout", "60"],
            env={**os.environ, "PATH": PATHS}, stdout=log, stderr=subprocess.STDOUT, text=True)
        agent.log = pathlib.Path(log.name)
        self.addCleanup(self.end, agent)
        return agent

    def end(self, agent):
        if agent.poll() is None:
            for process in ranks_of(agent).values():
                os.kill(process, signal.SIGKILL)
            agent.kill()
            agent.wait()

    def metrics(self, output):
        lines = (self.scratch / f"{output}.run/metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def wait_for(self, agents, holds):
        for _ in range(6000):
            if holds():
                return
            for agent in agents:
                self.assertIsNone(agent.poll(), agent.log.read_text(encoding="utf-8"))
            time.sleep(0.01)
        self.fail("\n".join(agent.log.read_text(encoding="utf-8") for agent in agents))

    def wait_for_step(self, agents, output, step):
        path = self.scratch / f"{output}.run/metrics.jsonl"
        self.wait_for(agents, lambda: path.exists() and path.read_text(encoding="utf-8").count("\n") >= step)

    def finish(self, agent):
        self.assertEqual(agent.wait(timeout=120), 0, agent.log.read_text(encoding="utf-8"))

    def weights(self, output):
        return (self.scratch / output / "model.safetensors").read_bytes()

    def check_losses(self, output, other):
        """Other sums of rounding errors, the same run."""
        ours, theirs = self.metrics(output), self.metrics(other)
        self.assertEqual([line["step"] for line in ours], [line["step"] for line in theirs])
        for one, two in zip(ours, theirs):
            self.assertLess(abs(one["loss"] - two["loss"]), 1e-4 * two["loss"], one["step"])

    def test_a_killed_rank_changes_nothing(self):
        for shard in ("optimizer", "full"):
            with self.subTest(shard=shard):
                self.finish(self.start(f"whole-{shard}", "--nproc-per-node", "2", shard=shard))
                killed = f"killed-{shard}"
                agent = self.start(killed, "--nproc-per-node", "2", shard=shard)
                for rank, step in ((1, 30), (0, 90), (1, 150)):
                    self.wait_for_step([agent], killed, step)
                    os.kill(ranks_of(agent)[rank], signal.SIGKILL)
                self.finish(agent)
                self.assertEqual(len(self.metrics(killed)), STEPS)
                self.assertEqual(self.weights(killed), self.weights(f"whole-{shard}"))

    def test_ranks_that_were_killed_before_all_had_met_do_not_disturb(self):
        agent = self.start("out", "--nproc-per-node", "2")
        self.wait_for([agent], lambda: len(ranks_of(agent)) == 2)
        os.kill(ranks_of(agent)[1], signal.SIGKILL)
        self.finish(agent)
        self.assertEqual(len(self.metrics("out")), STEPS)

    def restart_paused(self, first, agents):
        """Waits until the first agent restarts its rank, which is paused, because of what another machine does."""
        process = ranks_of(first)[0]
        self.wait_for(agents, lambda: is_asked_to_stop(process))
        os.kill(process, signal.SIGCONT)

    def test_a_failure_that_only_one_machine_counts(self):
        self.finish(self.start("whole", "--nproc-per-node", "2"))
        agents = [self.start("out", "--nnodes", "2", "--nproc-per-node", "1") for _ in range(2)]
        self.wait_for_step(agents, "out", 30)
        first, second = sorted(agents, key=lambda agent: min(ranks_of(agent)))
        os.kill(ranks_of(first)[0], signal.SIGSTOP)
        os.kill(ranks_of(second)[1], signal.SIGKILL)
        self.restart_paused(first, agents)
        self.finish(first)
        self.finish(second)
        self.assertEqual(self.weights("out"), self.weights("whole"))

    def add_machine(self, first, output, *torchrun):
        """Starts an agent while the first one's run is paused: the ranks of both start again, as two of one run."""
        os.kill(ranks_of(first)[0], signal.SIGSTOP)
        second = self.start(output, *torchrun)
        self.restart_paused(first, [first, second])
        self.wait_for([first, second], lambda: len(ranks_of(second)) == 1)
        return second

    @unittest.mock.patch.dict(os.environ, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")  # else torchrun's new machines fail
    def test_a_machine_comes_and_goes(self):
        self.finish(self.start("whole", "--nproc-per-node", "2"))
        elastic = ("--nnodes", "1:2", "--nproc-per-node", "1")
        first = self.start("out", *elastic)
        self.wait_for_step([first], "out", 30)
        second = self.add_machine(first, "out", *elastic)
        self.wait_for_step([first, second], "out", 100)
        self.end(second)
        self.wait_for_step([first], "out", 200)
        third = self.add_machine(first, "out", *elastic)
        self.finish(first)
        self.finish(third)
        self.check_losses("out", "whole")


if __name__ == "__main__":
    unittest.main()
