"""Plans of a sweep's runs, resolved and checked before the first run, and which of them are unfinished."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mu2mpi.config.experiment import Experiment, first_different_setting
from mu2mpi.config.sweep import Refusal, Sweep
from mu2mpi.core.errors import InputError
from mu2mpi.core.parallel import Communicator
from mu2mpi.core.text import warn
from mu2mpi.data.memory import DataLocation
from mu2mpi.data.source import DataSource
from mu2mpi.execution.plan import Plan, check_agreement, open_source_on_ranks, resolve_plan
from mu2mpi.results.reader import read_experiment
from mu2mpi.results.writer import check_output


class SweepPlans(NamedTuple):
    """Plans of the runs of a sweep, and reasons for which other runs are refused, by file name."""

    plans: dict[Experiment, Plan]
    refused: dict[str, str]

    def refusal_lines(self) -> list[str]:
        """Return lines with the number of refused runs, and the file name of each with the reason."""
        total = len(self.plans) + len(self.refused)
        lines = [f"{name} is refused: {reason}" for name, reason in self.refused.items()]
        return [f"{len(lines):,} of {total:,} runs are refused, the others go on:", *lines] if lines else []


def resolve_sweep(
    sweep: Sweep,
    experiments: Sequence[Experiment],
    location: DataLocation,
    communicator: Communicator,
    ranks: int | None = None,
) -> SweepPlans:
    """Resolve and check the plan of each experiment of a sweep; InputError if all are refused; collective."""
    plans, refusals = dict[Experiment, Plan](), list[Refusal]()
    sources = open_sources(experiments, location, communicator)
    with communicator.collective_errors():
        for experiment in experiments:
            source = sources[experiment.data_set_identity]
            try:
                if isinstance(source, InputError):
                    raise source
                plan = resolve_plan(experiment, source, ranks or communicator.size)
                _ = plan.privacy_statement  # raises InputError
                plans[experiment] = plan
            except InputError as error:
                refusals.append(Refusal(experiment.settings(), error, sweep.file_name(experiment)))
        remaining = sweep.exclude(refusals, [experiment.settings() for experiment in plans])
    refused = {refusal.file_name: str(refusal.error) for refusal in remaining}
    check_agreement({"the list of runs that are refused": (sweep.exclusions, refused)}, communicator)
    return SweepPlans(plans, refused)


def open_sources(
    experiments: Sequence[Experiment], location: DataLocation, communicator: Communicator
) -> dict[tuple[object, ...], DataSource | InputError]:
    """Open each distinct data set; return sources, or errors, by `Experiment.data_set_identity`."""
    examples = {experiment.data_set_identity: experiment for experiment in experiments}
    sources = dict[tuple[object, ...], DataSource | InputError]()
    for identity, experiment in examples.items():
        try:
            sources[identity] = open_source_on_ranks(experiment, location, communicator)
        except InputError as error:
            sources[identity] = error
    return sources


def unfinished_runs(runs: Mapping[Path, Plan], overwrite: bool) -> list[Path]:
    """Return result paths of runs without a result; results may differ in the number of evaluations."""
    todo, other_evaluations = [], []
    for path, plan in runs.items():
        if overwrite or not path.exists():
            todo.append(path)
            continue
        experiment, stored = plan.experiment, read_experiment(path)
        different = first_different_setting(experiment, stored, ignored=("evaluations",))
        if different is not None:
            raise InputError(
                f"{path} holds another experiment: {different}. "
                "Use another --output, or --overwrite to replace it."
            )
        if experiment.evaluations != stored.evaluations:
            other_evaluations.append(path)
    if todo:
        check_output(todo[0], overwrite)
    if other_evaluations:
        warn(
            f"{len(other_evaluations)} of the finished runs have another number of evaluations, such as "
            f"{other_evaluations[0]}. Their models are the same, so they are kept; --overwrite repeats them, "
            "which without a seed spends their privacy budget again"
        )
    return todo
