"""Results fit to be published: written anew, without what the guarantee does not cover."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from mu2mpi.analysis.description import in_brief
from mu2mpi.analysis.privacy_reports import contradictions
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.data.table_schema import Schema
from mu2mpi.federation.participation.schedule import schedule_of
from mu2mpi.results.reader import read_result
from mu2mpi.results.records import SCORES
from mu2mpi.results.result import Result
from mu2mpi.results.result_files import list_files, shown
from mu2mpi.results.writer import check_output, write_result


def publish(
    paths: Sequence[Path],
    output: Path,
    *,
    overwrite: bool = False,
    even_if_unprotected: bool = False,
    with_test_results: bool = False,
) -> list[str]:
    """Write copies of results that hold nothing but what may be published, and say of each what.

    Raises an InputError before the first is written if one should not be published, or cannot be written.
    """
    targets = _targets(paths, output)
    complaints = []
    for path in shown(list(targets), "checking"):
        result = read_result(path)
        found = contradictions(result)
        if not result.privacy.is_noisy and not even_if_unprotected:
            found.append(
                "it added no noise, so nothing in it is protected; --even-if-unprotected publishes it"
            )
        # A run whose noise was drawn as one may be published: no file holds a single message, and sums are
        # distributed as the protocol says.
        elif result.privacy.noise_recomputable and not even_if_unprotected:
            found.append(
                "its noise follows from the seed that it states, so nothing in it is protected from its "
                "readers; repeat the run without --seed, or give --even-if-unprotected"
            )
        complaints += [f"{path}: {objection}" for objection in found]
    if complaints:
        raise InputError("\n".join(complaints))
    for target in targets.values():
        check_output(target, overwrite)
    lines = []
    for path in shown(list(targets), "writing"):
        result = _published(read_result(path), with_test_results)
        write_result(result, targets[path], overwrite)
        guarantee = in_brief(result.privacy, result.accounts)
        lines.append(f"{targets[path]}: {result.environment['published']}\n{guarantee}")
    return lines


def _published(result: Result, with_test_results: bool) -> Result:
    """Return a result without what the guarantee does not cover, and without what tells of the machine."""
    unknown = np.full(len(result.history), np.nan)
    history, theory = replace(result.history, elapsed_seconds=unknown), result.theory
    without = "without diagnostics, times, machine and folders"
    if result.tests_on_a_share and not with_test_results:
        scores = dict.fromkeys(SCORES.values(), unknown)
        history = replace(history, test_loss=unknown, test_samples=0 * history.round, **scores)
        # The smallest loss in the ball and the slopes are of the same test set.
        theory, result = None, replace(result, metrics={}, confusion=None, test_rows=None)
    if not history.has_losses:
        without += "; without loss and scores, as the test set was a share of the data file"
    # Named one by one, so that no fact of the machine that a later version adds gets out.
    environment = {n: v for n, v in result.environment.items() if n == "ranks" or n.endswith("_version")}

    def files_of(settings: Experiment | Schema) -> dict[str, str]:
        # Of the user's files, the names without the folders.
        named = {n: getattr(settings, n, None) for n in ("data", "test", "schema", "budgets")}
        return {n: Path(v).name for n, v in named.items() if isinstance(v, str)}

    files, schema = files_of(result.experiment), result.schema
    schedule, value = schedule_of(result.experiment.participation)
    for file in schedule.input_files(value):
        files["participation"] = f"{schedule.name}:{value.replace(file, Path(file).name)}"
    return replace(
        result,
        experiment=result.experiment.having(**files),
        history=history,
        theory=theory,
        diagnostics=None,
        class_counts=None,
        timing={},
        columns=schema.model_copy(update=files_of(schema)).toml if schema else None,
        environment={**environment, "published": without},
    )


def _targets(paths: Sequence[Path], output: Path) -> dict[Path, Path]:
    files, folders = list_files(paths), [path for path in paths if path.is_dir()]
    targets = {paths[0]: output}
    if len(paths) > 1 or folders or output.is_dir():
        # A file keeps its name below the folder that was given, or the last part of it.
        targets = {
            file: output / next((file.relative_to(f) for f in folders if file.is_relative_to(f)), file.name)
            for file in files
        }
        if output.is_file():
            raise InputError(f"the output {output} is a file; several results need a folder")
    for folder in folders:
        if output.resolve().is_relative_to(folder.resolve()):
            raise InputError(f"the output {output} lies in {folder}, which is published; name another")
    taken: dict[Path, Path] = {}
    for file, target in targets.items():
        if (other := taken.setdefault(target, file)) != file:
            raise InputError(f"{other} and {file} would both be {target}; publish them one by one")
        if target.exists() and target.samefile(file):
            raise InputError(f"the output {target} is the result itself; name another")
    return targets
