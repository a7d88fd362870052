"""Selection in a sweep: a random number of random runs, of which only the best is released."""

import math
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from mu2mpi.config.experiment import Experiment
from mu2mpi.config.experiment_options import option_fields, own_option_fields
from mu2mpi.config.sweep import Sweep
from mu2mpi.core.errors import InputError
from mu2mpi.core.parallel import world
from mu2mpi.core.registry import lookup
from mu2mpi.core.suggestions import suggest_or_list
from mu2mpi.data.memory import DataLocation
from mu2mpi.execution.plan import Plan, check_agreement, check_inputs_on_ranks, check_settings_on_ranks
from mu2mpi.execution.simulation import Simulation
from mu2mpi.execution.sweep_plans import resolve_sweep
from mu2mpi.losses.metrics.metric import all_metrics
from mu2mpi.privacy.accounting.selection import (
    MAX_MEAN_RUNS,
    MIN_MEAN_RUNS,
    RHO_RTOL,
    RunCount,
    Selection,
    rho_of_runs,
)
from mu2mpi.privacy.noise.sampler_error import SamplerError
from mu2mpi.privacy.statement import PrivacyStatement
from mu2mpi.results.records import SCORE_COLUMNS
from mu2mpi.results.result import Result
from mu2mpi.results.writer import check_output, write_result

# Settings that a grid may vary besides own options of methods and mechanisms: none of them changes the data,
# who is protected against whom, or the budget.
VARIABLE_SETTINGS = (
    "method", "mechanism", "rounds", "diameter", "normalize", "norm_bound", "l2", "clip_norm", "eta_scale",
)  # fmt: skip


def run_selection(
    sweep: Sweep,
    metric: str,
    run_count: RunCount,
    output: Path,
    *,
    data_dir: DataLocation = None,
    overwrite: bool = False,
) -> bool:
    """Run K random experiments of a sweep, and write the best by a test metric; return whether K > 0.

    The epsilon of the experiments is the budget of the whole selection. All ranks take part in each run, and
    the results of the others than the best exist only in memory. InputError before the first run, if the
    selection or one of the runs is not accounted for.
    """
    communicator, experiments = world(), sweep.experiments
    check_settings_on_ranks(experiments, communicator)
    check_agreement({"--select": (metric, run_count)}, communicator)
    output = communicator.bcast_object(output)
    with communicator.collective_errors():
        _check_grid(experiments, metric, run_count)
        if communicator.rank == 0:
            check_output(output, overwrite)
        epsilon, delta = experiments[0].target_epsilon, experiments[0].delta
        rho = rho_of_runs(run_count, epsilon, delta)
        runs = [experiment.replace(rho=rho) for experiment in experiments]
    resolved = resolve_sweep(sweep, runs, data_dir, communicator, to_read=runs)
    with communicator.collective_errors():
        if lines := [*sweep.exclusions, *resolved.refusal_lines()]:
            raise InputError("\n".join(["--select needs a grid without refused runs.", *lines]))
        plans = [*resolved.plans.values()]
        selection = _selection_of(plans, metric, run_count)
        for plan in plans:
            _statement(plan.privacy_statement, selection).check_sampler(epsilon)
    for plan in plans:
        check_inputs_on_ranks(plan, communicator)
    drawn = [secrets.randbelow(len(plans)) for _ in range(run_count.draw())] if communicator.rank == 0 else []
    best, best_score = None, -math.inf
    for index in communicator.bcast_object(drawn):
        result = Simulation(plans[index], communicator).run()
        score = _score(result, metric)
        if best is None or score > best_score:
            best, best_score = result, score
    with communicator.collective_errors():
        if communicator.rank == 0 and best is not None:
            write_result(_released(best, selection, epsilon), output, overwrite)
    return best is not None


