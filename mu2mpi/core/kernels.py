"""Compilation of numba kernels: decorators, specialised copies, and functions that kernels share.

Products and sums may be fused (FMA). A `reduction_kernel` may reorder sums, by the processor type.
"""

import contextlib
import glob
import hashlib
import importlib
import inspect
import math
import os
import pickle
import platform
import stat
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import llvmlite.binding
import numba
import numpy as np
from numba import typeof
from numba.core import caching, cgutils, entrypoints
from numba.core.registry import cpu_target
from numba.core.runtime import rtsys
from numba.extending import intrinsic
from numpy.typing import NDArray

_CACHE_LINE_BYTES = 64  # A 512-bit vector across two lines takes twice as long to load.


def _enable_wide_vectors() -> None:
    is_chosen = "NUMBA_CPU_FEATURES" in os.environ or "NUMBA_CPU_NAME" in os.environ
    if is_chosen or platform.machine() not in ("x86_64", "AMD64"):
        return
    features = llvmlite.binding.get_host_cpu_features()
    if features.get("avx512f") and features.get("avx512dq"):
        numba.config.CPU_FEATURES = features.flatten() + ",-prefer-256-bit"  # type: ignore[attr-defined]


def _digest_sources() -> str:
    """Digest of the sources of kernels and of what they inline; numba checks only the kernel's own file."""
    package = Path(__file__).parent.parent
    folders = (package / name for name in ("core", "federation", "losses", "privacy"))
    sources = [path.read_bytes() for folder in folders for path in sorted(folder.rglob("*.py"))]
    return hashlib.sha256(b"\0".join(sources)).hexdigest()[:12]


def initialise_compiler() -> None:
    """Initialise numba's compiler without SciPy, which doubles the time and is not used by kernels."""
    sys.modules.setdefault("scipy.linalg", None)  # type: ignore[arg-type]
    try:
        cpu_target.typing_context.refresh()
        cpu_target.target_context.refresh()
    finally:
        if sys.modules["scipy.linalg"] is None:
            del sys.modules["scipy.linalg"]


@cache
def _define_symbols() -> None:
    """Define the symbols that compiled kernels link: a tenth of the time to initialise the compiler."""
    importlib.import_module("numba.cpython.hashing")
    rtsys.initialize(cpu_target.target_context)
    entrypoints.init_all()  # numba's extensions


_enable_wide_vectors()
_SOURCE_DIGEST = _digest_sources()

NUMBA_OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract"}}


class _ReadOnlyLocator(caching.InTreeCacheLocator):
    def ensure_cache_path(self) -> None:
        """Accept a folder that is not writable, for users who can write no cache."""


class _KernelCacheImpl(caching.CompileResultCacheImpl):
    _locator_classes = [*caching.CompileResultCacheImpl._locator_classes, _ReadOnlyLocator]  # noqa: RUF012

    def get_filename_base(self, fullname: str, abiflags: str) -> str:
        base = super().get_filename_base(fullname, abiflags)
        return f"{base}-{_SOURCE_DIGEST}-{llvmlite.__version__}"


class KernelCache(caching.FunctionCache):
    """Cache of a kernel on disk: the site's, which may be read-only, and the user's if that is another.

    The site's is NUMBA_CACHE_DIR, or else beside the sources. Cached kernels are code, so it is ignored if
    others than its owner, root or the owner of the package, can write to it.
    """

    _impl_class = _KernelCacheImpl

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        locator, source = self._impl.locator, inspect.getfile(function)
        is_default = not numba.config.CACHE_DIR  # type: ignore[attr-defined]
        site = caching.InTreeCacheLocator if is_default else caching.UserProvidedCacheLocator
        folder = site(function, source).get_cache_path()
        self.is_writable = not isinstance(locator, _ReadOnlyLocator)
        self.is_writable &= is_trusted_folder(self._cache_path, source, stat.S_IWOTH)
        self._folders = [self._cache_path] * self.is_writable + [folder] * is_trusted_folder(folder, source)

    @property
    def cache_path(self) -> str | None:
        """Folder that is written, or else one that holds this kernel; None if there is neither."""
        pattern = f"{glob.escape(self._impl.filename_base)}*"
        return next((f for f in self._folders if self.is_writable or glob.glob(pattern, root_dir=f)), None)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load the kernel of a signature, or return None."""
        _define_symbols()
        key = self._index_key(sig, target_context.codegen())
        for folder in self._folders:
            with contextlib.suppress(OSError, EOFError, pickle.UnpicklingError):  # such as a damaged file
                if (data := self._file(folder, key).load(key)) is not None:
                    return self._impl.rebuild(target_context, data)
        initialise_compiler()
        return None

    def _file(self, folder: str, key: Any) -> caching.IndexDataCacheFile:
        # One per key: processes that share an index can pair its entries with data of other keys.
        name = f"{self._impl.filename_base}-{hashlib.sha256(repr(key).encode()).hexdigest()[:8]}"
        return caching.IndexDataCacheFile(folder, name, self._impl.locator.get_source_stamp())

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save a compiled kernel if possible, and remove kernels of former sources from their folder."""
        with contextlib.suppress(OSError):  # such as a full disk
            if self.is_writable:
                self._cache_file = self._file(self._cache_path, self._index_key(sig, data.codegen))
                super().save_overload(sig, data)
                if isinstance(self._impl.locator, caching.InTreeCacheLocator):
                    _discard_stale_kernels(Path(self._cache_path))


