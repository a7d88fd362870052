"""``mu2mpi job``."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from mu2mpi.cli.shared import add_flag, add_output

SUMMARY = "print a SLURM script for an experiment or a sweep"
MORE = "A file with lists becomes an array job with one task for each combination."


def add_arguments(parser: ArgumentParser) -> None:
    """Add the configuration file, and what the job asks of SLURM."""
    parser.add_argument("config", type=Path, metavar="TOML", help="an experiment, or a sweep")
    add_output(parser, "result file, or folder of a sweep", "PATH")
    parser.add_argument("--ntasks", type=int, default=2, metavar="N", help="ranks of a run [default: 2]")
    parser.add_argument("--time", default="01:00:00", metavar="LIMIT", help="time limit [default: 01:00:00]")
    parser.add_argument("--partition", metavar="NAME")
    parser.add_argument("--account", metavar="NAME")
    add_flag(parser, "--submit", "hand the script to sbatch as well")


def execute(arguments: Namespace) -> None:
    """Print the script, and submit it if asked to."""
    from mu2mpi.cluster.script import render_job, submit
    from mu2mpi.config.sweep import Sweep
    from mu2mpi.config.toml import read_toml

    config = arguments.config
    sweep = Sweep(read_toml(config), str(config))
    tasks, suffix, words = None, ".h5", ["run", "--config", config]
    if sweep.swept:
        tasks, suffix = len(sweep.experiments), ""
        words = ["sweep", config, "--index", "$SLURM_ARRAY_TASK_ID"]
    words += ["--output", arguments.output or f"runs/{config.stem.lstrip('.') or 'run'}{suffix}"]
    asked = {name: getattr(arguments, name) for name in ("ntasks", "time", "partition", "account")}
    active = None if sys.prefix == sys.base_prefix else sys.prefix
    script = render_job(config.stem, [str(word) for word in words], active, array=tasks, **asked)
    print(script, end="")
    if arguments.submit:
        submit(script)
