"""What `mu2mpi audit` does with its settings: which servers it attacks, and what it claims unless told."""

from collections.abc import Iterator, Mapping
from typing import Any

from mu2mpi.audit.canaries import CLIPPED
from mu2mpi.audit.finding import Finding
from mu2mpi.audit.trials import audit
from mu2mpi.config.experiment import Experiment
from mu2mpi.errors import InputError
from mu2mpi.parallel import Communicator


def audit_servers(settings: Mapping[str, Any], trials: int, communicator: Communicator) -> Iterator[Finding]:
    """Audit the server of some settings, or one after the other those that the method allows.

    Parameters
    ----------
    settings : mapping
        Settings of an experiment; those that are None are not set.
    trials : int
        Runs with each sample of either kind.
    communicator : Communicator
        The ranks.

    Raises
    ------
    InputError
        If an experiment cannot have these settings, or not be audited.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    if "epsilon" not in given:
        given.setdefault("rho", 1.0)
    servers = [given["server"]] if "server" in given else ["untrusted", "trusted"]
    with communicator.together():
        experiments = _allowed([{**given, "server": server} for server in servers])
    for experiment in experiments:
        yield audit(experiment, trials, communicator)


def _allowed(settings: list[dict[str, Any]]) -> list[Experiment]:
    """Return the experiments that there can be; raise the first error if there is none."""
    found: list[Experiment] = []
    problems: list[InputError] = []
    # What has no bound but a clipping norm has that of the audit.
    for clipped in ({}, {"clip_norm": CLIPPED.clip_norm}):
        for given in settings:
            try:
                found.append(Experiment.make({**given, **clipped}))
            except InputError as error:
                problems.append(error)
        if found:
            return found
    raise problems[0]
