"""What `mu2mpi audit` does with its settings: which servers it attacks, and what it claims unless told."""

from collections.abc import Iterator, Mapping
from typing import Any

from mu2mpi.audit.canaries import CLIPPED
from mu2mpi.audit.finding import Finding
from mu2mpi.audit.trials import audit
from mu2mpi.config.experiment import Experiment
from mu2mpi.parallel import Communicator

__all__ = ["audit_servers"]


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
    if given.get("query") == "iterate":
        # Increments at iterates have no bound but the audit's own clipping norm.
        given |= CLIPPED.settings
    both = ["trusted"] if given.get("method") in ("dp-sgd", "snowball-sgd") else ["untrusted", "trusted"]
    servers = [given["server"]] if "server" in given else both
    with communicator.together():
        experiments = [Experiment.make({**given, "server": server}) for server in servers]
    for experiment in experiments:
        yield audit(experiment, trials, communicator)
