"""Audit of trust modes: many runs on data sets that differ in single samples, and attacks on them."""

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mu2mpi.audit.adversary_view import (
    AttackContext,
    AuditRuns,
    all_attacks,
    hides_single_messages,
    noiseless_constants,
    observe_runs,
)
from mu2mpi.audit.canaries import (
    CLIPPED_CASE,
    FEATURE_DTYPE,
    MOMENTS_CASE,
    UNCLIPPED_CASE,
    Canaries,
    WorstCase,
)
from mu2mpi.audit.evidence import AUDIT_CONFIDENCE, schedule_looks
from mu2mpi.audit.verdicts import AuditReport, Verdict, evaluate_runs
from mu2mpi.config.experiment import Experiment
from mu2mpi.config.experiment_options import PER_MACHINE_OPTIONS
from mu2mpi.config.problem_builder import build_problem, build_unequal_machines, input_digests
from mu2mpi.core.arrays import BoolArray, FloatArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.parallel import CallerComm, Communicator, block_range, duplicate_or_world
from mu2mpi.core.registry import lookup
from mu2mpi.execution.plan import check_agreement, check_settings_on_ranks
from mu2mpi.execution.warmup import compile_kernels
from mu2mpi.federation.estimators import SecondMoments
from mu2mpi.federation.participants import check_machine_rounds
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.privacy.noise.noise_stream import derive_key, root_key

PAPER_TRUST_MODES = ("untrusted", "trusted")  # trust modes that are audited by default
MAX_AUDITED_MACHINE_SAMPLES = 1 << 20  # largest number of samples of a machine
MAX_AUDIT_ELEMENTS = 1 << 28  # largest number of elements of an array
CANARY_EFFECT_RUNS = 200  # noiseless runs that estimate the mean effect of a canary under random subsampling
MIN_TRIALS_PER_DIMENSION = 2  # trials per observed number, needed to estimate the covariance


def audit_trust_modes(
    settings: Mapping[str, Any], *, trials: int = 2000, comm: CallerComm = None
) -> list[AuditReport]:
    """Audit trust modes by attacks on many runs, which all ranks share, or those of `comm` as in `run`.

    `settings` are options of ``mu2mpi audit`` by name, and `trials` the most runs with each variant of a
    canary. Returns a report per trust mode, equal on every rank, with `failures` and `to_text()`.

    Examples
    --------
    >>> reports = mu2mpi.audit_trust_modes({"server": "trusted", "rounds": 5, "seed": 1}, trials=200)
    >>> [report.failures for report in reports]
    [[]]
    """
    with duplicate_or_world(comm) as communicator:
        return [*run_audits(settings, trials, communicator)]


def run_audits(settings: Mapping[str, Any], trials: int, communicator: Communicator) -> Iterator[AuditReport]:
    """Yield an audit report per trust mode: the given server, or the paper's if the method permits."""
    given = {name: value for name, value in settings.items() if value is not None}
    chosen = {"machines": 3, "rounds": 10} | ({} if "epsilon" in given else {"rho": 1.0}) | given
    servers = [chosen["server"]] if "server" in chosen else PAPER_TRUST_MODES
    with communicator.collective_errors():
        experiments = _valid_experiments([{**chosen, "server": server} for server in servers])
    check_settings_on_ranks(experiments, communicator)
    for experiment in experiments:
        yield audit(experiment, trials, communicator)


def _valid_experiments(candidates: list[dict[str, Any]]) -> list[Experiment]:
    """Return an experiment for each valid dictionary of settings; raise the first error if none is."""
    experiments, errors = list[Experiment](), list[InputError]()
    # Losses without a gradient bound need a clipping norm.
    for clipped in ({}, {"clip_norm": CLIPPED_CASE.clip_norm}):
        for settings in candidates:
            try:
                experiments.append(Experiment.from_settings({**settings, **clipped}))
            except InputError as error:
                errors.append(error)
        if experiments:
            return experiments
    raise errors[0]


