"""Write a commented file of an experiment or a sweep, and a schema of a table's columns.

The schema has the names of the columns, and blanks for their types and ranges, which you fill in from public
knowledge. No value of the data is read into a file.
"""

import json
import re
from argparse import ArgumentParser, Namespace
from pathlib import Path

from mu2mpi.cli.common_arguments import add_flag, add_output, add_shared_options, write_texts
from mu2mpi.core.parallel import world_if_parallel
from mu2mpi.core.toml import example_texts


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

    is_private = Experiment.from_settings({"data": arguments.data}).source.is_user_data
    name = "sweep.toml" if arguments.sweep else "experiment.toml"
    settings, schemas = {"data": arguments.data}, dict[str, str]()
    if is_private and (schema := schema_template(arguments.data)) is not None:
        stem = Path(arguments.data).name.partition(".")[0]
        schema_name = f"{'schema' if stem in ('', 'sweep', 'experiment') else stem}.toml"
        settings["schema"] = str(arguments.output / schema_name)
        # One that was filled in is kept.
        if arguments.overwrite or not Path(settings["schema"]).exists():
            schemas[schema_name] = schema
    elif is_private:
        settings["normalize"] = "unit"
    lines = "".join(f"{n} = {json.dumps(value, ensure_ascii=False)}\n" for n, value in settings.items())
    text = re.sub(r"^data = .*\n", lambda _: lines, example_texts()[name], flags=re.MULTILINE)
    if is_private:
        # The noise of a run with a seed can be computed by everyone who reads the file.
        text = re.sub(r"^seed = ", "# seed = ", text, flags=re.MULTILINE)
    write_texts(arguments.output, {name: text, **schemas}, arguments.overwrite)
