"""Plan of a run as text, for ``mu2mpi run --dry-run``."""

import resource
from pathlib import Path

from mu2mpi.analysis.description import format_named_values, privacy_summary
from mu2mpi.core.registry import lookup
from mu2mpi.execution.evaluation_schedule import run_seconds
from mu2mpi.execution.progress import duration_text, number_text
from mu2mpi.execution.simulation import Simulation


def describe_run_plan(simulation: Simulation, output: Path) -> str:
    """Return about ten lines on a run that has passed all checks but sent no message; collective."""
    experiment, source, constants = simulation.experiment, simulation.source, simulation.constants
    problem, mechanism, communicator = constants.problem, constants.mechanism, simulation.communicator
    # Linux counts in KiB. Rounds allocate little beyond what a prepared run holds.
    peaks = communicator.allgather(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    left = 1 - simulation.rounds_done / constants.rounds
    seconds = left * run_seconds(simulation.plan) / min(communicator.size, problem.machines)
    seconds_text = "less than a second" if seconds < 1 else f"roughly {duration_text(seconds)}"
    per_machine_plan = problem.per_machine_plan
    accounts = per_machine_plan.accounts(experiment.delta) if per_machine_plan else None
    guarantee = privacy_summary(simulation.privacy_statement, accounts).removeprefix("privacy").lstrip(": ")
    samples = f"{source.training_samples:,} training and {source.test_samples:,} test samples"
    preset = "" if experiment.preset is None else f", {experiment.preset} preset"
    resumes = f", resumed after round {simulation.rounds_done:,}" if simulation.rounds_done else ""
    noise = f"{mechanism.name}, sigma = {mechanism.sigma:.6g} on a grid of {mechanism.grid_spacing:.3g}"
    lines = [
        ("data", f"{source.name}: {samples}"),
        ("model", f"{experiment.loss} loss, d = {problem.d:,} parameters"),
        ("method", f"{experiment.method}{preset}, T = {constants.rounds:,} rounds"),
        ("server", f"{experiment.server}; noise: {lookup('servers', experiment.server).summary}"),
        ("machines", f"M = {problem.machines:,} on {communicator.size:,} MPI rank{'s' * (len(peaks) > 1)}"),
        ("privacy", guarantee),
        ("noise", f"{noise}, clipping norm {mechanism.clip_norm:.6g}" if mechanism.is_noisy else "none"),
        ("time", seconds_text),
        ("memory", f"about {number_text(max(peaks))} MiB per rank, {number_text(sum(peaks))} MiB in all"),
        ("output", f"{output}{resumes}"),
    ]
    return f"{format_named_values(lines)}\nNothing was run. Without --dry-run, the same command runs it."
