"""Privacy reports: verification of the claims of results, and composition of their guarantees."""

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mu2mpi.analysis import description, setting_labels
from mu2mpi.analysis.description import KEY_DISCARDED_NOTE, PRIVATE_TEST_WARNING
from mu2mpi.config.experiment import message_settings, simulated_protocol_name
from mu2mpi.core.options import MIN_REAL_OPTION
from mu2mpi.core.text import bullet_list, rounded_up, text_table, wrap_paragraph
from mu2mpi.privacy.accounting.group_privacy import PersonSamples, person_guarantee
from mu2mpi.privacy.accounting.guarantee import GroupGuarantee, Guarantee
from mu2mpi.privacy.mechanisms.mechanism import approx_equal
from mu2mpi.privacy.statement import LARGE_EPSILON
from mu2mpi.results.reader import RunContents, read_result
from mu2mpi.results.result import Result
from mu2mpi.results.result_files import join_names, list_result_files, map_files

MAX_SAMPLES_PER_MACHINE = 2**31  # per machine, so that products fit in 64 bits
UNPROTECTED_NOTE = "The guarantee does not cover /diagnostics and times: `mu2mpi publish` leaves them out."
_HISTORY_ROUNDS_ERROR = "the rounds of /history must increase up to the {:,} of the experiment"


@dataclass(frozen=True)
class GroupSize:
    """Samples of one person: at most `samples` (None: all) at each of at most `machines` machines."""

    samples: int | None = 1
    machines: int = 1


class CheckedClaims(NamedTuple):
    """Privacy claims of a result file, compared with what its noise, rounds and settings give."""

    contents: RunContents
    row: list[str]  # of the report's table
    problems: list[str]  # messages on false claims
    remarks: list[str]
    least_private_machine: str | None  # name, if machines differ
    person_claim: tuple[float | None, float] | None  # rho and epsilon of a person, if the claims are true


def check_privacy_claims(paths: Iterable[Path], group_size: GroupSize | None = None) -> tuple[str, list[str]]:
    """Recompute the privacy claims of result files; return a report as text, and messages on false claims."""
    checked = list(map_files(partial(_check_claims, group_size), list_result_files(paths), "reading"))
    problems = [f"{run.contents.path}: {problem}" for run in checked for problem in run.problems]
    guarantees, remarks = [], dict[str, list[object]]()
    for run in checked:
        path, privacy = run.contents.path, run.contents.privacy
        limit = f"{privacy.adversary} learns at most this about {privacy.privacy_unit}"
        relation = f"(neighbours = {privacy.neighbours})"
        guarantees.append(f"{privacy.server.capitalize()} server: {limit} {relation}.")
        if (name := run.least_private_machine) is not None:
            suffix = "" if len(checked) == 1 else f" of {path}"
            guarantees.append(f"Machines{suffix} differ: samples of machine {name} have the largest epsilon.")
        for text in run.remarks:
            remarks.setdefault(text, []).append(path)
    claims = ["rho", "delta", "epsilon, exactly", "by the paper's lemma", "mu", "TPR at FPR 1%"]
    header = ["file", "server", *claims, "recomputed"]
    guarantees.append(
        "Claims were recomputed from the clipping norm, the noise and the rounds in each file, and compared "
        "with its experiment and history."
    )
    composition = [] if problems else describe_composition(run.contents for run in checked)
    sentences = [*dict.fromkeys(guarantees), *(f"Composition: {sentence}" for sentence in composition)]
    files_of = {text: f"{join_names(files, conjunction=', ')}: " for text, files in remarks.items()}
    bullets = [files_of[text] * (len(remarks[text]) < len(checked)) + text for text in remarks]
    blocks = [text_table(header, [[run.row for run in checked]]), *map(wrap_paragraph, sentences)]
    blocks += [_describe_group_privacy(checked, group_size) if group_size else "", bullet_list(bullets)]
    return "\n\n".join(filter(None, blocks)), problems


