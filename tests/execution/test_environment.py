"""Builds: what the last bits of a message depend on."""

import sys

import numpy as np
import pytest
from helpers.launch import run_command

from mu2mpi.execution import environment

PRINT_BUILDS = """
import hashlib, math
import numpy as np
from mu2mpi.execution.environment import numeric_platforms
from mu2mpi.core.parallel import Communicator
from mu2mpi.privacy.noise.correlation import Correlation
print(*numeric_platforms(Communicator()))
x = -np.random.default_rng(0).random(200_000) * 20
norms = Correlation(0.75, 4, 1000, True, False).column_norms
for column in (np.exp(x), np.expm1(x), np.array([*map(math.exp, x.tolist())]), norms):
    print(hashlib.sha256(column.tobytes()).hexdigest())
"""


def printed_builds(**variables):
    done = run_command([sys.executable, "-W", "ignore", "-c", PRINT_BUILDS], 120, variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n", 1)


@pytest.mark.slow
def test_settings_of_numba_and_other_implementations_of_functions_are_other_builds():
    """They decide the last bits of a message; the C library and NumPy choose theirs when a program starts."""
    plain = printed_builds()
    settings = [{"NUMBA_CPU_NAME": "generic"}, {"NUMBA_CPU_FEATURES": ""}, {"NUMBA_OPT": "1"}]
    assert len({plain[0], *(printed_builds(**variables)[0] for variables in settings)}) == 4
    hidden = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4"}
    for variables in (hidden, {"NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512F AVX512_SKX"}):
        build, values = printed_builds(**variables)
        assert (build == plain[0]) == (values == plain[1]), variables


@pytest.mark.parametrize(("module", "name"), [("numpy", "exp"), ("numpy", "expm1"), ("math", "exp")])
def test_a_function_that_is_off_in_one_of_a_thousand_last_bits_is_another_build(module, name, monkeypatch):
    real, before = getattr(sys.modules[module], name), environment._math_library_digest.__wrapped__()

    def other(x):
        found = np.asarray(real(x))
        found = np.where(np.asarray(x).view(np.int64) % 1009 == 0, np.nextafter(found, 2), found)
        return found if module == "numpy" else float(found)

    monkeypatch.setattr(sys.modules[module], name, other)
    assert environment._math_library_digest.__wrapped__() != before