def _discard_stale_kernels(folder: Path) -> None:
    for cached in folder.glob("*.nb[ic]"):
        if _SOURCE_DIGEST not in cached.name:
            cached.unlink(missing_ok=True)


@cache
def is_trusted_folder(folder: str, source: str, forbidden_modes: int = stat.S_IWGRP | stat.S_IWOTH) -> bool:
    """Whether root, this user or the owner of a source file owns a folder, without forbidden modes."""
    try:
        status, owners = os.stat(folder), (0, os.geteuid(), os.stat(source).st_uid)
    except OSError:
        return False
    return status.st_uid in owners and not status.st_mode & forbidden_modes


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function with numba (decorator), with the result cached on disk if that is possible."""
    compiled = numba.njit(**NUMBA_OPTIONS)(function)
    with contextlib.suppress(RuntimeError, OSError):  # The function may have no source file.
        compiled._cache = KernelCache(function)
    return compiled


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
def integer_part(rounded):  # type: ignore[no-untyped-def]
    """Return n as an int64, given the float64 n + ROUNDING_ADDEND of an integer n below 2^51 in magnitude."""
    return float_to_bits(rounded) - np.int64(_ROUNDING_ADDEND_BITS)


@inline
def round_to_integer(value):  # type: ignore[no-untyped-def]
    """Round a float64 of magnitude below 2^51 to the nearest int64, ties to even."""
    return integer_part(value + ROUNDING_ADDEND)


@intrinsic
def fma(context, x, y, z):  # type: ignore[no-untyped-def]
    """Return x y + z of float64s, rounded once on any processor."""
    return numba.float64(x, y, z), lambda context, builder, signature, values: builder.fma(*values)


@intrinsic
def aligned_empty(_, size, dtype=None):  # type: ignore[no-untyped-def]
    """Uninitialised array of `size` float64, or `dtype` of 8 bytes, aligned to a cache line; for kernels."""
    array_type = (dtype.dtype if dtype else numba.float64)[::1]

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        # Compiles in a tenth of the time of `np.empty` with a slice and a view.
        array, n = context.make_array(array_type)(context, builder), arguments[0]
        memory = context.nrt.meminfo_alloc_aligned(builder, builder.mul(n, n.type(8)), _CACHE_LINE_BYTES)
        data = builder.bitcast(context.nrt.meminfo_data(builder, memory), array.data.type)
        importlib.import_module("numba.np.arrayobj").populate_array(array, data, [n], [n.type(8)], 8, memory)
        return array._getvalue()

    return array_type(numba.intp, dtype or numba.types.Omitted(None)), generate


def aligned_zeros(shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[Any]:
    """C-contiguous array of zeros, aligned to a cache line; items of `dtype` must have 8 bytes."""
    buffer = np.zeros(math.prod(shape) + _CACHE_LINE_BYTES // 8 - 1, dtype)
    skip = -buffer.ctypes.data % _CACHE_LINE_BYTES // 8
    return buffer[skip : skip + math.prod(shape)].reshape(shape)


@intrinsic
def call_kernel(
    typing_context: Any, address: Any, result: Any, arguments: Any
) -> tuple[Any, Callable[..., Any]]:
    """Call the compiled kernel at an address with a tuple of arguments; it returns the type of `result`."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        call_types, convention = (result, arguments.types), context.call_conv
        function = builder.inttoptr(values[0], convention.get_function_type(*call_types).as_pointer())
        unpacked = cgutils.unpack_tuple(builder, values[2])
        status, returned = convention.call_function(builder, function, *call_types, unpacked)
        with cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return returned

    return result(address, result, arguments), generate


def kernel_address(compiled: Any, returned: Any, *arguments: Any) -> int:
    """Return the address of a kernel for such arguments, compiled or loaded if necessary."""
    compiled.compile(argument_types := tuple(map(typeof, arguments)))
    result = compiled.overloads[argument_types]
    if result.signature.return_type != typeof(returned):  # as of a kernel of a user's estimator
        raise TypeError(f"{compiled.__name__} returns {result.signature.return_type}, not {typeof(returned)}")
    return int(result.library.get_pointer_to_function(result.fndesc.llvm_func_name))
