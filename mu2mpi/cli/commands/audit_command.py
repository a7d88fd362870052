"""Audit the privacy of the code by attacks on its messages.

Runs the algorithm many times on nearly worst-case data, in which a random bit chooses each canary sample. The
adversary knows all other samples, and guesses the bit from everything it sees. An audit can refute a claim,
not prove it. The exit code is 1 if a claim is refuted, or if an attack is weaker than faithful code allows.
Under mpirun, the ranks share the runs.
"""

from argparse import ArgumentParser, Namespace
from typing import Any

from mu2mpi.cli.experiment_arguments import add_field, explicit_settings
from mu2mpi.config import experiment_options as options
from mu2mpi.core.parallel import world
from mu2mpi.core.text import print_messages

COMMON_OPTIONS = "method server mechanism loss machines rounds rho epsilon trials seed"
USAGE_EXAMPLES = """\
  mu2mpi audit --rho 1 --trials 2000
  mu2mpi audit --server aggregated --colluders 1
  mpirun -n 4 mu2mpi audit --method dp-sgd --server trusted"""
# Settings whose default or values in an audit differ from those of an experiment
AUDIT_ARGPARSE_KEYWORDS: dict[str, dict[str, Any]] = {
    "server": {"help": "trust mode [default: untrusted and trusted, where the method allows]"},
    "machines": {"help": "number of machines M [default: 3]"},
    "rounds": {"help": "number of rounds T [default: 10]"},
    "participation_seed": {},
    "neighbours": {},
    "budgets": {"help": "file with a rho or epsilon per machine, named 0, 1, ..."},
    "normalize": {"help": "scaling of samples [default: none]", "choices": ("none", "unit")},
    "rho": {"help": "claimed rho to audit [default: 1]"},
    "epsilon": {"help": "claimed epsilon to audit, at --delta"},
    "delta": {"default": 1e-5, "help": "delta at which epsilon is stated [default: 1e-05]"},
    "seed": {"help": "public seed of the audit [default: a secret key]"},
}


def add_arguments(parser: ArgumentParser) -> None:
    fields, server_options = options.option_fields(), options.own_option_fields("server")
    shared_names = ("loss", "method", *options.method_option_names(), "mechanism", "server", *server_options)
    for name in dict.fromkeys((*shared_names, *options.PER_MACHINE_OPTIONS, *AUDIT_ARGPARSE_KEYWORDS)):
        add_field(parser, name, fields[name], **AUDIT_ARGPARSE_KEYWORDS.get(name, {}))
    trials_help = "number of runs per canary value [default: 2000]"
    parser.add_argument("--trials", type=int, default=2000, metavar="N", help=trials_help)


def run_command(arguments: Namespace) -> int:
    from mu2mpi.audit.trials import run_audits

    communicator, problems = world(), list[str]()
    for report in run_audits(explicit_settings(arguments), arguments.trials, communicator):
        problems += report.failures
        if communicator.rank == 0:
            print(f"{report.to_text()}\n", flush=True)
    if problems and communicator.rank == 0:
        print_messages(f"mu2mpi: error: {'; '.join(problems)}")
    return 1 if problems else 0
