"""scripts/test.sh that is stopped while it installs: nothing of it goes on."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from helpers.hosts import wait_for

PROJECT = Path(__file__).parents[2]
SLOW_PYTHON = """#!/usr/bin/env bash
case "$*" in
    *"-m venv"*) sleep 60.25 & echo "$!" >> "$PIDS"; wait ;;
esac
"""


def is_running(pid):
    """Return whether there is such a process that has not ended: nobody may have asked for its code yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_installs_ends_with_the_script(number, tmp_path):
    (tmp_path / "scripts").mkdir()
    for name in ("scripts/test.sh", "scripts/common.sh", "setup.cfg"):
        shutil.copy(PROJECT / name, tmp_path / name)
    python, pids = tmp_path / "python", tmp_path / "pids"
    python.write_text(SLOW_PYTHON)
    python.chmod(0o755)
    surroundings = {**os.environ, "PYTHON": str(python), "PIDS": str(pids)}
    command = ["bash", tmp_path / "scripts/test.sh", "--all"]
    script = subprocess.Popen(command, env=surroundings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    started = []
    try:
        while len(started) < 2:
            assert script.poll() is None
            started = pids.read_text().split() if pids.exists() else []
            time.sleep(0.02)
        # To the script alone, as a shell does not pass Ctrl-C on to what it has started in the background.
        script.send_signal(number)
        assert script.wait(60) == 128 + number
        wait_for(lambda: not any(map(is_running, started)), "the end of what the script has started")
    finally:
        script.kill()
        for pid in filter(is_running, started):
            os.kill(int(pid), signal.SIGKILL)
