"""List the sweeps, job scripts and the notebook that come with mu2mpi, or write them into a folder.

Without names, the examples are listed. Existing files are replaced only with --overwrite.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from mu2mpi.cli.common_arguments import add_flag, add_output, add_shared_options, write_texts
from mu2mpi.core.errors import InputError
from mu2mpi.core.parallel import world_if_parallel
from mu2mpi.core.suggestions import suggest_or_list
from mu2mpi.core.toml import EXAMPLES_FOLDER, example_purpose, example_texts


def add_arguments(parser: ArgumentParser) -> None:
    names_help = "file to write, such as tables.toml, or tables for all files of that name"
    parser.add_argument("names", nargs="*", metavar="NAME", help=names_help)
    add_flag(parser, "--all", "all examples")
    output_help = f"folder of the files [default: {EXAMPLES_FOLDER}/]"
    add_output(parser, output_help, "FOLDER", default=Path(EXAMPLES_FOLDER))
    add_shared_options(parser, "--overwrite")


def run_command(arguments: Namespace) -> None:
    if world_if_parallel().rank != 0:
        return
    examples = example_texts()
    stems = dict.fromkeys(Path(name).stem for name in examples)
    chosen = list(examples) if arguments.all else []
    for file_name in (Path(name).name for name in arguments.names):
        matches = [name for name in examples if file_name in (name, Path(name).stem)]
        if not matches:
            hint = suggest_or_list(Path(file_name).stem, stems, "examples")
            raise InputError(f"no example is called {file_name!r}{hint}")
        chosen += matches
    if not chosen:
        width = max(map(len, examples))
        print("\n".join(f"{name:{width}}  {example_purpose(text)}" for name, text in examples.items()))
        return
    write_texts(arguments.output, {name: examples[name] for name in chosen}, arguments.overwrite)
