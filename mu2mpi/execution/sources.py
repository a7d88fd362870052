"""Data on every rank: opened by one rank of each node first, and checked before anything is sent."""

from pathlib import Path

from mu2mpi.config.experiment import Experiment
from mu2mpi.data.opening import open_source
from mu2mpi.data.source import Source
from mu2mpi.errors import SharedInputError
from mu2mpi.parallel import TURNS, Communicator


def shared_source(experiment: Experiment, data_dir: Path | None, communicator: Communicator) -> Source:
    """Open the experiment's data on every rank; the first rank of each node checks the content before."""
    verify = communicator.turn < TURNS - 1
    return communicator.in_turn(lambda: open_source(experiment, data_dir, verify=verify))


def check_data(source: Source, communicator: Communicator) -> None:
    """Check all samples before anything is sent, and let every rank know their digest.

    The first rank of each node reads them, as nodes may have files of their own; once, however often this
    is called for a source. Every rank raises InputError if a sample cannot be used or two nodes differ.
    """
    digest: bytes | None = None
    with communicator.together():
        if communicator.turn < TURNS - 1:
            digest = source.digest
    found = [(host, of) for host, of in communicator.allgather((communicator.host, digest)) if of is not None]
    host, source.digest = found[0]
    other = next((other for other, of in found if of != source.digest), None)
    if other is not None:
        raise SharedInputError(
            f"{source.name} is not the same on all nodes: the training data that {other} reads differ "
            f"from those on {host}; give every node the same, on a shared file system or as copies"
        )
