"""Publication of results: copies of files without anything that the privacy guarantee does not cover."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from mu2mpi.analysis.description import privacy_summary
from mu2mpi.analysis.privacy_reports import claim_contradictions
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.data.table_schema import Schema
from mu2mpi.federation.participation.schedule import parse_participation
from mu2mpi.results.reader import read_result
from mu2mpi.results.records import IDENTITY_ATTRIBUTES, SCORE_COLUMNS
from mu2mpi.results.result import Result
from mu2mpi.results.result_files import list_result_files, map_files
from mu2mpi.results.writer import check_output, write_result

NO_NOISE_ERROR = "it added no noise, so nothing in it is protected. Give --even-if-unprotected to publish it."
RECORDED_SEED_ERROR = (
    "its noise follows from its recorded seed, so nothing in it is protected. Repeat the run without --seed, "
    "or give --even-if-unprotected."
)


def publish(
    paths: Sequence[Path],
    output: Path,
    *,
    overwrite: bool = False,
    even_if_unprotected: bool = False,
    with_test_results: bool = False,
) -> list[str]:
    """Write copies of results without data outside the privacy guarantee; return descriptions.

    `even_if_unprotected` accepts runs without noise or with a recorded seed, and `with_test_results` keeps
    scores on a private share of the data file. Raises InputError before the first file is written.
    """
    targets = _output_paths(paths, output)
    checks = map_files(partial(_refusals, even_if_unprotected), list(targets), "checking")
    if refusals := [refusal for refused in checks for refusal in refused]:
        raise InputError("\n".join(refusals))
    for target in targets.values():
        check_output(target, overwrite)
    write = partial(_publish_file, overwrite=overwrite, with_test_results=with_test_results)
    return list(map_files(write, list(targets.items()), "writing"))


def _refusals(even_if_unprotected: bool, path: Path) -> list[str]:
    """Return a message for each reason not to publish a result."""
    result = read_result(path)
    problems = claim_contradictions(result)
    if not result.privacy.is_noisy and not even_if_unprotected:
        problems.append(NO_NOISE_ERROR)
    # Aggregate noise may be published: no file has single messages, only sums as of the protocol.
    elif result.privacy.noise_recomputable and not even_if_unprotected:
        problems.append(RECORDED_SEED_ERROR)
    return [f"{path}: {problem}" for problem in problems]


def _publish_file(paths: tuple[Path, Path], overwrite: bool, with_test_results: bool) -> str:
    """Write the published copy of a result to a target path; return its description."""
    source, target = paths
    result = _remove_unprotected(read_result(source), with_test_results)
    write_result(result, target, overwrite)
    guarantee = privacy_summary(result.privacy, result.accounts)
    return f"{target}: {result.environment['published']}\n{guarantee}"


def _remove_unprotected(result: Result, with_test_results: bool) -> Result:
    unknown = np.full(len(result.history), np.nan)
    history, theory = replace(result.history, elapsed_seconds=unknown), result.theory
    without = "without diagnostics, times, machine and folders"
    if result.has_unprotected_test_set and not with_test_results:
        scores = dict.fromkeys(SCORE_COLUMNS.values(), unknown)
        history = replace(history, test_loss=unknown, test_samples=0 * history.round, **scores)
        # The theory record is computed on the same test set.
        theory, result = None, replace(result, metrics={}, confusion=None, test_rows=None)
    if not history.has_losses:
        without += "; without loss and scores, since the test set was a share of the data file"
    # An allowlist, so that facts added by later versions are not published.
    kept = ("ranks", "git_commit", *IDENTITY_ATTRIBUTES)
    environment = {n: v for n, v in result.environment.items() if n in kept or n.endswith("_version")}

    def strip_directories(settings: Experiment | Schema) -> dict[str, str]:
        named = {n: getattr(settings, n, None) for n in ("data", "test", "schema", "budgets")}
        return {n: Path(v).name for n, v in named.items() if isinstance(v, str)}

    files, schema = strip_directories(result.experiment), result.schema
    schedule, value = parse_participation(result.experiment.participation)
    for file in schedule.input_files(value):
        files["participation"] = f"{schedule.name}:{value.replace(file, Path(file).name)}"
    return replace(
        result,
        experiment=result.experiment.replace(**files),
        history=history,
        theory=theory,
        diagnostics=None,
        timing={},
        cost={},
        schema_toml=schema.model_copy(update=strip_directories(schema)).toml if schema else None,
        environment={**environment, "published": without},
    )


def _output_paths(paths: Sequence[Path], output: Path) -> dict[Path, Path]:
    files, folders = list_result_files(paths), [path for path in paths if path.is_dir()]
    targets = {paths[0]: output}
    if len(paths) > 1 or folders or output.is_dir():
        parents = {file: next(filter(file.is_relative_to, folders), file.parent) for file in files}
        targets = {file: output / file.relative_to(parent) for file, parent in parents.items()}
        if output.is_file():
            raise InputError(f"--output must be a folder for several results, got the file {output}.")
    for folder in folders:
        if Path(os.path.realpath(output)).is_relative_to(os.path.realpath(folder)):
            raise InputError(f"--output {output} lies in the published folder {folder}. Choose another.")
    sources: dict[Path, Path] = {}
    for file, target in targets.items():
        if (other := sources.setdefault(target, file)) != file:
            raise InputError(f"{other} and {file} would both become {target}. Publish them one by one.")
        if os.path.realpath(target) == os.path.realpath(file):
            raise InputError(f"--output {target} is the result itself. Choose another.")
    return targets
