"""Stand-ins for SLURM commands."""

import os
import stat

import pytest


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Function that puts a SLURM command on the path which prints a given text; all others fail."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("sbatch", "scontrol", "squeue"):
        (folder / name).write_text("#!/bin/sh\necho 'no such thing' >&2\nexit 1\n")
        (folder / name).chmod(stat.S_IRWXU)

    def put(name, output):
        (folder / f"{name}.txt").write_text(output)
        (folder / name).write_text('#!/bin/sh\ncat > "$0.input"\ncat "$0.txt"\n')
        return folder / f"{name}.input"

    return put
