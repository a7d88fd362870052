"""TOML files: configurations, and schemas of tables."""

import os
import tomllib
from pathlib import Path
from typing import Any

from mu2mpi.core import examples
from mu2mpi.core.errors import InputError
from mu2mpi.core.files import check_readable

MOST_BYTES = 1 << 20


def read_toml(path: Path) -> dict[str, Any]:
    """Read a file; InputError if it cannot be read or is not TOML."""
    # Unlike that of pathlib, which raises for a name that is too long.
    if not os.path.exists(path) and (example := examples.way_to(path)):
        raise InputError(f"there is no {path}{example}")
    check_readable(path)
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InputError(f"{path} is no configuration or schema: it has more than {MOST_BYTES} bytes")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        # Python reads neither numbers of thousands of digits nor lists that are as deep.
        raise InputError(f"{path} is not valid TOML: {error}") from None
