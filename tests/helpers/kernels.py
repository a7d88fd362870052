"""Compiles every kernel before the first test: none is timed while it compiles, and no two fill one cache.

numba's cache on disk can crash when several processes fill an entry at once (numba issue 4807), and tests
run side by side. So each kernel is compiled by one process, for all types that the package calls it with.
"""

import os
from collections.abc import Callable, Iterable
from multiprocessing import get_context
from pathlib import Path

import numpy as np

import mu2mpi
from helpers.simulations import make_schedule
from mu2mpi.audit.evidence import uneven_byte_evidence
from mu2mpi.core.registry import known_names, lookup
from mu2mpi.execution.warmup import kernel_compilers
from mu2mpi.federation.subsampling import sample_poisson_batches, sample_replacement_batches
from mu2mpi.losses.loss import Loss
from mu2mpi.privacy.noise.binomial_sampler import BinomialNoiseSource
from mu2mpi.privacy.noise.noise_stream import CHUNK_WORDS, SERVER_STREAM, add_signed_noise

FEATURE_TYPES = np.uint8, np.float32, np.float64
NOISE, MACHINE, LOSS, PRODUCTS, STEP, MASKS, ROUNDS = range(7)
"""Places in the list of `kernel_compilers`."""

METHODS = "mu2-sgd", "anytime-dp-mf"
"""With each estimator, fresh and correlated noise, and steps that are lazy or not."""


def _of_run(
    place: int,
    method: str = "mu2-sgd",
    types: tuple[type, ...] = FEATURE_TYPES,
    loss: str = "softmax",
    rows: int | None = None,
) -> None:
    constants = make_schedule(method, rounds=9, machines=1, classes=2, features=2, loss=loss)
    for feature_dtype in types:
        kernel_compilers(
            np.dtype(feature_dtype), constants.with_problem(model_rows=rows or constants.problem.model_rows)
        )[place]()


def _of_loss(loss: str) -> None:
    """Call all that a loss other than softmax has of its own."""
    for method in METHODS:
        _of_run(MACHINE, method, FEATURE_TYPES, loss, 1)
    _of_run(LOSS, "mu2-sgd", FEATURE_TYPES, loss)
    _of_run(PRODUCTS, "mu2-sgd", (np.uint8,), loss)


def _of_any_problem() -> None:
    """Call what losses of which numpy knows nothing more are measured with."""
    loss_function: Loss = lookup("losses", "softmax")
    loss_function.losses_and_residuals(np.zeros((1, 2)), np.zeros(1, np.int32))
    for method in METHODS:
        _of_run(MACHINE, method, (np.uint8,), "softmax", 1)


def _draws() -> None:
    one = np.ones(1, np.int64)
    sample_poisson_batches(bytes(32), one, one, 1, 0)
    sample_replacement_batches(bytes(32), one, one, 1, 1)
    unit = np.ones(1)
    add_signed_noise(np.zeros(CHUNK_WORDS, np.int64), np.zeros(8, np.uint32), one, one, unit, unit, 1)


def _binomial() -> None:
    """Call the draws, and with them their probabilities as Python calls these."""
    message = np.zeros(CHUNK_WORDS, np.int64)
    BinomialNoiseSource(np.zeros(8, np.uint32), (SERVER_STREAM, 0, 1), 2**16, 1)(message.copy(), message, 1)


PARTS: list[tuple[Callable[..., object], tuple[object, ...]]] = [
    *((_of_run, (NOISE, method, (np.uint8,))) for method in METHODS),
    *((_of_run, (MACHINE, method)) for method in METHODS),
    (_draws, ()),
    (_binomial, ()),
    (_of_run, (MASKS, "mu2-sgd", (np.uint8,))),
    (_of_run, (LOSS,)),
    *((_of_run, (ROUNDS, "mu2-sgd", FEATURE_TYPES, loss)) for loss in ("softmax", "squared")),
    (_of_run, (PRODUCTS, "mu2-sgd", (np.uint8,))),
    (uneven_byte_evidence, (np.zeros(1, np.int64),)),
    (_of_any_problem, ()),
    *((_of_loss, (loss,)) for loss in known_names("losses") if loss != "softmax"),
    *((_of_run, (STEP, method, (np.uint8,))) for method in METHODS),
]
"""Calls of which no two use the same kernel, the slowest first."""


def _call(part: int) -> None:
    action, arguments = PARTS[part]
    action(*arguments)


def compile_kernels(parts: Iterable[int] = range(len(PARTS))) -> None:
    """Fill numba's cache with every kernel of the package, on two cores."""
    with get_context("spawn").Pool(2) as pool:
        pool.map(_call, parts, chunksize=1)


CACHE = Path(os.environ.get("NUMBA_CACHE_DIR") or Path(mu2mpi.__file__).parent)


def cached(folder: Path = CACHE) -> set[str]:
    """Return which kernels numba's cache holds."""
    return {path.name.split("-")[0] for path in folder.rglob("*.nbi")}


if __name__ == "__main__":
    # Of each template for one loss.
    compile_kernels([part for part, (action, _) in enumerate(PARTS) if action is not _of_loss])
