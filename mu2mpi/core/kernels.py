"""Compilation of numba kernels: decorators, specialised copies, and functions that kernels share.

Products and sums may be fused (FMA). A `reduction_kernel` may reorder sums, by the processor type.
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

_CACHE_LINE_BYTES = 64  # A 512-bit vector across two lines takes twice as long to load.


def _enable_wide_vectors() -> None:
    is_chosen = "NUMBA_CPU_FEATURES" in os.environ or "NUMBA_CPU_NAME" in os.environ
    if is_chosen or platform.machine() not in ("x86_64", "AMD64"):
        return
    features = llvmlite.binding.get_host_cpu_features()
    if features.get("avx512f") and features.get("avx512dq"):
        cpu_features = features.flatten() + ",-prefer-256-bit"
        numba.config.CPU_FEATURES = cpu_features  # type: ignore[attr-defined]


def _discard_stale_kernels() -> None:
    """Remove cached numba kernels older than any source file; numba checks only the kernel's own file."""
    package = Path(__file__).parent.parent
    newest = max(path.stat().st_mtime for path in package.rglob("*.py"))
    # numba writes an index before its code; if it is killed in between, the index must not name stale code.
    for cached in sorted(package.rglob("__pycache__/*.nb[ic]"), key=lambda path: path.suffix, reverse=True):
        with contextlib.suppress(OSError):  # The folder may be shared or read-only.
            if cached.stat().st_mtime < newest:
                cached.unlink()


_enable_wide_vectors()
_discard_stale_kernels()

NUMBA_OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract"}}


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function with numba (decorator), with the result cached on disk if that is possible."""
    try:
        return numba.njit(cache=True, **NUMBA_OPTIONS)(function)
    except RuntimeError:
        return numba.njit(**NUMBA_OPTIONS)(function)  # numba found no writable cache folder.


@cache
def specialise_kernel(template: Callable[..., Any], cache_tag: str, **global_values: Any) -> Any:
    """Compile a copy of a function with some globals replaced; `cache_tag` identifies the cached copy."""
    name = f"{template.__name__}[{cache_tag}]"
    copy = FunctionType(template.__code__, {**template.__globals__, **global_values}, name)
    copy.__qualname__, copy.__module__ = name, template.__module__
    return kernel(copy)


def find_compilation_error(function: Any, *types: Any) -> str | None:
    """One-line reason why numba cannot compile a function for given argument types; None if it can."""
    if not hasattr(function, "py_func"):
        return "it is an ordinary function. Decorate it with numba.njit, so that kernels can call it"
    try:
        function.compile(types)
    except Exception as error:
        # numba prints a heading of the failed pass, headings that end in a colon, the reason, then the place.
        lines = (line.strip() for line in str(error).splitlines())
        message = [line for line in lines if line and not line.startswith("Failed in nopython mode")]
        reason = next((n for n, line in enumerate(message) if not line.endswith(":")), 0)
        return " ".join(message[: reason + 1]) or type(error).__name__
    return None


# Functions that only kernels call need no wrappers for Python and C, a third of their compilation time.
_INLINE_OPTIONS: dict[str, Any] = {"forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
inline = numba.njit(**_INLINE_OPTIONS, **NUMBA_OPTIONS)
reduction_kernel = numba.njit(**_INLINE_OPTIONS, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})

# Adding 1.5 * 2^52 to a float64 of magnitude below 2^51 rounds it to the nearest integer, in the last bits of
# the sum. Unlike conversion instructions, addition is vectorised on every processor.
ROUNDING_ADDEND = 1.5 * 2.0**52
_ROUNDING_ADDEND_BITS = int(np.float64(ROUNDING_ADDEND).view(np.int64))


@inline
def float_to_bits(value):  # type: ignore[no-untyped-def]
    """Reinterpret the bits of a float64 as an int64."""
    return np.float64(value).view(np.int64)


@inline
def bits_to_float(bits):  # type: ignore[no-untyped-def]
    """Reinterpret the bits of an int64 as a float64."""
    return np.int64(bits).view(np.float64)


@inline
def round_to_integer(value):  # type: ignore[no-untyped-def]
    """Round a float64 of magnitude below 2^51 to the nearest int64, ties to even."""
    return float_to_bits(value + ROUNDING_ADDEND) - np.int64(_ROUNDING_ADDEND_BITS)


@inline
def aligned_empty(size):  # type: ignore[no-untyped-def]
    """Uninitialised float64 array of shape (size,), aligned to a cache line; callable in kernels."""
    buffer = np.empty(size + _CACHE_LINE_BYTES // 8 - 1)
    skip = -buffer.ctypes.data % _CACHE_LINE_BYTES // 8
    return buffer[skip : skip + size]


def aligned_zeros(shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[Any]:
    """C-contiguous array of zeros, aligned to a cache line; items of `dtype` must have 8 bytes."""
    buffer = np.zeros(math.prod(shape) + _CACHE_LINE_BYTES // 8 - 1, dtype)
    skip = -buffer.ctypes.data % _CACHE_LINE_BYTES // 8
    return buffer[skip : skip + math.prod(shape)].reshape(shape)
