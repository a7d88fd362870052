"""Print a script for an experiment or a sweep on a cluster, or submit it.

A task has as many runs of a sweep as fit a tenth of the time limit. A sweep that does not fit one task
becomes an array job. Defaults for all options of a job are in the TOML file that MU2MPI_SITE names, or in
mu2mpi/site.toml among the user's configuration.
"""

from argparse import SUPPRESS, ArgumentParser, Namespace
from pathlib import Path

from mu2mpi.cli.common_arguments import add_flag, add_output


def add_arguments(parser: ArgumentParser) -> None:
    from mu2mpi.cluster.job_script import Request

    parser.add_argument("config", type=Path, metavar="TOML", help="an experiment, or a sweep")
    add_output(parser, "result file, or folder of a sweep", "PATH")
    which = parser.add_mutually_exclusive_group()
    add_flag(which, "--submit", "hand the script to sbatch instead")
    add_flag(which, "--status", "say how many runs are done, running, left and failed, and nothing else")
    group = parser.add_argument_group("the job (also the keys of a site file)")
    for field in Request.model_fields.values():
        kind, default = field.annotation, field.default
        how = {"action": "store_true"} if kind is bool else {"metavar": field.title or None}
        how |= {"action": "append"} if default == () else {}
        group.add_argument(f"--{field.alias}", default=SUPPRESS, help=field.description, **how)


def execute(arguments: Namespace) -> None:
    from mu2mpi.cluster.job_script import Request, names
    from mu2mpi.cluster.submission import SweepJob
    from mu2mpi.config.sweep import Sweep
    from mu2mpi.core.toml import read_toml

    config = arguments.config
    given = {name: getattr(arguments, name.replace("-", "_"), None) for name in names()}
    request = Request.make({name: value for name, value in given.items() if value is not None})
    sweep = Sweep(read_toml(config), str(config))
    suffix = "" if sweep.swept else ".h5"
    output = arguments.output or Path(f"runs/{config.stem.lstrip('.') or 'run'}{suffix}")
    if request.scheduler != "slurm" and (arguments.submit or arguments.status):
        arguments.parser.error("--submit and --status are for SLURM; print the script, and hand it to qsub")
    job = SweepJob(config, sweep, output, request)
    if arguments.status:
        print(job.status())
    elif arguments.submit:
        job.submit()
    else:
        print(job.script(), end="")
