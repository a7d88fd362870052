"""``mu2mpi audit``."""

import sys
from argparse import ArgumentParser, Namespace
from typing import Any

SUMMARY = "attack the code's own messages and compare what they give away with what is claimed"
MORE = (
    "The algorithm is run many times on data of which each sample is one of two by a coin, as near to "
    "the worst case as data come. The adversary, who knows all samples but one, has to tell this one "
    "from all that it sees. That can refute a claim, never prove it. If a claim is refuted, or less is "
    "reached than faithful code gives away, the code is 1. Under mpirun the ranks share the runs."
)

SETTINGS = {
    "method": "of snowball-sgd, which protects the last iterate alone, only the output is attacked, with a "
    "trusted server unless --machines is 1 [default: mu2-sgd]",
    "estimator": "of mu2-sgd, as for `run` [default: corrected-momentum]",
    "query": "of mu2-sgd, as for `run` [default: average]",
    "batch": "of a method that draws its samples, as for `run`; of dp-sgd each machine has one [default: a "
    "third of them], of noisy-minibatch-sgd as many as there are rounds",
    "server": "[default: both, one by one]",
    "machines": "number of machines M [default: 3]",
    "rounds": "number of rounds T [default: 10]",
    "normalize": "[default: none]",
    "rho": "the claim that is audited [default: 1]",
    "epsilon": "the same as an epsilon, at this delta",
    "delta": "the delta at which epsilon is stated [default: 1e-05]",
}
"""What an experiment's settings mean for an audit."""

CHOICES: dict[str, Any] = {"method": {"choices": None}, "normalize": {"choices": ("none", "unit")}}
"""Where an audit does not offer those of an experiment."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the settings of the experiments that are audited, and how often they are run."""
    from mu2mpi.cli.options import add_field

    for name, what in SETTINGS.items():
        add_field(parser, name, help=what, **CHOICES.get(name, {}))
    runs = "runs with each sample of a kind [default: 2000]"
    parser.add_argument("--trials", type=int, default=2000, metavar="N", help=runs)
    add_field(parser, "seed", help="makes the audit reproducible [default: a secret key]")
    parser.set_defaults(machines=3, rounds=10, delta=1e-5)


def execute(arguments: Namespace) -> int:
    """Print what was found of each server; complaints make the code 1."""
    from mu2mpi.audit.command import audit_servers
    from mu2mpi.cli.options import given_settings
    from mu2mpi.execution.warmup import start_compiler_without_scipy
    from mu2mpi.parallel import world

    communicator = world()
    start_compiler_without_scipy()
    complaints = []
    for finding in audit_servers(given_settings(arguments), arguments.trials, communicator):
        complaints += finding.complaints
        if communicator.rank == 0:
            print(f"{finding.describe()}\n", flush=True)
    if complaints and communicator.rank == 0:
        print(f"mu2mpi: error: {'; '.join(complaints)}", file=sys.stderr)
    return 1 if complaints else 0
