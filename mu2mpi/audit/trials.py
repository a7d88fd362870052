"""The audit of servers: many runs on data that differ in single samples, and what they say."""

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mu2mpi.audit.adversary_view import Runs, View, all_attacks, hides_parts, noiseless, see, tells_sums
from mu2mpi.audit.canaries import CLIPPED, FEATURE_TYPE, UNCLIPPED, Canaries, Kinds, WorstCase
from mu2mpi.audit.evidence import CONFIDENCE
from mu2mpi.audit.verdicts import Report, judge
from mu2mpi.config.experiment import Experiment
from mu2mpi.config.experiment_options import OF_MACHINES
from mu2mpi.config.task_builder import input_files, task_of, unequal_machines_of
from mu2mpi.core.errors import InputError
from mu2mpi.core.parallel import Communicator, block
from mu2mpi.core.registry import find
from mu2mpi.execution.plan import check_agreement, check_settings
from mu2mpi.execution.warmup import kernel_calls, start_compiler
from mu2mpi.federation.participants import check_machine_rounds
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.losses.loss import Array
from mu2mpi.privacy.noise.noise_stream import derive_key, root_key

OF_PAPER = ("untrusted", "trusted")  # servers that are audited where none is named
MAX_SAMPLES, MAX_NUMBERS = 1 << 20, 1 << 28  # of a machine; in one array
DRAWS = 200  # runs without noise that show what a canary changes on average, where it is drawn or not
TRIALS_PER_NUMBER = 2  # with fewer the adversary cannot learn how what is seen varies together


def audit_servers(settings: Mapping[str, Any], trials: int, communicator: Communicator) -> Iterator[Report]:
    """Audit the server of some settings, or those of the paper that the method allows."""
    given = {name: value for name, value in settings.items() if value is not None}
    if "epsilon" not in given:
        given.setdefault("rho", 1.0)
    servers = [given["server"]] if "server" in given else OF_PAPER
    with communicator.together():
        experiments = _allowed([{**given, "server": server} for server in servers])
    for experiment in experiments:
        yield audit(experiment, trials, communicator)


def _allowed(settings: list[dict[str, Any]]) -> list[Experiment]:
    """Return the experiments that there can be; raise the first error if there is none."""
    found, problems = list[Experiment](), list[InputError]()
    # What has no bound but a clipping norm has that of the audit.
    for clipped in ({}, {"clip_norm": CLIPPED.clip_norm}):
        for given in settings:
            try:
                found.append(Experiment.make({**given, **clipped}))
            except InputError as error:
                problems.append(error)
        if found:
            return found
    raise problems[0]


def audit(experiment: Experiment, trials: int, communicator: Communicator) -> Report:
    """Attack the algorithm of an experiment, with the audit's own data, clipping norm and diameter.

    The ranks share the runs, `trials` with each sample of either kind, and all return the same report.
    """
    secret = os.urandom(32) if experiment.seed is None else root_key(experiment.seed)
    root = communicator.share(derive_key(secret, "audit", experiment.server))
    check_settings([experiment], communicator)
    with communicator.together():
        files = input_files(experiment)
        constants = schedule_of(experiment, CLIPPED)
        _check_size(constants, trials)
        cases = {CLIPPED: constants}
        # Where samples are in many roles, or iterates hidden, increments have to be the same everywhere.
        is_once = constants.sampling.touches(constants.rounds) == 1
        if is_once and constants.mechanism.shows_messages and math.isfinite(constants.S):
            cases[UNCLIPPED] = schedule_of(experiment, UNCLIPPED)
    check_agreement(files, communicator)
    start_compiler()
    communicator.fill_cache(kernel_calls(np.dtype(FEATURE_TYPE), constants))
    attacks = [attack for attack in all_attacks() if attack.applies(constants)]
    # Shared by all attacks on the servers of the paper, which may be audited together.
    risk = (1 - CONFIDENCE) / (len(OF_PAPER) * (len(cases) + len(attacks)))
    runs = [_runs_of(of_case, case, trials, root, communicator) for case, of_case in cases.items()]
    found: Any = None
    if communicator.rank == 0:
        view = View(experiment, constants, root, risk, tuple(filter(None, runs)))
        judgements = [judge(of_case, view.budget, risk) for of_case in view.runs]
        found = judgements, [attack.run(view) for attack in attacks]
    words, reaches = _words(experiment, constants), tells_sums(constants)
    return Report(words, reaches, experiment, trials, *communicator.share(found))


