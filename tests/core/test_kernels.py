"""Functions that kernels share, and the compilation of kernels."""

import math
import os
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numba
import numpy as np
import pytest
from helpers.launch import run_command
from helpers.property_tests import given
from hypothesis import strategies as st

from mu2mpi.core.kernels import (
    ROUNDING_ADDEND,
    aligned_empty,
    aligned_zeros,
    bits_to_float,
    call_kernel,
    find_compilation_error,
    float_to_bits,
    fma,
    integer_part,
    kernel_address,
    round_to_integer,
    specialise_kernel,
)


@numba.vectorize
def rounded(value):
    return round_to_integer(value)


@given(st.floats(-(2.0**50), 2.0**50))
def test_rounding_is_to_nearest_ties_to_even(value):
    assert rounded(value) == round(value)


@numba.vectorize
def rounded_product(x, y):
    return integer_part(fma(x, y, ROUNDING_ADDEND))


# Products of small numerators and powers of two are often half-integers.
short_floats = st.builds(math.ldexp, st.integers(-100, 100), st.integers(-8, 8))


@given(st.floats(-(2.0**20), 2.0**20) | short_floats, st.floats(-(2.0**20), 2.0**20) | short_floats)
def test_products_are_rounded_once_ties_to_even(x, y):
    assert rounded_product(x, y) == round(Fraction(x) * Fraction(y))


@numba.njit
def round_trip(value):
    return float_to_bits(value), bits_to_float(float_to_bits(value)), aligned_empty(9).ctypes.data


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, -1e-310, math.inf])
def test_bits_equal_those_of_numpy_and_aligned_empty_is_aligned(value):
    bits, again, address = round_trip(value)
    assert (bits, repr(again), address % 64) == (np.float64(value).view(np.int64), repr(value), 0)


def test_aligned_zeros_are_aligned():
    for shape in ((1,), (3, 5), (2, 3, 4)):
        zeros = aligned_zeros(shape, np.int64)
        assert (zeros.shape, zeros.dtype, zeros.any(), zeros.ctypes.data % 64) == (shape, np.int64, False, 0)


def factor(value):
    return value


def template(value):
    return factor(value) + 1


def test_a_template_is_compiled_once_per_tag_with_its_own_global_names():
    double, triple = (numba.njit(eval(f"lambda value: {k} * value")) for k in (2, 3))
    first = specialise_kernel(template, "double", factor=double)
    assert first is specialise_kernel(template, "double", factor=double)
    assert (first(5), specialise_kernel(template, "triple", factor=triple)(5)) == (11, 16)


def test_compilation_error_is_one_line():
    assert find_compilation_error(numba.njit(lambda value: value + 1), numba.float64) is None
    assert "numba.njit" in find_compilation_error(lambda value: value, numba.float64)
    reason = find_compilation_error(numba.njit(lambda value: undefined_name(value)), numba.float64)  # noqa: F821
    assert "undefined_name" in reason
    assert "\n" not in reason


KERNEL_OF_A_MODULE = """
import shutil
import sys
from fractions import Fraction
from pathlib import Path
from pathlib import Path
from mu2mpi.core.kernels import kernel
sys.path.insert(0, {folder!r})
from own_kernel import increase
assert increase(1) == 2
print(sum(increase.stats.cache_misses.values()), increase.stats.cache_path)
"""


def run_own_kernel(folder, **environment):
    """Return the misses and the cache folder of a kernel in a process that file modes bind, also as root."""
    unprivileged = ["setpriv", "--bounding-set", "-dac_override"] if os.geteuid() == 0 else []
    command = [*unprivileged, sys.executable, "-c", KERNEL_OF_A_MODULE.format(folder=str(folder))]
    done = run_command(command, 60, {"NUMBA_CACHE_DIR": "", **environment})
    assert done.returncode == 0, done.stderr
    misses, path = done.stdout.split(maxsplit=1)
    return int(misses), path.strip()


def test_a_read_only_cache_is_used_unless_others_can_write_to_it_or_it_is_damaged(tmp_path):
    source = (
        "from mu2mpi.core.kernels import kernel\n\n\n@kernel\ndef increase(value):\n    return value + 1\n"
    )
    (tmp_path / "own_kernel.py").write_text(source)
    cache = tmp_path / "__pycache__"
    assert run_own_kernel(tmp_path) == (1, str(cache))
    cache.chmod(0o555)
    assert run_own_kernel(tmp_path, HOME="/dev/null") == (0, str(cache))
    for mode in (0o575, 0o557):
        cache.chmod(mode)
        assert run_own_kernel(tmp_path, HOME="/dev/null") == (1, "None")
    cache.chmod(0o555)
    (tmp_path / "home").mkdir()
    assert run_own_kernel(tmp_path, HOME=str(tmp_path / "home"))[0] == 0
    for path in cache.glob("*.nbc"):
        path.write_bytes(path.read_bytes()[:100])
    for misses in (1, 0):  # The user's own cache is filled.
        assert run_own_kernel(tmp_path, HOME=str(tmp_path / "home"))[0] == misses


