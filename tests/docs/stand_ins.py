"""What stands for data that take long, and for sweeps of hours, when the pages' commands are run as they are."""

import re
import tomllib
from pathlib import Path
from typing import Any

import tomli_w

PROJECT = Path(__file__).parents[2]
CHEAPER: tuple[tuple[str, str], ...] = (
    (r"\bmnist\b", "digits"),
    # The folder of a page is no clone, and pip comes with this Python's environment.
    (r"pip install( -e)? '\.", rf"pip install\1 '{PROJECT}"),
    (r"-m venv ", "-m venv --without-pip "),
    # What the CI runs itself, for minutes: that these are scripts of bash.
    (r"scripts/(quickstart|test|docs|package)\.sh", r"bash -n scripts/\1.sh"),
    (r"python scripts/benchmark\b", "python scripts/benchmark --small --repeats 1"),
)
"""Patterns in commands, with what stands for them. All else is run as the page shows it."""

PIP = {"PIP_DRY_RUN": "1", "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0"}
"""Variables with which pip makes the project's metadata, and neither installs nor downloads (0 tells it not to
isolate)."""


def cheaper(text: str) -> str:
    """Return commands, with stand-ins."""
    for pattern, instead in CHEAPER:
        text = re.sub(pattern, instead, text)
    return text


def make_sweeps_smaller(folder: Path) -> None:
    """Cut the sweeps of a folder to two values of each list, and to a tenth of the rounds."""
    for path in folder.glob("*.toml"):
        sweep = tomllib.loads(path.read_text())
        parts = [_smaller(part) for part in sweep.pop("part", [])]
        path.write_text(tomli_w.dumps({**_smaller(sweep), **({"part": parts} if parts else {})}))


def _smaller(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: _fewer(name, value) for name, value in settings.items()}


def _fewer(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_fewer(name, one) for one in value[: 1 if name == "seed" else 2]]
    if name in ("rounds", "samples"):
        return max(value // 10, 20)
    return cheaper(value) if name == "data" else value