def _check_claims(group_size: GroupSize | None, path: Path) -> CheckedClaims:
    """Recompute the privacy claims of a result file, and that of a person if a group size is given."""
    result = read_result(path)
    privacy, accounts, problems = result.privacy, result.accounts, claim_contradictions(result)
    delta, exact, paper = map(rounded_up, (privacy.delta, privacy.epsilon_exact, privacy.epsilon))
    claims = ["none", delta, f"{exact} ({privacy.mechanism.name})", "–"]
    if privacy.rho is not None:
        claims = [rounded_up(privacy.rho), delta, exact, paper]
    stated, names = privacy.comparisons, ("mu", "tpr_at_fpr_0.01")
    claims += [rounded_up(stated[name]) if stated else setting_labels.MISSING for name in names]
    remarks = [concern.full for concern in privacy.concerns(accounts)]
    remarks += filter(None, [description.relation_comparison(privacy)] * privacy.is_noisy)
    remarks += [PRIVATE_TEST_WARNING] * description.has_private_test_results(result)
    remarks += [KEY_DISCARDED_NOTE] * privacy.is_key_discarded
    remarks += [UNPROTECTED_NOTE] * (result.diagnostics is not None or bool(result.timing))
    person = None if problems or group_size is None else group_privacy_guarantee(result, group_size)
    return CheckedClaims(
        RunContents(path, result.experiment, privacy, result.environment, result.model_digest),
        [str(path), privacy.server, *claims, "MISMATCH" if problems else "agrees"],
        problems,
        remarks,
        accounts.machine_names[description.sort_by_epsilon(accounts)[0]] if accounts else None,
        None if person is None else (person.rho, person.epsilon(privacy.delta)),
    )


def claim_contradictions(result: Result) -> list[str]:
    """Return a message for each privacy claim of a result that its other contents contradict."""
    privacy, experiment, mechanism = result.privacy, result.experiment, result.privacy.mechanism
    if found := _account_errors(result):
        return found
    # Computed from the noise, not from the claimed rho. A selection as a whole has no rho.
    rounds, found, expected = experiment.rounds or 1, [], dict[str, Any]()
    n, has_rho = mechanism.sums_per_round(rounds), privacy.selection is None
    spent: Callable[[int], float] = lambda t: mechanism.rho_spent(n * t) if has_rho else math.nan  # noqa: E731
    try:
        if result.accounts is not None:
            constants, batching = result.constants, result.constants.batching
            plan: Any = constants.problem.per_machine_plan
            rounds, spent = constants.mechanism.rounds, constants.rho_spent
            used = round(constants.sum_over_machines(constants.rounds, batching.distinct_samples_until))
            expected = plan.least_private_mechanism.file_attributes() | {"S": constants.S}
            differences = result.accounts.differences(plan.accounts(privacy.delta))
            found = [f"in /privacy/machines {text}" for text in differences]
        else:
            problem, method, used = result.problem, experiment.chosen_method, mechanism.max_samples_used
            released_sums = method.released_sums(problem, method.batching(problem, rounds))
            rounds = released_sums.rounds
            if mechanism.supports(released_sums):
                bound = method.contribution_bound(problem)
                expected = mechanism.released_fields(released_sums) | {"S": bound}
            else:
                pair = f"mechanism = {mechanism.name} with method = {method.name}"
                found.append(f"there is no privacy analysis of {pair}")
        if expected and (counted := int(result.history.samples[-1:].sum())) != used:
            found.append(f"{counted:,} samples were used by /history, and {used:,} by /privacy")
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        found.append(f"its experiment cannot be run: {error}")
    expected |= {name: getattr(experiment, name) for name in ("server", "neighbours", "delta")}
    expected |= {"mechanism": experiment.chosen_mechanism, "noise": simulated_protocol_name(experiment)}
    expected["noise_recomputable"] = experiment.seed is not None
    # With --budgets, /privacy/machines has the budgets.
    if experiment.budgets is None and privacy.rho is not None and experiment.epsilon is None:
        expected["rho"] = experiment.rho
    elif experiment.budgets is None and not privacy.epsilon_exact <= experiment.max_claimed_epsilon:
        expected["epsilon_exact"] = f"at most {experiment.max_claimed_epsilon}"
    stated = privacy.file_attributes()
    found += [
        f"{name} is {stated[name]} in /privacy and {value} in the experiment"
        for name, value in expected.items()
        if name in stated and stated[name] != value
        if isinstance(value, str) or not approx_equal(stated[name], value)
    ]
    # Recomputing takes time in proportion to the rounds, so they are compared first.
    if mechanism.rounds == rounds:
        found = [*privacy.mismatches(), *found, *_history_mismatches(result, spent)]
    return found


