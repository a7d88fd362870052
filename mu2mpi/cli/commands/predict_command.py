"""Apply the model of a result to new samples.

Writes CSV with one line per row: the prediction, and the score of each class, which is a probability for
the losses softmax and logistic. The data have the columns of the run's schema, where labels may be missing,
or features as for run.
"""

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

from mu2mpi.cli.common_arguments import add_flag, add_output, add_shared_options
from mu2mpi.core.errors import InputError


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="RESULT", help="result file")
    parser.add_argument("data", type=Path, metavar="DATA", help="file of new samples, in any format")
    add_output(parser, "CSV file [default: standard output]")
    add_shared_options(parser, "--overwrite")
    add_flag(parser, "--data-is-public", "permission for messages to name rows and values")


def run_command(arguments: Namespace) -> None:
    from mu2mpi.analysis.tables import csv_table
    from mu2mpi.core.files import write_atomically
    from mu2mpi.results.reader import read_result
    from mu2mpi.results.writer import check_output

    output = arguments.output
    if output is not None:
        if os.path.realpath(output) in map(os.path.realpath, (arguments.path, arguments.data)):
            raise InputError(f"--output {output} is an input of this command. Name another file")
        check_output(output, arguments.overwrite)
    result = read_result(arguments.path)
    margins = result.margins(arguments.data, arguments.data_is_public)
    columns, header = [result.predictions(margins).tolist()], ["prediction"]
    if result.label_range is None:
        header += [f"score:{name}" for name in result.class_labels]
        columns += result.class_scores(margins).T.tolist()
    text = csv_table(header, [[str(value) for value in row] for row in zip(*columns, strict=True)])
    if output is None:
        print(text)
    else:
        write_atomically(output, [f"{text}\n".encode()])
        print(output)
