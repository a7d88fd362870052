"""Packages that are imported at their first use, so that modules with options are imported fast."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import h5py
    import numpy as np
    from numpy.typing import NDArray
else:

    class LazyPackage:
        """A package that is imported when an attribute of it is first used."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> Any:
            value = getattr(importlib.import_module(self._name), name)
            setattr(self, name, value)
            return value

    h5py, np = LazyPackage("h5py"), LazyPackage("numpy")
    NDArray = Any  # Only in annotations that are not evaluated

__all__ = ["NDArray", "h5py", "np"]
