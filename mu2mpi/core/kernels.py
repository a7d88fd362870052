"""How kernels are compiled: one place for numba's options.

Kernels divide as numpy does and may fuse a product with a sum. Only functions marked `reduction` may add up
in another order than written; it is fixed when they are compiled, and so depends on the processor alone.
"""

import contextlib
import math
import os
import platform
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import llvmlite.binding
import numba
import numpy as np
from numpy.typing import NDArray

# Bytes. A vector of 512 bits that starts anywhere else lies on two lines and takes twice as long to load.
_CACHE_LINE = 64


def _use_widest_vectors() -> None:
    """Let LLVM use 512-bit registers, which several processors have and it avoids, unless the user chose."""
    is_chosen = "NUMBA_CPU_FEATURES" in os.environ or "NUMBA_CPU_NAME" in os.environ
    if is_chosen or platform.machine() not in ("x86_64", "AMD64"):
        return
    features = llvmlite.binding.get_host_cpu_features()
    if features.get("avx512f") and features.get("avx512dq"):
        wide = features.flatten() + ",-prefer-256-bit"
        numba.config.CPU_FEATURES = wide  # type: ignore[attr-defined]


def _discard_stale_kernels() -> None:
    """Remove compiled kernels older than any source file: numba checks that of the kernel alone."""
    package = Path(__file__).parent.parent
    newest = max(path.stat().st_mtime for path in package.rglob("*.py"))
    # numba writes an index before the code that it names: after a kill in between, it would load older code.
    for cached in sorted(package.rglob("__pycache__/*.nb[ic]"), key=lambda path: path.suffix, reverse=True):
        # Other processes may do the same at once, and the folder may be read-only.
        with contextlib.suppress(OSError):
            if cached.stat().st_mtime < newest:
                cached.unlink()


_use_widest_vectors()
_discard_stale_kernels()

OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract"}}


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function, and keep it on disk where any folder for that can be written."""
    try:
        return numba.njit(cache=True, **OPTIONS)(function)
    except RuntimeError:
        # numba found no such folder: each process compiles for itself.
        return numba.njit(**OPTIONS)(function)


@cache
def specialised(template: Callable[..., Any], tag: str, **own: Any) -> Any:
    """Compile a copy of a function, told from others by its tag, with other values of its global names."""
    name = f"{template.__name__}[{tag}]"
    copy = FunctionType(template.__code__, {**template.__globals__, **own}, name)
    copy.__qualname__, copy.__module__ = name, template.__module__
    return kernel(copy)


def why_not_compiled(function: Any, *types: Any) -> str | None:
    """Say in a line why numba cannot compile a function for arguments of these types; None if it can."""
    if not hasattr(function, "py_func"):
        return "it is an ordinary function, and numba.njit makes one of it that kernels can call"
    try:
        function.compile(types)
    except Exception as error:
        # Below a heading of each of its passes, numba says what is wrong, and then where it met that.
        lines = (line.strip() for line in str(error).splitlines())
        told = [line for line in lines if line and not line.startswith("Failed in nopython mode")]
        end = next((n for n, line in enumerate(told) if not line.endswith(":")), 0)
        return " ".join(told[: end + 1]) or type(error).__name__
    return None


# Functions that only kernels call need no way in from Python or C, which takes a third of their compilation.
_INSIDE: dict[str, Any] = {"forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
inline = numba.njit(**_INSIDE, **OPTIONS)
reduction = numba.njit(**_INSIDE, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})

# Adding 1.5 * 2^52 to a float64 below 2^51 leaves the nearest integer in its last bits. Unlike a
# conversion instruction this exists in vector form on every processor.
SHIFT = 1.5 * 2.0**52
_SHIFT_BITS = int(np.float64(SHIFT).view(np.int64))


@inline
def float_to_bits(value):  # type: ignore[no-untyped-def]
    """Return the bits of a float64 as an int64."""
    return np.float64(value).view(np.int64)


@inline
def bits_to_float(bits):  # type: ignore[no-untyped-def]
    """Return the float64 that has the bits of an int64."""
    return np.int64(bits).view(np.float64)


@inline
def round_to_integer(value):  # type: ignore[no-untyped-def]
    """Return the integer nearest to a float64 of magnitude below 2^51, ties to even, as an int64."""
    return float_to_bits(value + SHIFT) - np.int64(_SHIFT_BITS)


@inline
def scratch(size):  # type: ignore[no-untyped-def]
    """Return an array of `size` float64 of any content, at the start of a cache line."""
    block = np.empty(size + _CACHE_LINE // 8 - 1)
    skip = -block.ctypes.data % _CACHE_LINE // 8
    return block[skip : skip + size]


def aligned_zeros(shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[Any]:
    """Return a C-contiguous array of zeros, of a type of 8 bytes, at the start of a cache line."""
    block = np.zeros(math.prod(shape) + _CACHE_LINE // 8 - 1, dtype)
    skip = -block.ctypes.data % _CACHE_LINE // 8
    return block[skip : skip + math.prod(shape)].reshape(shape)
