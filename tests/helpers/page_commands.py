"""What stands for data that take long, and for long sweeps, when commands of pages are run as they are."""

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
    # What the CI runs itself, for minutes: that they know these words.
    (r"scripts/(test|docs|package)\.sh([^\n#;|&]*)", r"scripts/\1.sh \2 --help "),
    (r"scripts/quickstart\.sh", "bash -n scripts/quickstart.sh"),
    (r"python scripts/benchmark\b", "python scripts/benchmark --small --repeats 1"),
)
"""Patterns in commands, with what stands for them. All else is run as the page shows it."""

PIP = {"PIP_DRY_RUN": "1", "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0"}
"""Variables with which pip makes the project's metadata, and neither installs nor downloads.

That builds are not isolated is what 0 says.
"""

ON_MNIST = {"paper/index"}
"""Pages whose numbers are the paper's: they run on MNIST itself, the fewest rounds of each sweep."""

ONE = {"heterogeneity", "seed"}
"""Of these lists in sweeps one value is left."""


def cheaper(text: str) -> str:
    """Return commands, with stand-ins."""
    for pattern, instead in CHEAPER:
        text = re.sub(pattern, instead, text)
    return text


def make_sweeps_smaller(folder: Path, on_mnist: bool = False) -> None:
    """Cut the sweeps of a folder to two values of each list, one of `ONE`, and to a tenth of the rounds.

    On MNIST a sweep keeps its largest number of machines alone, with which runs are shortest, and its rounds.
    """
    fewer = _fewer_on_mnist if on_mnist else _fewer
    for path in folder.glob("*.toml"):
        sweep = tomllib.loads(path.read_text())
        smaller = [
            {name: fewer(name, value) for name, value in part.items()}
            for part in [sweep, *sweep.pop("part", [])]
        ]
        path.write_text(tomli_w.dumps({**smaller[0], **({"part": smaller[1:]} if smaller[1:] else {})}))


def _fewer_on_mnist(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return value[-1:] if name == "machines" else value[: 1 if name in ONE else 2]
    return value


def _fewer(name: str, value: Any) -> Any:
    if isinstance(value, list):
        # Two values may be cut to the same one.
        return list(dict.fromkeys(_fewer(name, one) for one in value[: 1 if name in ONE else 2]))
    if name in ("rounds", "samples"):
        return max(value // 10, 20)
    return cheaper(value) if name == "data" else value
