"""What `scripts/docs.sh` needs is asked for before the site is built, which takes minutes."""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/docs.sh"


@pytest.mark.parametrize(
    ("present", "arguments", "message"),
    [
        (("java", "npm"), ("--pictures", "pictures"), "no Chromium"),
        (("npm", "chromium"), ("--check",), "--check needs java and npm"),
    ],
)
def test_what_is_missing_is_named_in_one_line(present, arguments, message, tmp_path):
    for name in ("bash", "dirname", "head", "realpath"):
        (tmp_path / name).symlink_to(shutil.which(name))
    for name in present:
        (tmp_path / name).symlink_to("/bin/true")
    done = subprocess.run(
        ["bash", SCRIPT, *arguments], env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(message)
