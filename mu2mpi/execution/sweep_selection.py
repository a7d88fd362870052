"""Selection in a sweep: a random number of random runs, of which only the best is released."""

import math
import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from mu2mpi.config.experiment import Experiment
from mu2mpi.config.experiment_options import PER_MACHINE_OPTIONS, option_fields, own_option_fields
from mu2mpi.config.sweep import Sweep
from mu2mpi.core.errors import InputError
from mu2mpi.core.parallel import world
from mu2mpi.core.registry import lookup
from mu2mpi.core.text import print_messages
from mu2mpi.data.memory import DataLocation
from mu2mpi.execution.plan import Plan, check_agreement, check_inputs_on_ranks, check_settings_on_ranks
from mu2mpi.execution.simulation import Simulation
from mu2mpi.execution.sweep_plans import resolve_sweep
from mu2mpi.losses.metrics.metric import all_metrics
from mu2mpi.privacy.accounting.selection import MAX_MEAN_RUNS, MIN_MEAN_RUNS, RHO_RTOL, Selection
from mu2mpi.results.records import SCORE_COLUMNS
from mu2mpi.results.result import Result
from mu2mpi.results.writer import check_output, write_result

# Settings that a grid may vary, besides own options of methods and mechanisms: they change neither the data
# nor the budget, nor who is protected against whom.
VARIABLE_SETTINGS = (
    "method", "mechanism", "rounds", "diameter", "normalize", "norm_bound", "l2", "clip_norm", "eta_scale",
)  # fmt: skip


def run_selection(
    sweep: Sweep, selection: Selection, output: Path, data_dir: DataLocation = None, overwrite: bool = False
) -> None:
    """Run K random experiments of a sweep, and write the best by a metric.

    Their epsilon is the budget of the whole selection. All ranks take part in each run, and results exist in
    memory alone until the best is written. InputError before the first run if one is not accounted for.
    """
    communicator, experiments = world(), sweep.experiments
    check_settings_on_ranks(experiments, communicator)
    check_agreement({"--select": selection}, communicator)
    epsilon, delta = experiments[0].epsilon or math.inf, experiments[0].delta
    with communicator.collective_errors():
        _check_grid(experiments, selection)
        if communicator.rank == 0:
            check_output(output, overwrite)
        rho = selection.rho_of_runs(epsilon, delta)
        runs = [experiment.replace(rho=rho) for experiment in experiments]
    resolved = resolve_sweep(sweep, runs, data_dir, communicator, to_read=runs)
    plans = [*resolved.plans.values()]
    with communicator.collective_errors():
        if lines := [*sweep.exclusions, *resolved.refusal_lines()]:
            raise InputError("\n".join(["--select needs a grid without refused runs.", *lines]))
        _check_guarantees(selection, epsilon, plans)
    for plan in plans:
        check_inputs_on_ranks(plan, communicator)
    drawn = [secrets.randbelow(len(plans)) for _ in range(selection.draw_run_count())]  # rank 0's are used
    results = (Simulation(plans[k], communicator).run() for k in communicator.bcast_object(drawn))
    best = max(results, key=lambda result: _score(result, selection.select))
    with communicator.collective_errors():
        if communicator.rank == 0:
            write_result(_protected_part(best, selection, epsilon), output, overwrite)
            print_messages(f"the selected result is {output}")


def _check_grid(experiments: Sequence[Experiment], selection: Selection) -> None:
    """Raise InputError unless a selection from these experiments has a guarantee."""
    first, select, runs = experiments[0], selection.select, selection.select_runs
    means = MIN_MEAN_RUNS, MAX_MEAN_RUNS
    variable = {*VARIABLE_SETTINGS, *own_option_fields("method"), *own_option_fields("mechanism")}
    fixed = [name for name in option_fields() if name not in variable]
    varied = [name for name in fixed if len({getattr(e, name) for e in experiments}) > 1]
    mechanisms = {lookup("mechanisms", experiment.chosen_mechanism) for experiment in experiments}
    without_rho = sorted(m.name for m in mechanisms if m.budget_parameter != "rho")
    metrics = [*_metric_signs(lookup("losses", first.loss).label_kind)]
    refusals = [
        (math.isinf(first.epsilon or math.inf), "a finite --epsilon, the budget for all runs"),
        (not means[0] <= runs <= means[1], f"--select-runs from {means[0]} to {means[1]}, got {runs}"),
        (varied, f"one value of {', '.join(varied)}. It may vary {', '.join(VARIABLE_SETTINGS)}"),
        (first.seed is not None, f"secret random numbers, got seed = {first.seed}. Leave out the seed"),
        (not first.trust_mode.is_central, f"--server trusted: parties of {first.server} see every run"),
        (first.has_unequal_machines, f"equal machines. Leave out --{', --'.join(PER_MACHINE_OPTIONS)}"),
        (without_rho, f"runs with a rho, and {' and '.join(without_rho)} noise has none"),
        (select not in metrics, f"a metric of the test set ({', '.join(metrics)}), got {select}"),
    ]
    for is_refused, text in refusals:
        if is_refused:
            raise InputError(f"--select needs {text}.")


def _metric_signs(label_kind: str) -> dict[str, int]:
    """Test metrics of losses for labels of a kind: 1 if larger is better, and else -1."""
    own = {name: each for name, each in all_metrics().items() if each.label_kind == label_kind}
    signs = {name: 1 if each.higher_is_better else -1 for name, each in own.items()}
    return {"test_loss": -1, SCORE_COLUMNS[label_kind]: 1, **signs}


def _score(result: Result, metric: str) -> float:
    """Value of a test metric, negated if smaller is better; minus infinity if it is undefined."""
    history = getattr(result.history, metric, [math.nan])
    value = _metric_signs(result.label_kind)[metric] * result.metrics.get(metric, history[-1])
    return -math.inf if math.isnan(value) else float(value)


def _check_guarantees(selection: Selection, epsilon: float, plans: Sequence[Plan]) -> None:
    """Raise InputError if runs differ in rho, or have too large a sampler error."""
    guarantees = [plan.privacy_statement.guarantee for plan in plans]
    rhos = [guarantee.rho or math.inf for guarantee in guarantees]
    if max(rhos) > min(rhos) * (1 + RHO_RTOL):
        raise InputError(f"--select needs runs of one rho, got {min(rhos)} to {max(rhos)}. Give --mechanism.")
    delta = plans[0].experiment.delta
    stated = max(selection.guarantee(guarantee).epsilon(delta) for guarantee in guarantees)
    if stated > epsilon:
        raise InputError(f"--select can guarantee only epsilon = {stated:.6g}. Use a larger --epsilon.")


def _protected_part(best: Result, selection: Selection, epsilon: float) -> Result:
    """Return the selected result without times, diagnostics and claims for a single run."""
    unknown = np.full(len(best.history), np.nan)
    return replace(
        best,
        experiment=best.experiment.replace(epsilon=epsilon),
        history=replace(best.history, rho_spent=unknown, elapsed_seconds=unknown),
        privacy=best.privacy.of_selection(selection),
        # The theorem bounds the mean over runs, not that of selected ones.
        theory=None if best.theory is None else replace(best.theory, excess_loss_bound=math.nan),
        diagnostics=None,
        timing={},
        cost={},
    )
