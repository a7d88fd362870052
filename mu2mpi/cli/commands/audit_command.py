"""Attack the code's own messages and compare what they give away with what is claimed.

The algorithm is run many times on data of which each sample is one of two by a coin, as near to the worst
case as data come. The adversary, who knows all samples but one, has to tell this one from all that it sees.
That can refute a claim, never prove it. If a claim is refuted, or less is reached than faithful code gives
away, the code is 1. Of a method that protects its output alone, only that is attacked. Under mpirun the ranks
share the runs.
"""

import sys
from argparse import ArgumentParser, Namespace
from typing import Any

# Settings that mean something else to an audit, or that it offers less of
SETTINGS: dict[str, dict[str, Any]] = {
    "server": {"help": "[default: untrusted and trusted, as far as the method allows them]"},
    "machines": {"help": "number of machines M [default: 3]"},
    "rounds": {"help": "number of rounds T [default: 10]"},
    "participation_seed": {},
    "budgets": {"help": "file with the rho or epsilon of some machines, which are called 0, 1, ..."},
    "normalize": {"help": "[default: none]", "choices": ("none", "unit")},
    "rho": {"help": "the claim that is audited [default: 1]"},
    "epsilon": {"help": "the same as an epsilon, at this delta"},
    "delta": {"help": "the delta at which epsilon is stated [default: 1e-05]"},
    "seed": {"help": "makes the audit reproducible [default: a secret key]"},
}


def add_arguments(parser: ArgumentParser) -> None:
    from mu2mpi.cli.experiment_arguments import add_field
    from mu2mpi.config.experiment_options import OF_MACHINES, method_options, option_fields, own_options

    fields, of_method, of_server = option_fields(), method_options(), own_options("server")
    names = "loss", "method", *of_method, "mechanism", "server", *of_server, *OF_MACHINES, *SETTINGS
    for name in dict.fromkeys(names):
        add_field(parser, name, fields[name], **SETTINGS.get(name, {}))
    runs = "runs with each sample of a kind [default: 2000]"
    parser.add_argument("--trials", type=int, default=2000, metavar="N", help=runs)
    parser.set_defaults(machines=3, rounds=10, delta=1e-5)


def execute(arguments: Namespace) -> int:
    from mu2mpi.audit.trials import OF_PAPER, audit_servers
    from mu2mpi.cli.experiment_arguments import given_settings
    from mu2mpi.core.parallel import world
    from mu2mpi.core.registry import names
    from mu2mpi.execution.warmup import start_compiler_without_scipy

    communicator, given = world(), given_settings(arguments)
    start_compiler_without_scipy()
    complaints = []
    for finding in audit_servers(given, arguments.trials, communicator):
        complaints += finding.complaints
        if communicator.rank == 0:
            print(f"{finding.describe()}\n", flush=True)
    if "server" not in given and communicator.rank == 0:
        others = ", ".join(name for name in names("servers") if name not in OF_PAPER)
        print(f"Without --server only the paper's are audited; others are {others}.", flush=True)
    if complaints and communicator.rank == 0:
        print(f"mu2mpi: error: {'; '.join(complaints)}", file=sys.stderr)
    return 1 if complaints else 0