def _account_errors(result: Result) -> list[str]:
    """Return error messages on an unusable table of unequal machines in a result."""
    experiment, accounts = result.experiment, result.accounts
    if experiment.has_unequal_machines != (accounts is not None):
        state, kind = ("missing", "unequal") if accounts is None else ("present", "equal")
        return [f"/privacy/machines is {state}, but the experiment has {kind} machines"]
    if accounts is None:
        return []
    if result.history.round[-1:].tolist() != [experiment.rounds]:
        return [_HISTORY_ROUNDS_ERROR.format(experiment.rounds)]
    if (count := len(accounts.samples)) != experiment.machines:
        return [f"{count} machines are in /privacy/machines, but {experiment.machines} in the experiment"]
    shape = None if accounts.participation is None else accounts.participation.shape
    if shape not in (None, (experiment.rounds, experiment.machines)):
        return [f"participation in /privacy/machines has the shape {shape}"]
    ranges = {"samples": (0, MAX_SAMPLES_PER_MACHINE - 1), "rho_budget": (MIN_REAL_OPTION, math.inf)}
    return [
        f"{name} of machine {accounts.machine_names[np.argmin(is_valid)]} is out of range"
        for name, (low, high) in ranges.items()
        if not (is_valid := (getattr(accounts, name) >= low) & (getattr(accounts, name) <= high)).all()
    ]


def _history_mismatches(result: Result, rho_spent: Callable[[int], float]) -> list[str]:
    """Return a message on the first round whose recorded rho differs from the rho of the noise std."""
    history, rounds = result.history, result.experiment.rounds
    if history.round[-1:].tolist() != [rounds] or np.any(np.diff(history.round, prepend=0) <= 0):
        return [_HISTORY_ROUNDS_ERROR.format(rounds)]
    for t, stated in zip(history.round.tolist(), history.rho_spent.tolist(), strict=True):
        rho = rho_spent(t)
        if not (approx_equal(stated, rho) or (math.isnan(stated) and math.isnan(rho))):
            text = "none" if math.isnan(rho) else f"{rho:.10g}"
            return [f"rho_spent by round {t} is {stated:.10g} in /history, but {text} by the noise"]
    return []


def group_privacy_guarantee(result: Result, group_size: GroupSize) -> Guarantee:
    """Return the group privacy guarantee of a run for all samples of a person; its claims must be valid."""
    privacy, T = result.privacy, result.experiment.rounds or 0
    constants = None if result.accounts is None else result.constants
    if constants is None or constants.problem.per_machine_plan is None:
        batching = result.experiment.chosen_method.batching(result.problem, T)
        machines = privacy.mechanism.machines
        mechanisms, rounds = [privacy.mechanism] * machines, [T] * machines
    else:
        batching, plan = constants.batching, constants.problem.per_machine_plan
        takes_part = plan.mechanism_index >= 0
        mechanisms = [plan.mechanisms[k] for k in plan.mechanism_index[takes_part].tolist()]
        rounds = plan.participation.counts[takes_part].tolist()
    # With subsampling, any sample may be used. Those of a machine that is hidden as a whole count as one.
    all_samples = batching.samples_per_machine if privacy.mechanism.unit == "sample" else 1
    used = [all_samples if batching.subsampling else batching.distinct_samples_until(n) for n in rounds]
    held = [PersonSamples(m, min(n, group_size.samples or n)) for m, n in zip(mechanisms, used, strict=True)]
    if privacy.selection is not None:
        largest = sorted((person.samples for person in held), reverse=True)[: group_size.machines]
        return GroupGuarantee(privacy.guarantee, sum(largest))
    return person_guarantee(
        held,
        group_size.machines,
        machines_share_noise=result.experiment.trust_mode.protects_sum_only,
        one_sample_per_round=batching.max_batch_size == 1 and not batching.subsampling,
        delta=privacy.delta,
        aggregated_machines=privacy.aggregated_machines,
    )


