"""Plans of a sweep's runs, resolved and checked before the first run, and which of them are unfinished."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mu2mpi.config.experiment import Experiment, first_different_setting
from mu2mpi.config.sweep import Sweep
from mu2mpi.core.errors import InputError, MissingPackageError
from mu2mpi.core.parallel import Communicator
from mu2mpi.data.memory import DataLocation
from mu2mpi.data.source import DataSource
from mu2mpi.execution.plan import (
    Plan,
    check_agreement,
    check_data_on_ranks,
    open_source_on_ranks,
    resolve_plan,
)
from mu2mpi.results.reader import read_experiment
from mu2mpi.results.writer import check_output


class SweepPlans(NamedTuple):
    """Plans of the runs of a sweep, and the reasons why other runs are refused, by file name."""

    plans: dict[Experiment, Plan]
    refused: dict[str, str]

    def refusal_lines(self) -> list[str]:
        """Return lines with the number of refused runs, each reason, and the names of its files."""
        if not self.refused:
            return []
        total = len(self.plans) + len(self.refused)
        lines = [f"{len(self.refused):,} of {total:,} runs are refused, the others go on:"]
        for reason in dict.fromkeys(self.refused.values()):
            names = [name for name, other in self.refused.items() if other == reason]
            lines += [f"refused: {reason}", f"  {', '.join(names)}"]
        return lines


def resolve_sweep(
    sweep: Sweep,
    experiments: Sequence[Experiment],
    location: DataLocation,
    communicator: Communicator,
    ranks: int | None = None,
    *,
    to_read: Iterable[Experiment] = (),
) -> SweepPlans:
    """Resolve and check the plan of each experiment of a sweep; InputError if all are refused; collective.

    The samples of the experiments `to_read` are checked as well.
    """
    plans, refused = dict[Experiment, Plan](), dict[str, str]()
    sources = _open_sources(experiments, location, communicator, to_read)
    ranks = ranks or communicator.size
    with communicator.collective_errors():
        for experiment in experiments:
            try:
                if isinstance(source := sources[experiment.data_set_identity], InputError):
                    raise source
                plan = resolve_plan(experiment, source, ranks)
                _ = plan.privacy_statement  # raises InputError
                plans[experiment] = plan
            except InputError as error:
                if sweep.compares_methods and isinstance(error, MissingPackageError):
                    sweep.exclude(experiment.settings(), error)
                else:
                    refused[sweep.file_name(experiment)] = str(error)
        sweep.require_remaining_runs(len(plans), [*refused.values()] or sweep.exclusions)
    check_agreement({"the list of runs that are refused": (sweep.exclusions, refused)}, communicator)
    return SweepPlans(plans, refused)


def _open_sources(
    experiments: Sequence[Experiment],
    location: DataLocation,
    communicator: Communicator,
    to_read: Iterable[Experiment],
) -> dict[tuple[object, ...], DataSource | InputError]:
    """Open each distinct data set; return sources, or errors, by identity of the data; collective."""
    examples = {experiment.data_set_identity: experiment for experiment in experiments}
    identities_to_read = {experiment.data_set_identity for experiment in to_read}
    sources = dict[tuple[object, ...], DataSource | InputError]()
    for identity, experiment in examples.items():
        try:
            source = open_source_on_ranks(experiment, location, communicator)
            if identity in identities_to_read:
                check_data_on_ranks(source, communicator)
            sources[identity] = source
        except InputError as error:
            sources[identity] = error
    return sources


def unfinished_runs(runs: Mapping[Path, Plan], overwrite: bool) -> list[Path]:
    """Return result paths of runs without a result; InputError if a file holds another experiment."""
    todo = []
    for path, plan in runs.items():
        if overwrite or not path.exists():
            todo.append(path)
        elif different := first_different_setting(plan.experiment, read_experiment(path)):
            raise InputError(
                f"{path} holds another experiment: {different}. "
                "Use another --output, or --overwrite to replace it."
            )
    if todo:
        check_output(todo[0], overwrite)
    return todo
