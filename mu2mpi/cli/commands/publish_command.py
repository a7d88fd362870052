"""Write copies of results without values that the privacy guarantee does not cover.

Removes diagnostics, times, host names, folders of data files, and loss and accuracy on a share of the data
file. Refuses results whose claims do not hold, or that protect nobody.
"""

from argparse import ArgumentParser, Namespace

from mu2mpi.cli.common_arguments import add_flag, add_output, add_paths

HELP_BY_FLAG = {
    "crate": "RO-Crate of results, report, figures, tables and commands, in a new folder",
    "overwrite": "replacement of existing files",
    "even_if_unprotected": "publication of runs without noise, or whose noise follows from a seed, too",
    "with_test_results": "loss and accuracy on a share of the data file, which no noise protects",
}


def add_arguments(parser: ArgumentParser) -> None:
    add_paths(parser)
    add_output(parser, "file for one result, or folder for several", "PATH", required=True)
    for name, text in HELP_BY_FLAG.items():
        add_flag(parser, f"--{name.replace('_', '-')}", text)


def run_command(arguments: Namespace) -> None:
    from mu2mpi.analysis.publication import publish

    flags = {name: getattr(arguments, name) for name in HELP_BY_FLAG}
    if flags.pop("crate"):
        from mu2mpi.analysis.crate import publish_crate as publish
    print("\n".join(publish(arguments.paths, arguments.output, **flags)))