def audit(experiment: Experiment, trials: int, communicator: Communicator) -> AuditReport:
    """Attack the algorithm of an experiment, on the audit's own data, clipping norm and diameter; collective.

    The ranks share at most `trials` runs with each variant of a canary, and return the same report.
    """
    secret = os.urandom(32) if experiment.seed is None else root_key(experiment.seed)
    audit_key = communicator.bcast_object(derive_key(secret, "audit", experiment.server))
    with communicator.collective_errors():
        files = input_digests(experiment)
        has_moments = isinstance(experiment.chosen_method.estimator, SecondMoments)
        case = MOMENTS_CASE if has_moments else CLIPPED_CASE
        constants = worst_case_constants(experiment, case)
        _check_audit_size(constants, trials)
        cases = {case: constants}
        # Reused samples need the same increment in every round.
        is_used_once = constants.batching.max_uses_per_sample(constants.rounds) == 1
        if is_used_once and math.isfinite(constants.S):
            cases[UNCLIPPED_CASE] = worst_case_constants(experiment, UNCLIPPED_CASE)
    check_agreement({**files, "the number of trials": trials}, communicator)
    compile_kernels(np.dtype(FEATURE_DTYPE), constants, communicator)
    attacks = [attack for attack in all_attacks() if attack.attack_applies(constants)]
    # Divided among all attacks on both of the paper's trust modes.
    error_probability = (1 - AUDIT_CONFIDENCE) / (len(PAPER_TRUST_MODES) * (len(cases) + len(attacks)))
    context = AttackContext(experiment, constants, audit_key, error_probability)
    outcomes = [_audit_worst_case(context, *case, trials, communicator) for case in cases.items()]
    runs, verdicts = map(list, zip(*outcomes, strict=True))
    context, setup = replace(context, runs=tuple(runs)), _setup_text(experiment, constants)
    findings = [attack.run_attack(context) for attack in attacks if communicator.rank == 0]
    return AuditReport(setup, experiment, trials, verdicts, communicator.bcast_object(findings))


def worst_case_constants(experiment: Experiment, case: WorstCase) -> RunConstants:
    """Return run constants of a worst case; InputError without a privacy claim or an adversary."""
    if math.isinf(experiment.rho):
        raise InputError("--rho inf makes no privacy claim to audit. Give a finite --rho")
    reveals_messages = lookup("mechanisms", experiment.chosen_mechanism).reveals_messages
    # If iterates are observed, a third machine must see a step of a trusted server after the canary's.
    for name, minimum in (("machines", 3 if reveals_messages else 1), ("rounds", 3)):
        value = getattr(experiment, name)
        if value is None or value < minimum:
            fault = f"--{name} must be at least {minimum} in an audit, got {value}"
            raise InputError(f"{fault}. Use a larger --{name}")
    machines, rounds = experiment.machines or 1, experiment.rounds or 1
    method, options = experiment.chosen_method, experiment.method_options
    samples, audit_settings = method.audit_settings(machines, rounds, options)
    unequal_machines = None
    if experiment.has_unequal_machines:
        check_machine_rounds(machines, rounds)
        # No machine uses more samples than rounds.
        unequal_machines = build_unequal_machines(experiment, rounds * np.arange(1, machines + 1), None)
    # Two classes, one feature and a bias.
    scaled = experiment.replace(diameter=case.diameter)
    shape = machines, 2, 2, samples or MAX_AUDITED_MACHINE_SAMPLES
    problem = build_problem(scaled, *shape, unequal_machines=unequal_machines)
    audit_options = options.model_copy(update=audit_settings)
    problem = replace(problem, clip_norm=case.clip_norm, method_options=audit_options)
    batching = method.batching(problem, rounds)
    if reveals_messages:
        # Steps so small that no iterate comes near the boundary of the ball, whatever the noise.
        budgets = [] if unequal_machines is None else unequal_machines.budgets.values()
        rho = min(1.0, problem.budget.rho, *(budget.rho for budget in budgets))
        problem = replace(problem, eta_scale=case.step_scale * rho)
    constants: RunConstants = method.run_constants(problem, batching)
    # A single draw replaces the noise of all machines, including the colluders' known share.
    if experiment.trust_mode.is_central:
        return constants.with_problem(noise_shares=machines)
    return constants


def _check_audit_size(constants: RunConstants, trials: int) -> None:
    machines, rounds, d = constants.problem.machines, constants.rounds, constants.mechanism.parameters
    if machines * rounds * max(machines * rounds, 2 * trials * d) > MAX_AUDIT_ELEMENTS:
        problem = f"{trials} trials of {machines} machines and {rounds} rounds exceed the memory of an audit"
        raise InputError(f"{problem}. Use fewer --trials, --machines or --rounds")
    if (samples := constants.batching.samples_per_machine) > MAX_AUDITED_MACHINE_SAMPLES:
        limit = f"an audit has at most {MAX_AUDITED_MACHINE_SAMPLES:,} samples per machine"
        fault = f"{limit}, and this method needs {samples:,}"
        raise InputError(f"{fault}. Use a smaller --batch or fewer --rounds")
    plan = constants.problem.per_machine_plan if constants.problem.trust_mode.is_central else None
    if plan is not None and not plan.participation.counts_until(constants.rounds - 1).any():
        problem = "no machine participates before the last round"
        raise InputError(f"{problem}. A trusted server ignores its messages")