def _describe_group_privacy(checked: Sequence[CheckedClaims], group_size: GroupSize) -> str:
    """Return a sentence and a table on the group privacy of a person, for each valid result, if any."""
    claims = [(run.contents, run.person_claim) for run in checked if run.person_claim is not None]
    if not claims:
        return ""
    rows, largest = [], max(epsilon for _, (_, epsilon) in claims)
    for run, (rho, epsilon) in claims:
        numbers = ["none" if rho is None else rounded_up(rho), rounded_up(run.privacy.delta)]
        rows.append([str(run.path), run.privacy.server, *numbers, rounded_up(epsilon)])
    n, machines = group_size.samples, group_size.machines
    samples = {None: "all samples", 1: "one sample"}.get(n, f"up to {n} samples")
    where = "one machine" if machines == 1 else f"each of up to {machines:,} machines"
    text = (
        f"Guarantee for a person with {samples} at {where}, if all of them changed at once. The "
        "participation and the number of samples of each machine are taken to be public."
    )
    if any(run.least_private_machine is not None for run in checked):
        text += " For unequal machines it is that of a person at the machines that reveal most."
    if math.isinf(largest):
        text += " An infinite epsilon means that no bound is known."
    elif largest > LARGE_EPSILON:
        text += f" An epsilon beyond {LARGE_EPSILON:g} protects little."
    return f"{wrap_paragraph(text)}\n\n{text_table(['file', 'server', 'rho', 'delta', 'epsilon'], [rows])}"


def describe_composition(runs: Iterable[RunContents]) -> list[str]:
    """Return sentences on the composed privacy guarantee of runs on data of possibly the same people.

    Data are of the same people unless certainly not. Copies and repeats of a run count once.
    """
    by_people: dict[object, list[RunContents]] = {}
    for run in runs:
        # A user's file may be a copy, version, part or other format of another.
        experiment = run.experiment
        people = "files" if experiment.source.is_user_data else (experiment.data, experiment.data_seed)
        by_people.setdefault(people, []).append(run)
    return [sentence for group in by_people.values() for sentence in _composition_sentence(group)]


def _composition_sentence(group: Sequence[RunContents]) -> list[str]:
    """Return a sentence on the composed privacy guarantee of runs on the same data; none for a single run."""
    # Bit-identical models had the same messages, unless no message affects them (after a single round).
    models = {run.model_digest or number: run for number, run in enumerate(group)}
    runs, first = list(models.values()), group[0].experiment
    noiseless = [run.path for run in runs if not run.privacy.is_noisy]
    if len(runs) == 1 or len(noiseless) == len(runs):
        return []
    subject = f"these {len(runs)} runs on {join_names(list(dict.fromkeys(r.experiment.data for r in runs)))}"
    if first.data_seed is not None and not first.source.is_user_data:
        subject += f" data with data_seed = {first.data_seed}"
    if len(runs) < len(group):
        subject += f" (in {len(group)} files; copies and repeats count once)"
    by_noise: dict[object, list[object]] = {}
    for run in runs:
        if (seed := run.experiment.seed) is not None:
            by_noise.setdefault((seed, message_settings(run.experiment)), []).append(run.path)
    if noiseless:
        sentence = f"no guarantee holds for {subject}: {join_names(noiseless)} added no noise."
    elif shared := next((paths for paths in by_noise.values() if len(paths) > 1), None):
        sentence = (
            f"no guarantee holds for {subject}: {join_names(shared)} had the same noise, and their models do "
            "not show that the data were the same. The difference of their messages may have no noise."
        )
    else:
        composed = reduce(operator.add, (run.privacy.guarantee for run in runs))
        deltas, comparison, sums = [run.privacy.delta for run in runs], "", ""
        if composed.rho is None:
            # Basic composition, since not all runs have Gaussian mechanisms.
            delta, epsilon = sum(deltas), math.fsum(run.privacy.epsilon_exact for run in runs)
            sums = ", the sums over runs"
        else:
            delta, epsilon = min(deltas), composed.epsilon(min(deltas))
            comparison = f"as much as from one run with rho = {rounded_up(composed.rho)}; exactly, "
        bound = f"epsilon = {rounded_up(epsilon)} at delta = {delta:g}"
        sentence = f"whoever sees what {subject} released learns at most {comparison}{bound}{sums}."
        if any(run.privacy.mechanism.unit == "machine" for run in runs):
            sentence += " This is about one sample: machines of several runs may have different samples."
    note = " All data files of your own count as data of the same people."
    return [sentence + note * first.source.is_user_data]
