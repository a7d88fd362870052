"""Agreement of all ranks, before anything is sent, on settings, files and data.

Every rank reads them for itself, perhaps from copies on its own node. Ranks that read different copies would
send messages for which nothing is guaranteed: noise of another scale, or the same noise on other data.
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from mu2mpi.config.experiment import Experiment
from mu2mpi.data.opening import open_source
from mu2mpi.data.source import Source
from mu2mpi.errors import SharedInputError
from mu2mpi.execution.plan import Plan
from mu2mpi.files import identity
from mu2mpi.parallel import TURNS, Communicator


def check_agreement(values: Mapping[str, object], communicator: Communicator) -> None:
    """Raise SharedInputError on every rank if a value, by its `repr`, is not the same on all of them.

    Values have the names by which the error calls them. All ranks that read them must call this.
    """
    digests = {name: hashlib.sha256(repr(value).encode()).digest() for name, value in values.items()}
    everyones = communicator.allgather((communicator.host, digests))
    host, expected = everyones[0]
    for rank, (other, found) in enumerate(everyones):
        for name in dict.fromkeys([*expected, *found]):
            if found.get(name) != expected.get(name):
                raise SharedInputError(
                    f"{name} is not the same on all ranks: rank {rank} on {other} differs from rank 0 on "
                    f"{host}. Give all ranks the same, on a shared file system or as copies."
                )


def check_settings(experiments: Iterable[Experiment], communicator: Communicator) -> None:
    """Raise SharedInputError unless all ranks were given the same experiments, in the same order."""
    settings = [experiment.settings() for experiment in experiments]
    values: dict[str, object] = {"the number of runs": len(settings), "the list of runs": settings}
    if len(settings) == 1:
        del values["the list of runs"]
        values |= {f"the setting {name}": value for name, value in settings[0].items()}
    check_agreement(values, communicator)


def check_inputs(plan: Plan, communicator: Communicator) -> None:
    """Raise SharedInputError unless all ranks read the same settings, files and training data."""
    check_data(plan.source, communicator)
    check_settings([plan.experiment], communicator)
    members = plan.schedule.members
    values: dict[str, object] = {"the schema of the data": plan.source.columns}
    values["the privacy budgets or the participation of machines"] = members and members.digest
    check_agreement({**plan.input_files, **values}, communicator)


def shared_source(experiment: Experiment, data_dir: Path | None, communicator: Communicator) -> Source:
    """Open the experiment's data on every rank; the first rank of each node checks the content before."""
    verify = communicator.turn < TURNS - 1
    return communicator.in_turn(lambda: open_source(experiment, data_dir, verify=verify))


def check_data(source: Source, communicator: Communicator) -> None:
    """Check all samples, and raise SharedInputError unless the training data are the same on all ranks.

    The first rank of each node reads them, and so does every rank that opened other files than that one;
    once, however often this is called for a source. Afterwards every rank has their digest.
    """
    opened = communicator.host, tuple(map(identity, source.files))
    is_first = communicator.turn < TURNS - 1
    read_by_first = {files for files, first in communicator.allgather((opened, is_first)) if first}
    digest: bytes | None = None
    with communicator.together():
        if is_first or opened not in read_by_first:
            digest = source.digest
    known = {files: found for files, found in communicator.allgather((opened, digest)) if found is not None}
    source.digest = known[opened] if digest is None else digest
    check_agreement({f"the training data of {source.name}": source.digest}, communicator)