def _check_grid(experiments: list[Experiment], metric: str, run_count: RunCount) -> None:
    """Raise InputError unless a selection from these experiments has a guarantee."""
    first = experiments[0]
    if first.epsilon is None or math.isinf(first.epsilon):
        raise InputError("--select needs a privacy budget of the whole selection. Give a finite --epsilon.")
    if not MIN_MEAN_RUNS <= run_count.mean <= MAX_MEAN_RUNS:
        limits = f"{MIN_MEAN_RUNS:g} and {MAX_MEAN_RUNS:g}"
        raise InputError(f"--select-runs must be between {limits}, got {run_count.mean:g}.")
    variable = {*VARIABLE_SETTINGS, *own_option_fields("method"), *own_option_fields("mechanism")}
    for name in option_fields():
        if name not in variable and len({getattr(experiment, name) for experiment in experiments}) > 1:
            raise InputError(
                f"--select does not work with a list of {name}, which changes the data, the budget or who is "
                f"protected. Use one value, and lists of {', '.join(VARIABLE_SETTINGS)} or options of a method."
            )
    if first.seed is not None:
        raise InputError(f"--select needs secret randomness, got seed = {first.seed}. Leave out the seed.")
    if not first.trust_mode.is_central:
        raise InputError(
            f"--select does not work with --server {first.server}, whose parties see every run. "
            "Use --server trusted."
        )
    if first.has_unequal_machines:
        raise InputError(
            "--select needs equal machines. Leave out --participation, --objective and --budgets."
        )
    for experiment in experiments:
        if lookup("mechanisms", experiment.chosen_mechanism).budget_parameter != "rho":
            raise InputError(
                f"--select does not work with --method {experiment.method} and {experiment.chosen_mechanism} "
                "noise: selections are accounted for in Renyi DP, and it has no rho. Leave it out."
            )
    label_kind = lookup("losses", first.loss).label_kind
    known = [*_metric_signs(label_kind)]
    if metric not in known:
        raise InputError(
            f"--select {metric} is no metric of the test set{suggest_or_list(metric, known, 'choices')}. "
            "Metrics of training data are not protected."
        )


def _metric_signs(label_kind: str) -> dict[str, int]:
    """Test metrics by name: 1 if larger is better, and else -1."""
    own = {name: each for name, each in all_metrics().items() if each.label_kind == label_kind}
    signs = {name: 1 if each.higher_is_better else -1 for name, each in own.items()}
    return {"test_loss": -1, SCORE_COLUMNS[label_kind]: 1} | signs


def _score(result: Result, metric: str) -> float:
    """Value of a metric, negated if smaller is better; minus infinity for an undefined one."""
    history = {n: getattr(result.history, n)[-1] for n in ("test_loss", SCORE_COLUMNS[result.label_kind])}
    values: Mapping[str, float] = history | result.metrics
    value = _metric_signs(result.label_kind)[metric] * values[metric]
    return -math.inf if math.isnan(value) else float(value)


def _selection_of(plans: Iterable[Plan], metric: str, run_count: RunCount) -> Selection:
    """Selection from the runs of these plans; InputError if they differ in rho."""
    guarantees = [plan.privacy_statement.guarantee for plan in plans]
    rhos = [math.inf if guarantee.rho is None else guarantee.rho for guarantee in guarantees]
    if not max(rhos) <= min(rhos) * (1 + RHO_RTOL):
        raise InputError(
            f"--select needs runs of the same privacy, got rho = {min(rhos):.12g} to {max(rhos):.12g}. "
            "Use one --mechanism."
        )
    errors = SamplerError(*map(max, *(guarantee.sampler_error for guarantee in guarantees)))
    distribution = {"select_distribution": run_count.distribution, "select_runs": run_count.mean}
    bounds = {f"select_{name}": value for name, value in errors._asdict().items()}
    return Selection(select=metric, **distribution, **bounds)


def _statement(run: PrivacyStatement, selection: Selection) -> PrivacyStatement:
    """Privacy statement of a selection whose best run has the statement `run`."""
    claims = {name: getattr(run, name) for name in ("server", "S", "noise", "noise_recomputable")}
    return PrivacyStatement.of(run.mechanism, run.delta, selection=selection, **claims)


def _released(best: Result, selection: Selection, epsilon: float) -> Result:
    """Selected result, without anything that is not protected, or that depends on the other runs."""
    unknown = np.full(len(best.history), np.nan)
    return replace(
        best,
        experiment=best.experiment.replace(epsilon=epsilon),
        history=replace(best.history, rho_spent=unknown, elapsed_seconds=unknown),
        privacy=_statement(best.privacy, selection),
        # The theorem bounds the expectation over all runs, not over selected ones.
        theory=None if best.theory is None else replace(best.theory, excess_loss_bound=math.nan),
        diagnostics=None,
        class_counts=None,
        timing={},
        cost={},
    )
