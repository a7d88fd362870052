"""The page on studies does what it shows: the commands first, then the same from Python."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "study" / "sweep-to-figure.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def rows(latex: str) -> list[str]:
    return [line for line in latex.splitlines() if line.endswith(r"\\")]


@pytest.mark.slow
def test_a_study_from_sweep_to_paper(tmp_path):
    (toml,), (commands,), code = blocks("toml"), blocks("sh"), "\n".join(blocks("python"))
    (tmp_path / "study.toml").write_text(toml)
    lines = commands.strip().splitlines()
    assert len(lines) <= 6
    folder = shlex.quote(str(Path(sys.executable).parent))
    # A path with the commands of this environment, as in a shell where it is active.
    script = "\n".join(["set -e", f"PATH={folder}:$PATH", *lines])
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "study.pdf").read_bytes().startswith(b"%PDF")
    latex = (tmp_path / "study.tex").read_text()
    assert latex.count(r"\textbf{") >= 15
    assert r"\caption{Accuracy on digits}" in latex

    assert len([line for line in code.splitlines() if line and "import" not in line]) <= 15 + 5
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # All runs were there.
    assert "90 of 90 runs are finished" in done.stderr
    assert (tmp_path / "cost.pdf").read_bytes().startswith(b"%PDF")
    assert rows(latex) == rows((tmp_path / "study.tex").read_text())
