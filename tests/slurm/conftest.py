"""Project folder with spaces in its path, and a SLURM cluster."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers.requirements import missing

PROJECT = Path(__file__).parents[2]

ENDS = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}


def works() -> bool:
    try:
        return subprocess.run(["sinfo", "-h"], capture_output=True, timeout=10, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


class Cluster:
    """SLURM commands in the project folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def command(self, *words: str | Path) -> str:
        texts = [str(word) for word in words]
        options = {"capture_output": True, "text": True, "timeout": 120}
        done = subprocess.run(texts, cwd=self.folder, check=False, **options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, *words: str | Path) -> str:
        """Submit a job and return its number."""
        return self.command("sbatch", "--parsable", *words).split(";")[0].strip()

    def show(self, job: str) -> dict[str, str]:
        text = self.command("scontrol", "show", "job", "-o", job).splitlines()[0]
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def wait(self, condition: Callable[[], bool], what: str, seconds: float = 600) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"waited {seconds} s for {what}\n{self.logs()}"
            time.sleep(0.2)

    def finish(self, job: str, requeues: int = 0) -> None:
        """Wait until a job has ended, after the given number of requeues.

        Before a requeue takes effect, the state of the job is that of a failure. A requeue must therefore be
        observed before the end counts.
        """
        if requeues > 0:
            self.wait(lambda: self._is_back(job, requeues), f"requeue {requeues} of job {job}")
        self.wait(lambda: self.show(job)["JobState"] in ENDS, f"the end of job {job}")

    def _is_back(self, job: str, requeues: int) -> bool:
        """Whether a requeued job is running, or has completed since the last look.

        SLURM delays the restart until the old credential has expired, since it would reject a revoked one.
        """
        facts = self.show(job)
        return facts["JobState"] in {"RUNNING", "COMPLETED"} and int(facts["Restarts"]) >= requeues

    def logs(self) -> str:
        return "\n".join(f"== {path.name}\n{path.read_text()}" for path in sorted(self.folder.glob("*.log")))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    if not works():
        missing('no SLURM answers here: eval "$(scripts/slurm-single-node.sh start)" starts one')
    folder = tmp_path / "a project"
    shutil.copytree(PROJECT / "jobs", folder / "jobs")
    (folder / ".venv").symlink_to(sys.prefix)
    cluster = Cluster(folder)
    yield cluster
    subprocess.run(["scancel", "--user", "root", "--full"], check=False, capture_output=True)
    cluster.wait(lambda: not cluster.command("squeue", "-h").strip(), "an empty queue")
