"""Write a commented file of an experiment or a sweep, and a schema of a table's columns.

The schema has the names of the columns, and blanks for their types and ranges, which you fill in from public
knowledge. No value of the data is read into a file.
"""

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from mu2mpi.cli.common_arguments import add_flag, add_output, add_shared_options, write_texts
from mu2mpi.core.parallel import world_if_parallel

# Value of each setting in the file of an experiment, and of a sweep; "#" begins settings that are left open
SETTINGS: dict[str, tuple[Any, Any]] = {
    "loss": ("softmax", "softmax"),
    "preset": ("practical", "practical"),
    "#method": ("dp-gd", ["dp-gd", "mu2-sgd"]),
    "server": ("trusted", ["untrusted", "trusted"]),
    "machines": (10, [1, 10]),
    "epsilon": (2.0, [0.5, 2.0, 8.0]),
    "delta": (1e-5, 1e-5),
    "#rounds": (500, [100, 500]),
    "seed": (1, [1, 2, 3]),
}
HEADER = """\
# {title} of mu2mpi, with a comment above each setting. Details: mu2mpi run --help NAME
#   {command} --dry-run
#   mpirun -n 2 {command}
"""


def add_arguments(parser: ArgumentParser) -> None:
    data_help = "data set name or file, as for run [default: digits]"
    parser.add_argument("data", nargs="?", default="digits", metavar="DATA", help=data_help)
    add_flag(parser, "--sweep", "file of a sweep over lists of values, instead of one run")
    add_output(parser, "folder of the files [default: the working folder]", "FOLDER", default=Path())
    add_shared_options(parser, "--overwrite")


def run_command(arguments: Namespace) -> None:
    if world_if_parallel().rank != 0:
        return
    from mu2mpi.config.experiment import Experiment
    from mu2mpi.data.source_description import schema_template

    is_private, texts = Experiment.from_settings({"data": arguments.data}).source.is_user_data, {}
    settings: dict[str, Any] = {"data": arguments.data}
    if is_private and (schema := schema_template(arguments.data)) is not None:
        stem = Path(arguments.data).name.partition(".")[0]
        name = f"{'schema' if stem in ('', 'sweep', 'experiment') else stem}.toml"
        settings["schema"] = str(arguments.output / name)
        # One that was filled in is kept.
        texts = {} if Path(settings["schema"]).exists() and not arguments.overwrite else {name: schema}
    elif is_private:
        settings["normalize"] = "unit"
    # The noise of a run with a seed can be computed by everyone who reads the file.
    values = {f"#{n}" if is_private and n == "seed" else n: v[arguments.sweep] for n, v in SETTINGS.items()}
    name = "sweep" if arguments.sweep else "experiment"
    command = f"mu2mpi {'sweep' if arguments.sweep else 'run --config'} {arguments.output / name}.toml"
    header = HEADER.format(title=name.capitalize(), command=command)
    text = "\n".join([header, *(_commented_line(*pair) for pair in (settings | values).items())])
    write_texts(arguments.output, {f"{name}.toml": text, **texts}, arguments.overwrite)


def _commented_line(name: str, value: Any) -> str:
    """Format a setting as a line of TOML below its help, commented out if the name begins with "#"."""
    from mu2mpi.cli.experiment_arguments import help_text
    from mu2mpi.config.experiment_options import choices, option_fields

    field = option_fields()[name.lstrip("#")]
    known = ", ".join(choices(field) or ())
    line = f"{name} = {json.dumps(value, ensure_ascii=False)}".replace("#", "# ", 1)
    return f"# {help_text(field)}{': ' * bool(known)}{known}\n{line}\n"
