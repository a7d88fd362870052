"""What a test needs and a computer may lack: a reason to skip, but not in continuous integration."""

import os
from typing import NoReturn

import pytest


def missing(message: str) -> NoReturn:
    """Skip the test, or fail it where everything must be there."""
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)
