"""Write results anew without what the guarantee does not cover.

Left out are diagnostics, times, the machine, the folders of data files, and loss and accuracy on a share of
the data file. A result whose claims do not hold, or that protects nobody, is refused.
"""

from argparse import ArgumentParser, Namespace

from mu2mpi.cli.common_arguments import add_flag, add_output, add_paths

FLAGS = {
    "overwrite": "replace files that exist",
    "even_if_unprotected": "publish also runs whose noise follows from their seed, or that added none",
    "with_test_results": "keep loss and accuracy on a share of the data file, which no noise protects",
}


def add_arguments(parser: ArgumentParser) -> None:
    add_paths(parser)
    add_output(parser, "file for one file, or folder for several", "PATH", required=True)
    for name, what in FLAGS.items():
        add_flag(parser, f"--{name.replace('_', '-')}", what)


def execute(arguments: Namespace) -> None:
    from mu2mpi.analysis.publication import publish

    flags = {name: getattr(arguments, name) for name in FLAGS}
    print("\n".join(publish(arguments.paths, arguments.output, **flags)))
