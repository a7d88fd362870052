"""Values of parametrized tests that the suite leaves out unless it is asked for everything."""

from typing import Any

import pytest


def slow(*values: Any) -> list[Any]:
    """Return parameters, each a value or a tuple of values, that are tested with the slow tests."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
        for value in values
    ]
