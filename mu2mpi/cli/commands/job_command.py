"""Print a SLURM script for an experiment or a sweep, which sbatch submits.

A task gets as many runs of a sweep as fit a tenth of the time limit; more tasks make an array job. Defaults
of job options are in the TOML file MU2MPI_SITE, and in mu2mpi/site.toml in the user's configuration folder.
"""

from argparse import SUPPRESS, ArgumentParser, Namespace
from pathlib import Path

from mu2mpi.cli.common_arguments import add_output
from mu2mpi.cluster.job_script import JobOptions, job_option_names

COMMON_OPTIONS = "config output nodes ntasks time partition account log data_dir setup"
USAGE_EXAMPLES = """\
  mu2mpi job experiment.toml --ntasks 10 --time 02:00:00
  mu2mpi job tables.toml --output runs/ | sbatch
  mu2mpi job tables.toml --sbatch exclusive --log logs/%j.log"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="TOML", help="file of an experiment or a sweep")
    add_output(parser, "result file, or folder of a sweep", "PATH")
    group = parser.add_argument_group("the job (also the keys of a site file)")
    for field in JobOptions.model_fields.values():
        action, text = "append" if field.default == () else "store", field.description
        flag = f"--{field.alias}"
        group.add_argument(flag, action=action, default=SUPPRESS, metavar=field.title, help=text)


def run_command(arguments: Namespace) -> None:
    from mu2mpi.cluster.sweep_job import SweepJob
    from mu2mpi.config.sweep import Sweep
    from mu2mpi.core.text import print_messages
    from mu2mpi.core.toml import read_toml

    config = arguments.config
    flags = {name.replace("_", "-"): value for name, value in vars(arguments).items()}
    given = {name: flags[name] for name in job_option_names() if name in flags}
    options = JobOptions.with_site_defaults(given)
    sweep = Sweep(read_toml(config), str(config))
    suffix = "" if sweep.swept_names else ".h5"
    output = arguments.output or Path(f"runs/{config.stem.lstrip('.') or 'run'}{suffix}")
    job = SweepJob(config, sweep, output, options)
    script, summary = job.script(), job.summary()
    print_messages(summary)
    print(script, end="")
