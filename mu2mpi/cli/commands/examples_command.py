"""List the sweeps and job scripts that come with mu2mpi, or write them into a folder.

Without names it lists them. What is written there already is replaced only with --overwrite.
"""

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

from mu2mpi.cli.common_arguments import add_flag, add_output
from mu2mpi.core.errors import InputError
from mu2mpi.core.files import write_whole
from mu2mpi.core.suggestions import or_else
from mu2mpi.core.toml import FOLDER, example_texts, purpose


def add_arguments(parser: ArgumentParser) -> None:
    words = "what to write, as tables.toml; tables alone is all files of that name"
    parser.add_argument("names", nargs="*", metavar="NAME", help=words)
    add_flag(parser, "--all", "write all of them")
    add_output(parser, f"[default: {FOLDER}/]", "FOLDER", default=Path(FOLDER))
    add_flag(parser, "--overwrite", "replace files that exist")


def execute(arguments: Namespace) -> None:
    from mu2mpi.core.parallel import world_if_parallel

    if world_if_parallel().rank != 0:
        return
    there = example_texts()
    stems = dict.fromkeys(Path(name).stem for name in there)
    chosen = list(there) if arguments.all else []
    for bare in (Path(name).name for name in arguments.names):
        found = [name for name in there if bare in (name, Path(name).stem)]
        if not found:
            raise InputError(f"there is no example {bare!r}{or_else(Path(bare).stem, stems, 'examples')}")
        chosen += found
    if not chosen:
        width = max(map(len, there))
        print("\n".join(f"{name:{width}}  {purpose(text)}" for name, text in there.items()))
        return
    texts = {arguments.output / name: there[name].encode() for name in chosen}
    no_folder = os.path.lexists(arguments.output) and not arguments.output.is_dir()
    in_the_way = [arguments.output] if no_folder else [path for path in texts if path.is_dir()]
    if in_the_way:
        raise InputError(f"{in_the_way[0]} is in the way; choose another folder with --output")
    differing = [str(path) for path, text in texts.items() if path.exists() and path.read_bytes() != text]
    if differing and not arguments.overwrite:
        raise InputError(f"nothing is written: only --overwrite would replace {', '.join(differing)}")
    for path, text in texts.items():
        write_whole(path, [text])
        print(path)