def test_kernels_of_former_sources_are_removed_beside_the_sources_and_not_loaded(tmp_path):
    (tmp_path / "own_kernel.py").write_text(
        "from mu2mpi.core import kernels\nfrom pathlib import Path\n"
        "kernels._SOURCE_DIGEST = Path(__file__).with_name('digest').read_text()\n\n\n"
        "@kernels.kernel\ndef increase(value):\n    return value + 1\n"
    )
    for digest, misses in (("first-digest", 1), ("first-digest", 0), ("other-digest", 1)):
        (tmp_path / "digest").write_text(digest)
        assert run_own_kernel(tmp_path)[0] == misses
        assert all(digest in path.name for path in (tmp_path / "__pycache__").glob("*.nb[ic]"))


def test_kernels_of_two_processes_that_began_with_an_empty_cache_are_not_mixed_up(tmp_path):
    """The first process saves its index, the second saves its index and data, the first saves its data."""
    text = "from mu2mpi.core.kernels import kernel\n\n@kernel\ndef increase(x):\n    return x[0] + 1\n"
    (tmp_path / "own_kernel.py").write_text(text)
    script = (
        "import sys; import numpy as np; sys.path.insert(0, sys.argv[1]); from own_kernel import increase\n"
        "print(increase(np.ones(1, sys.argv[2])), increase.stats.cache_path)"
    )

    def run_kernel(dtype, cache):
        command = [sys.executable, "-c", script, tmp_path, dtype]
        done = run_command(command, 60, {"NUMBA_CACHE_DIR": str(tmp_path / cache)})
        assert done.returncode == 0, done.stderr
        value, path = done.stdout.split()
        assert value == "2.0"
        return Path(path)

    first, second = run_kernel("float32", "first"), run_kernel("float64", "second")
    for path in first.glob("*.nbc"):
        shutil.copy(path, second)
    run_kernel("float64", "second")


def test_a_cached_kernel_is_loaded_without_the_compiler_with_all_symbols_that_it_links(tmp_path):
    """Hashes of text read the interpreter's secret, and arrays are allocated by numba's runtime."""
    script = tmp_path / "own_script.py"
    script.write_text(
        "import sys\nimport numpy as np\nfrom mu2mpi.core.kernels import kernel\n\n\n"
        "@kernel\ndef count(x):\n    return len({str(n): np.exp(x) for n in range(3)})\n\n\n"
        "print(count(np.ones(2)), 'numba.core.typing.mathdecl' in sys.modules)\n"
    )
    for has_compiler in (True, False):
        done = run_command([sys.executable, script], 60, {"NUMBA_CACHE_DIR": str(tmp_path)})
        assert done.stdout.split() == ["3", str(has_compiler)], done.stderr


KERNELS_AT_ONCE = """
import sys
import time
from pathlib import Path
sys.path.insert(0, {folder!r})
import many_kernels
Path({folder!r}, sys.argv[1]).touch()
while len([*Path({folder!r}).glob("ready-*")]) < {processes}:
    time.sleep(0.001)
for number in range({kernels}):
    kernel = getattr(many_kernels, f"kernel_{{number}}")
    assert kernel(1) == 1 + number, number
"""


def test_processes_may_fill_one_cache_at_once(tmp_path):
    """As runs on two communicators of a node do: all get right kernels, and leave a whole cache."""
    processes, kernels = 3, 4
    source = "from mu2mpi.core.kernels import kernel\n"
    for number in range(kernels):
        source += f"\n\n@kernel\ndef kernel_{number}(value):\n    return value + {number}\n"
    (tmp_path / "many_kernels.py").write_text(source)
    program = KERNELS_AT_ONCE.format(folder=str(tmp_path), processes=processes, kernels=kernels)
    environment = {**os.environ, "NUMBA_CACHE_DIR": ""}
    started = [
        subprocess.Popen([sys.executable, "-c", program, f"ready-{k}"], env=environment)
        for k in range(processes)
    ]
    assert [process.wait() for process in started] == [0] * processes
    count = (
        "\nprint(sum(sum(vars(many_kernels)[f'kernel_{n}'].stats.cache_misses.values()) for n in range(4)))"
    )
    again = run_command([sys.executable, "-c", program + count, "ready-0"], 60, {"NUMBA_CACHE_DIR": ""})
    assert (again.stdout, again.returncode) == ("0\n", 0), again.stderr


@numba.njit
def call_at(address, x):
    return call_kernel(address, 0.0, (x, 2.0))


def test_a_kernel_is_called_at_its_address_and_its_errors_are_raised():
    @numba.njit(error_model="python")
    def quotient(x, y):
        return y / x

    address = kernel_address(quotient, 0.0, 1.0, 1.0)
    assert call_at(address, 4.0) == 0.5
    with pytest.raises(ZeroDivisionError):
        call_at(address, 0.0)


def test_kernels_that_return_something_else_are_refused():
    returns_nothing = numba.njit(lambda x: None)
    with pytest.raises(TypeError, match="returns none, not"):
        kernel_address(returns_nothing, (0.0, 0), 1.0)
