"""Checks before a run resumes from a checkpoint: repeated rounds must send identical messages."""

import math
from pathlib import Path

import numpy as np

from mu2mpi.config.experiment import Experiment, complete_experiment, first_different_setting
from mu2mpi.config.experiment_options import method_option_names
from mu2mpi.config.problem_builder import input_digests
from mu2mpi.core.arrays import FloatArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.text import warn
from mu2mpi.data.source import DataSource
from mu2mpi.execution.evaluation_schedule import plan_evaluations
from mu2mpi.execution.plan import Plan, input_digest
from mu2mpi.federation.iterates import Iterates
from mu2mpi.privacy.noise.grid import MAX_GRID_SUM
from mu2mpi.results.checkpoint import read_latest_valid_checkpoint, remove_checkpoint
from mu2mpi.results.records import CHECKPOINT_ADVICE, Checkpoint, checkpoint_path, previous_checkpoint_path


def find_checkpoint(output: Path, experiment: Experiment, platforms: tuple[str, ...]) -> Checkpoint | None:
    """Return the checkpoint beside an output, if any; InputError if the experiment cannot resume from it."""
    path = checkpoint_path(output)
    if not path.exists():
        return None
    is_empty = path.stat().st_size == 0 and not previous_checkpoint_path(path).exists()
    if is_empty and experiment.seed is not None:
        remove_checkpoint(path)  # The first one, which `write_checkpoint` has not flushed.
        return None
    checkpoint = read_latest_valid_checkpoint(path)
    # Open settings were resolved when the run began, perhaps on another number of ranks.
    resolvable = ("machines", "rounds", *method_option_names(), *experiment.trust_mode.options.model_fields)
    from_preset = [name for name in experiment.preset_settings() if name not in experiment.explicit_settings]
    open_settings = [*from_preset, *(name for name in resolvable if getattr(experiment, name) is None)]
    resolved = {name: getattr(checkpoint.experiment, name) for name in open_settings}
    different = first_different_setting(complete_experiment(experiment, **resolved), checkpoint.experiment)
    if different is not None:
        raise InputError(
            f"the checkpoint {path} is of another experiment: {different}. Repeat the command that wrote it, "
            "name another output, or remove the checkpoint."
        )
    if len({*checkpoint.numeric_platforms, *platforms}) == 1:
        return checkpoint
    then, now = (" and ".join(each) for each in (checkpoint.numeric_platforms, platforms))
    change = f"the checkpoint {path} was written with {then}, not with {now} on all ranks"
    if checkpoint.experiment.seed is None:
        raise InputError(
            f"{change}. To repeat rounds here would send slightly different messages under the same noise, "
            "which costs privacy; resume where it was written."
        )
    warn(f"{change}; the result will differ in its last bits")
    return checkpoint


def check_data_unchanged(checkpoint: Checkpoint, source: DataSource, output_path: Path) -> None:
    """Raise InputError if data or input files changed since a checkpoint: equal noise would reveal it."""
    if input_digest(source, input_digests(checkpoint.experiment)) == checkpoint.data_digest:
        return
    another_seed = "" if checkpoint.experiment.seed is None else " with another --seed"
    raise InputError(
        f"the training data of {source.name}, a file about machines or an extension have changed since the "
        f"run of {output_path} began. To resume would reveal the change.\n"
        f"Restore them and repeat the command. Or remove {checkpoint_path(output_path)} to start over"
        f"{another_seed}, which spends privacy on top of what is spent. {_spent_privacy_text(checkpoint)}"
    )


def check_checkpoint_arrays(checkpoint: Checkpoint, plan: Plan, output_path: Path) -> None:
    """Raise InputError unless the shapes and values of a checkpoint's arrays are possible for the run."""
    constants, problem = plan.constants, plan.constants.problem
    q, messages, arrays = checkpoint.q, checkpoint.last_messages, Iterates(constants).state_arrays()
    rounds = plan_evaluations(plan).rounds
    radius = problem.radius if plan.experiment.chosen_method.keeps_iterates_in_ball else math.inf
    radii = dict.fromkeys(arrays, radius) | dict.fromkeys(constants.state_names, math.inf)
    is_valid = {
        "iterates": checkpoint.iterates.keys() == arrays.keys()
        and all(
            _is_in_ball(array, arrays[name].shape, radii[name]) for name, array in checkpoint.iterates.items()
        ),
        "q": (q.dtype, q.shape) == (np.int64, constants.message_shape)
        and -MAX_GRID_SUM < q.min() <= q.max() < MAX_GRID_SUM,
        "last_messages": messages.dtype == np.int64
        and messages.shape == (problem.machines * ("control" in constants.state_names), *q.shape),
        "history": np.array_equal(checkpoint.history.round, rounds[rounds <= checkpoint.rounds_done]),
    }
    if invalid := [name for name, valid in is_valid.items() if not valid]:
        path = checkpoint_path(output_path)
        raise InputError(f"{invalid[0]} in the checkpoint {path} is not of this run; {CHECKPOINT_ADVICE}")


def _is_in_ball(array: FloatArray, shape: tuple[int, ...], radius: float) -> bool:
    """Return whether an array is a finite model in the ball of this radius, up to rounding errors."""
    if array.dtype != np.float64 or array.shape != shape or not np.all(np.isfinite(array)):
        return False
    with np.errstate(all="ignore"):
        return bool(np.sum((array / radius) ** 2) <= 1 + 1e-9)


def _spent_privacy_text(checkpoint: Checkpoint) -> str:
    privacy, done = checkpoint.privacy, checkpoint.rounds_done
    # A machine with fewer rounds than `done` has at most spent its whole budget.
    sums = done * privacy.mechanism.sums_per_round(checkpoint.experiment.rounds or 1)
    spent = privacy.mechanism.guarantee(min(sums, privacy.mechanism.rounds))
    texts = []
    for guarantee in (spent, privacy.guarantee):
        rho = "" if guarantee.rho is None else f"rho = {guarantee.rho:.4g}, "
        epsilon = guarantee.epsilon(privacy.delta)
        texts.append(f"{rho}epsilon = {epsilon:.4g} at delta = {privacy.delta:g}")
    return (
        f"When the checkpoint was written, {done} of {checkpoint.experiment.rounds} rounds had been sent "
        f"({texts[0]}), and more may have been since; all of them spend {texts[1]}"
    )