def _setup_text(experiment: Experiment, constants: RunConstants) -> str:
    default, name = type(experiment).model_fields["method"].default, experiment.chosen_method.name
    output_alone = "" if constants.mechanism.reveals_messages else "its output alone"
    resolved = experiment.trust_mode.resolve_options(experiment.server_options, constants.problem.machines)
    options = experiment.server_options.model_dump() | resolved
    options |= {name: getattr(experiment, name) for name in PER_MACHINE_OPTIONS}
    texts = (f"{name} = {value}" for name, value in options.items() if value is not None)
    phrases = ("" if name == default else name, output_alone, constants.batching.description, *texts)
    return "".join(f"{phrase}, " for phrase in phrases if phrase)


def _audit_worst_case(
    context: AttackContext, case: WorstCase, constants: RunConstants, trials: int, communicator: Communicator
) -> tuple[AuditRuns | None, Verdict]:
    """Run one worst case until its claim is decided; return the runs, on rank 0 alone, and the verdict."""
    root_key = derive_key(context.root_key, "case", case.name)
    canaries = Canaries(constants, case, derive_key(root_key, "dealing"))
    keys = [derive_key(root_key, "noise", f"run {n}") for n in range(2 * trials)]
    effects = canary_effects(canaries, derive_key(root_key, "difference"))
    with communicator.collective_errors():
        observed = effects[: 1 if hides_single_messages(constants) else None]
        numbers = sum(effect.shape[1] for effect in observed)
        if trials < (minimum := MIN_TRIALS_PER_DIMENSION * numbers):
            problem = f"--trials must be at least {minimum} for {numbers} observed numbers, got {trials}"
            raise InputError(f"{problem}. Use more --trials, or fewer --machines or --rounds")
    variants = random_variants(len(canaries), trials, derive_key(root_key, "variants"))
    runs: Any = None
    verdict: Any = None
    observations, done = [effect[:0] for effect in effects], 0
    for look_trials, error_share in schedule_looks(trials, minimum):
        # With more ranks than runs, some ranks have none.
        assigned = block_range(2 * look_trials - done, communicator.size, communicator.rank)
        own, done = slice(done + assigned.start, done + assigned.stop), 2 * look_trials
        observed = observe_runs(constants, canaries, variants[own], keys[own]) if assigned else []
        if (gathered := communicator.gather(observed)) is not None:
            blocks = zip(observations, *filter(None, gathered), strict=True)
            observations = [np.vstack(arrays) for arrays in blocks]
            runs = AuditRuns(canaries, variants[:done], keys[:done], observations, effects, error_share)
            verdict = evaluate_runs(runs, context.budget, context.error_probability)
        verdict = communicator.bcast_object(verdict)
        if verdict.is_decided(trials):
            break
    return runs, verdict


def random_variants(canaries: int, trials: int, key: bytes) -> BoolArray:
    """Return a random variant of each canary in each run; paired runs have opposite variants."""
    variants = np.random.default_rng(list(key)).integers(0, 2, (trials, 1, canaries)).astype(bool)
    return np.concatenate([variants, ~variants], axis=1).reshape(2 * trials, canaries)


def canary_effects(canaries: Canaries, root_key: bytes) -> list[FloatArray]:
    """Return the mean change of each rank's observations by each canary; shapes (canaries, numbers)."""
    count, noiseless = len(canaries), noiseless_constants(canaries.constants)
    runs = CANARY_EFFECT_RUNS if noiseless.batching.subsampling else 1
    keys = [derive_key(root_key, "noise", str(n)) for n in range(runs)]
    before = observe_runs(noiseless, canaries, np.zeros((runs, count), bool), keys)
    single = np.repeat(np.eye(count, dtype=bool), runs, axis=0)
    after = observe_runs(noiseless, canaries, single, keys * count)
    by_rank = zip(before, after, strict=True)
    return [b.reshape(count, runs, -1).mean(axis=1) - a.mean(axis=0) for a, b in by_rank]
