"""Whether a run may go on from the checkpoint that it finds: rounds may be repeated only to the bit."""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mu2mpi.config.experiment import Experiment, difference, filled
from mu2mpi.config.experiment_options import method_options
from mu2mpi.core.errors import InputError
from mu2mpi.core.text import warn
from mu2mpi.data.source import Source
from mu2mpi.execution.evaluation_schedule import planned_measurements
from mu2mpi.execution.plan import Plan, digest_with
from mu2mpi.federation.iterates import Iterates
from mu2mpi.federation.machine import counted_classes
from mu2mpi.privacy.noise.grid import LARGEST_SUM
from mu2mpi.results.records import OF_CHECKPOINT, Checkpoint, checkpoint_path


def find_checkpoint(output: Path, experiment: Experiment, builds: tuple[str, ...]) -> Checkpoint | None:
    """Return the checkpoint beside an output, if any; InputError if the experiment cannot resume from it."""
    place = checkpoint_path(output)
    if not place.exists():
        return None
    from mu2mpi.results.checkpoint import read_last_whole_checkpoint

    try:
        checkpoint = read_last_whole_checkpoint(place)
    except InputError:
        if place.exists():
            raise
        # The job that wrote it has just finished; that there is a result now is seen before anything is sent.
        return None
    # What the experiment leaves open was settled when the run began, perhaps on other ranks.
    sizes = ("machines", "rounds", *method_options(), *experiment.trust.options.model_fields)
    chosen = [name for name in experiment.by_preset() if name not in experiment.given]
    open_ones = [*chosen, *(name for name in sizes if getattr(experiment, name) is None)]
    settled = {name: getattr(checkpoint.experiment, name) for name in open_ones}
    different = difference(filled(experiment, **settled), checkpoint.experiment)
    if different is not None:
        raise InputError(
            f"the checkpoint {place} is of another experiment: {different}; repeat the command that wrote "
            "it, name another output, or remove the checkpoint"
        )
    if len({*checkpoint.builds, *builds}) == 1:
        return checkpoint
    then, now = (" and ".join(kinds) for kinds in (checkpoint.builds, builds))
    where = f"the checkpoint {place} was written with {then}, not with {now} on all ranks"
    if checkpoint.experiment.seed is None:
        raise InputError(
            f"{where}; rounds would be sent again with the same noise but slightly other content, which "
            "costs privacy: go on where it was written"
        )
    warn(f"{where}; the result will differ in its last bits")
    return checkpoint


def check_same_data(
    checkpoint: Checkpoint, source: Source, input_files: Mapping[str, str], output: Path
) -> None:
    """Raise InputError unless a run resumes with its own data: others would show under the same noise."""
    if digest_with(source, input_files) == checkpoint.data:
        return
    another_seed = "" if checkpoint.experiment.seed is None else " with another --seed"
    raise InputError(
        f"the training data of {source.name}, a file about machines or an extension are not those with which "
        f"the run of {output} began. To resume would reveal what was changed.\n"
        f"Put them back as they were and repeat the command. Or remove {checkpoint_path(output)} to start "
        f"afresh{another_seed}; what that spends is added to what was spent already. {_spent(checkpoint)}"
    )


def check_state(checkpoint: Checkpoint, plan: Plan, output: Path) -> None:
    """Raise InputError unless the state of a checkpoint is one that the run can have come to."""
    constants, task, q, counts = plan.constants, plan.constants.task, checkpoint.q, checkpoint.class_counts
    shape, arrays = (task.rows, task.features), Iterates(constants).arrays()
    rounds = planned_measurements(plan).rounds
    radii = dict.fromkeys(arrays, task.radius) | dict.fromkeys(constants.state, math.inf)
    fitting = {
        "iterates": checkpoint.iterates.keys() == arrays.keys()
        and all(_is_point(array, shape, radii[name]) for name, array in checkpoint.iterates.items()),
        "q": q.dtype == np.int64 and q.shape == shape and -LARGEST_SUM < q.min() <= q.max() < LARGEST_SUM,
        "class_counts": counts.dtype == np.int64
        and counts.shape == (task.machines, counted_classes(constants))
        and not np.any(counts < 0),
        "history": np.array_equal(checkpoint.history.round, rounds[rounds <= checkpoint.rounds_done]),
    }
    if wrong := [name for name, fits in fitting.items() if not fits]:
        place = checkpoint_path(output)
        raise InputError(f"{wrong[0]} in the checkpoint {place} is not of this run; {OF_CHECKPOINT}")


def _is_point(array: NDArray[np.float64], shape: tuple[int, int], radius: float) -> bool:
    """Return whether this is a model in the ball, but for rounding errors; false for what is not finite."""
    if array.dtype != np.float64 or array.shape != shape or not np.all(np.isfinite(array)):
        return False
    with np.errstate(all="ignore"):
        return bool(np.sum((array / radius) ** 2) <= 1 + 1e-9)


def _spent(checkpoint: Checkpoint) -> str:
    """Say what the rounds of a run have cost as far as its checkpoint knows, and what they may have cost."""
    privacy, done = checkpoint.privacy, checkpoint.rounds_done
    # Who takes part in fewer rounds has at most spent all that it may.
    spent = privacy.mechanism.guarantee(min(done, privacy.mechanism.rounds))
    costs = []
    for each in (spent, privacy.guarantee):
        shown = "" if each.rho is None else f"rho = {each.rho:.4g}, "
        costs.append(f"{shown}epsilon = {each.epsilon(privacy.delta):.4g} at delta = {privacy.delta:g}")
    return (
        f"When the checkpoint was written, {done} of {checkpoint.experiment.rounds} rounds had been sent "
        f"({costs[0]}), and more may have been since; all of them spend {costs[1]}"
    )
