"""Apply the model of a result to new samples.

One line for each row of the data, as CSV: the prediction, and for classes the score of each, which is its
probability with the losses softmax and logistic. Columns are those of the schema of the run, but for the
label, which may be missing; without a schema, features are as for run.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from mu2mpi.cli.common_arguments import add_flag, add_output, add_shared
from mu2mpi.core.errors import InputError


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="RESULT", help="a result file")
    parser.add_argument("data", type=Path, metavar="DATA", help="a file of new samples, of any format")
    add_output(parser, "CSV file [default: standard output]")
    add_shared(parser, "--overwrite")
    add_flag(parser, "--data-is-public", "let messages name rows and values of the data")


def execute(arguments: Namespace) -> None:
    from mu2mpi.analysis.tables import as_csv
    from mu2mpi.core.files import write_whole
    from mu2mpi.results.reader import read_result
    from mu2mpi.results.writer import check_output

    output = arguments.output
    if output is not None:
        if output.resolve() in {arguments.path.resolve(), arguments.data.resolve()}:
            raise InputError(f"the output {output} is what is read; name another")
        check_output(output, arguments.overwrite)
    result = read_result(arguments.path)
    margins = result.margins(arguments.data, arguments.data_is_public)
    columns, header = [result.predictions(margins).tolist()], ["prediction"]
    if result.label_range is None:
        header += [f"score:{name}" for name in result.names_of_classes]
        columns += result.class_scores(margins).T.tolist()
    text = as_csv(header, [[str(value) for value in row] for row in zip(*columns, strict=True)])
    if output is None:
        print(text)
    else:
        write_whole(output, [f"{text}\n".encode()])
        print(output)
