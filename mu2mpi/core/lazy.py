"""Lazy imports of NumPy and h5py, which keep the start of the command line fast."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import h5py
    import numpy as np
    from numpy.typing import NDArray
else:

    class LazyPackage:
        """Proxy of a Python package that imports the package on the first access to an attribute."""

        def __init__(self, package_name: str) -> None:
            self._package_name = package_name

        def __getattr__(self, attribute: str) -> Any:
            value = getattr(importlib.import_module(self._package_name), attribute)
            setattr(self, attribute, value)
            return value

    h5py, np = LazyPackage("h5py"), LazyPackage("numpy")
    NDArray = Any  # Used in annotations only

__all__ = ["NDArray", "h5py", "np"]
