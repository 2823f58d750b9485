"""The files in examples/jobs start runs: on CPUs, with stand-ins for Slurm's programs."""

import json
import os
import pathlib
import shutil
import subprocess
import unittest

import program

ROOT = pathlib.Path(__file__).resolve().parents[2]
JOBS = ROOT / "examples/jobs"

# Two tasks on this machine, as srun starts them. Ends with the first task's exit code.
SRUN = """#!/usr/bin/env bash
shift
for task in 1 0; do
  SLURM_PROCID=$task SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=$task SLURM_STEP_ID=0 "$@" &
done
wait $!
"""


class Jobs(program.TrainingTest):
    def setUp(self):
        super().setUp()
        programs = self.scratch / "programs"
        programs.mkdir()
        (programs / "regroup").symlink_to(pathlib.Path(os.environ["REGROUP_PROGRAM"]).resolve())
        self.put(programs / "srun", SRUN)
        self.put(programs / "scontrol", f'#!/usr/bin/env bash\necho "$@" > {self.scratch}/requeued\n')
        self.environment = {
            **os.environ, "PATH": f"{programs}:{ROOT / '.venv/bin'}:{os.environ['PATH']}", "DEVICE": "cpu", "DTYPE": "fp32",
            "MODEL": str(ROOT / "tests/golden/llama"), "DATA": str(self.scratch / "corpus.bin"),
            "OUTPUT": str(self.scratch / "out")}

    def put(self, path, text):
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def start(self, job, *options, **environment):
        return subprocess.run([JOBS / job, *options, "--steps", "4", "--context", "8", "--batch", "1", "--threads", "1", "--quiet"],
                              env={**self.environment, **environment}, capture_output=True, text=True, timeout=120)

    def check_trained(self, run):
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertTrue((self.scratch / "out/config.json").exists())

    def test_one_gpu(self):
        self.check_trained(self.start("one-gpu.sh"))

    @unittest.skipUnless(shutil.which("torchrun", path=f"{ROOT / '.venv/bin'}:{os.environ['PATH']}"), "no torchrun")
    def test_torchrun_starts_two_ranks(self):
        self.check_trained(self.start("torchrun.sh", GPUS="2", PORT="0"))

    def test_slurm_starts_all_tasks_and_requeues_a_stopped_job(self):
        job = self.scratch / "slurm.sbatch"
        shutil.copy(JOBS / "slurm.sbatch", job)
        job.chmod(0o755)
        slurm = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_NODELIST": "localhost", "SLURM_NODELIST": "localhost",
                 "MASTER_ADDR": "127.0.0.1"}
        self.check_trained(self.start(job, **slurm))
        self.assertFalse((self.scratch / "requeued").exists())
        self.put(self.scratch / "programs/srun", "#!/usr/bin/env bash\nexit 75\n")
        stopped = self.start(job, **slurm)
        self.assertEqual(stopped.returncode, 75)
        self.assertEqual((self.scratch / "requeued").read_text(encoding="utf-8"), f"requeue {os.getpid()}\n")

    def test_kubernetes_options_are_options(self):
        text = (JOBS / "kubernetes.yaml").read_text(encoding="utf-8")
        command = json.loads('["' + '","'.join(
            word.strip().strip('"') for word in text[text.index("[regroup") + 1:text.index("]")].split(",")) + '"]')
        changed = {"/models/Llama-2-7b-gqa8": self.environment["MODEL"], "/models/corpus.bin": self.environment["DATA"],
                   "/models/Llama-2-7b-gqa8-up": self.environment["OUTPUT"], "cuda": "cpu"}
        command = [changed.get(word, word) for word in command] + ["--dry-run", "--context", "8"]
        ranks = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        plan = subprocess.run(command, env={**self.environment, **ranks}, capture_output=True, text=True, timeout=60)
        self.assertEqual(plan.returncode, 0, plan.stderr)
        self.assertIn("a part of the weights each", plan.stdout)


if __name__ == "__main__":
    unittest.main()