def schedule_of(experiment: Experiment, case: WorstCase) -> RunConstants:
    """Return the constants of the runs of a worst case, if there is something to attack."""
    if math.isinf(experiment.rho):
        raise InputError("rho = inf claims nothing that could be audited; give a finite --rho")
    shows_messages = find("mechanisms", experiment.chosen_mechanism).shows_messages
    # With a trusted server, a machine beside the first and the canary's must see a step taken after it. Of
    # hidden iterates the adversary sees the last, and machines do not matter.
    for name, fewest in (("machines", 3 if shows_messages else 1), ("rounds", 3)):
        value = getattr(experiment, name)
        if value is None or value < fewest:
            raise InputError(
                f"{name} = {value}: an audit needs at least {fewest}, so that somebody sees what becomes of "
                "the replaced sample"
            )
    machines, rounds = experiment.machines or 1, experiment.rounds or 1
    method, options = experiment.chosen_method, experiment.options
    samples, own = method.worst_case(machines, rounds, options)
    unequal = None
    if experiment.machines_differ:
        check_machine_rounds(machines, rounds)
        # Nobody needs more samples than rounds.
        unequal = unequal_machines_of(experiment, rounds * np.arange(1, machines + 1), None)
    # Two classes, of one feature and a bias.
    sized = experiment.having(diameter=case.diameter)
    whole = task_of(sized, machines, 2, 2, samples or MAX_SAMPLES, unequal=unequal)
    task = replace(whole, clip_norm=case.clip_norm, options=options.model_copy(update=own))
    sampling = method.sampling(task, rounds)
    if shows_messages:
        # So small, however large the noise, that no iterate comes near the surface of the ball.
        budgets = [task.budget] if unequal is None else [task.budget, *unequal.budgets.values()]
        task = replace(task, eta_scale=case.steps * min(1.0, *(budget.rho for budget in budgets)))
    constants: RunConstants = method.constants(task, sampling)
    trust = experiment.trust
    # Where one draw stands for the noise of all machines, that of some is known, and not drawn.
    is_one = trust.is_central and not trust.gives_key(constants.task.server_options)
    return constants.with_task(parts=machines) if is_one else constants


def _check_size(constants: RunConstants, trials: int) -> None:
    """Raise InputError if an audit would need more memory, or samples, than it may have."""
    machines, rounds = constants.task.machines, constants.rounds
    if machines * rounds * max(machines * rounds, 2 * trials * constants.task.d) > MAX_NUMBERS:
        raise InputError(
            f"{trials} trials of {machines} machines and {rounds} rounds are more than an audit can hold in "
            "memory; give fewer of them"
        )
    if (samples := constants.sampling.owned) > MAX_SAMPLES:
        raise InputError(
            f"each machine would need {samples:,} samples, and an audit gives it at most {MAX_SAMPLES:,}; "
            "give a larger rho or fewer rounds"
        )
    members = constants.task.per_machine if constants.task.trust.is_central else None
    if members is not None and not members.participation.counts_until(constants.rounds - 1).any():
        raise InputError("nobody is there before the last round, whose messages a trusted server never uses")


def _words(experiment: Experiment, constants: RunConstants) -> str:
    """Return the method, unless it is the default, what of it is attacked, and how it draws samples."""
    default, name = type(experiment).model_fields["method"].default, experiment.chosen_method.name
    alone = "" if constants.mechanism.shows_messages else "its output alone"
    own = experiment.trust.complete(experiment.server_options, constants.task.machines)
    own = experiment.server_options.model_dump() | own
    own |= {name: getattr(experiment, name) for name in OF_MACHINES}
    told = (f"{name} = {value}" for name, value in own.items() if value is not None)
    words = ("" if name == default else name, alone, constants.sampling.words, *told)
    return "".join(f"{word}, " for word in words if word)


def _runs_of(
    constants: RunConstants, case: WorstCase, trials: int, root: bytes, communicator: Communicator
) -> Runs | None:
    """Run one worst case, divided among ranks; return the runs on rank 0, and None elsewhere."""
    root = derive_key(root, "case", case.words)
    canaries = Canaries(constants, case, derive_key(root, "dealing"))
    keys = [derive_key(root, "noise", f"run {n}") for n in range(2 * trials)]
    differences = differences_of(canaries, derive_key(root, "difference"))
    with communicator.together():
        numbers = sum(of_one.shape[1] for of_one in differences[: 1 if hides_parts(constants) else None])
        if trials < TRIALS_PER_NUMBER * numbers:
            raise InputError(
                f"{trials} trials cannot show how the {numbers} numbers vary that are seen in each; give at "
                f"least {TRIALS_PER_NUMBER * numbers}, or fewer machines or rounds"
            )
    kinds = coin_kinds(len(canaries), trials, derive_key(root, "kinds"))
    mine = block(2 * trials, communicator.size, communicator.rank)
    ours = slice(mine.start, mine.stop)
    # With more ranks than runs, some see nothing.
    everyones = communicator.gather(see(constants, canaries, kinds[ours], keys[ours]) if mine else [])
    if everyones is None:
        return None
    seen = [np.vstack(of_machine) for of_machine in zip(*filter(None, everyones), strict=True)]
    return Runs(canaries, kinds, keys, seen, differences)


def coin_kinds(canaries: int, trials: int, key: bytes) -> Kinds:
    """Return which canaries are of the second kind: by a coin, and the opposite in the run that follows."""
    coins = np.random.default_rng(list(key)).integers(0, 2, (trials, 1, canaries)).astype(bool)
    return np.concatenate([coins, ~coins], axis=1).reshape(2 * trials, canaries)


def differences_of(canaries: Canaries, root: bytes) -> list[Array]:
    """Return by what each canary moves what is seen at each rank, shape (canaries, numbers)."""
    count, quiet = len(canaries), noiseless(canaries.constants)
    keys = [derive_key(root, "noise", str(n)) for n in range(DRAWS if quiet.sampling.chance else 1)]
    one = np.repeat(np.eye(count, dtype=bool), len(keys), axis=0)
    before = see(quiet, canaries, np.zeros((len(keys), count), bool), keys)
    after = see(quiet, canaries, one, keys * count)
    of_ranks = zip(before, after, strict=True)
    return [b.reshape(count, len(keys), -1).mean(axis=1) - a.mean(axis=0) for a, b in of_ranks]
