"""Ways to break the code on purpose, and single attacks on small experiments."""

from dataclasses import replace
from typing import Any

import numpy as np

from helpers import noise_attack
from mu2mpi.audit import trials
from mu2mpi.audit.adversary_view import AttackContext, AuditRuns, Finding, all_attacks, observe_runs
from mu2mpi.audit.canaries import CLIPPED_CASE, Canaries
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.parallel import Communicator
from mu2mpi.federation.machine import Machines
from mu2mpi.privacy.mechanisms.binomial_mechanism import BinomialMechanism
from mu2mpi.privacy.noise import noise_stream
from mu2mpi.privacy.noise.masks import Masks
from mu2mpi.privacy.noise.noise_stream import MAX_STREAM_INDEX, add_noise, derive_key

RISK = 1e-3

FEW = [0, 1, 2, 3, 10, 2**16, 2**16 + 1, 2**24, 2**24 + 1, MAX_STREAM_INDEX - 1]
"""Numbers of machines and rounds, of which some coincide if they are cut."""


def few_messages(monkeypatch):
    """Let the noise of fewer messages be examined."""
    monkeypatch.setattr(noise_attack, "BOUNDARY_INDICES", FEW)
    monkeypatch.setattr(noise_attack, "CONSECUTIVE_TESTED_ROUNDS", range(1, 51))


def only(monkeypatch, *modules):
    """Let audits run these attacks alone, beside those on worst cases."""
    chosen = [
        attack
        for attack in all_attacks()
        if attack.__name__.rpartition(".")[2].removesuffix("_attack") in modules
    ]
    monkeypatch.setattr("mu2mpi.audit.trials.all_attacks", lambda: chosen)


def found(server: str, runs: int, **settings: Any):
    """Return the report of an audit."""
    chosen = {"server": server, "machines": 3, "rounds": 6, "rho": 1.0, "seed": 1, **settings}
    return trials.audit(Experiment.from_settings(chosen), runs, Communicator())


def canaries_of(case=CLIPPED_CASE, machines: int = 4, rounds: int = 6, **settings: Any):
    known = {"server": "untrusted", "machines": machines, "rounds": rounds, "rho": 1.0, "seed": 1, **settings}
    experiment = Experiment.from_settings(known)
    return experiment, Canaries(trials.worst_case_constants(experiment, case), case, bytes(32))


def attacked(module: str, seed: int = 1, runs: int = 0, **settings: Any) -> Finding:
    """Return what the attack of a module finds, given some runs of the first worst case."""
    experiment, canaries = canaries_of(**{"machines": 3, "rounds": 4, **settings})
    root, of_cases = bytes([*range(31), seed]), []
    if runs:
        keys = [derive_key(root, "noise", f"run {n}") for n in range(runs)]
        variants = trials.random_variants(len(canaries), runs // 2, root)
        of_cases = [
            AuditRuns(
                canaries, variants, keys, observe_runs(canaries.constants, canaries, variants, keys), []
            )
        ]
    view = AttackContext(experiment, canaries.constants, root, RISK, tuple(of_cases))
    attacks = [*all_attacks(), noise_attack]
    (attack,) = (one for one in attacks if one.__name__.endswith(f".{module}_attack"))
    assert attack.attack_applies(canaries.constants)
    return attack.run_attack(view)


# Each of what follows returns a function that breaks the code with a given monkeypatch.


def patched(place, name, make):
    """Put what `make` makes of a function in its place."""
    return lambda monkeypatch: monkeypatch.setattr(place, name, make(getattr(place, name)))


def changed_noise(change):
    """Draw noise for what `change` makes of the first machine, the round and the scale."""

    def changed(noised, message, key, who, first, count, t, scale):
        first, t, scale = change(first, t, scale)
        add_noise(noised, message, key, who, first, count, t, scale)

    return patched(noise_stream, "add_noise", lambda _: changed)


def edited_noise(edit):
    """Add what `edit` makes of the noise of a message, shape (padded,)."""

    def edited(noised, message, *where):
        add_noise(noised, message, *where)
        noised[:] = message + edit(noised - message)

    return patched(noise_stream, "add_noise", lambda _: edited)


def scaled_noise(share, where=lambda first, t: True):
    return changed_noise(lambda first, t, scale: (first, t, scale * (share if where(first, t) else 1)))


def sigma(change):
    """Draw noise of the size that `change` makes of a schedule, under the same claim."""

    def changed(make):
        def made(experiment, case):
            constants = make(experiment, case)
            return replace(constants, mechanism=replace(constants.mechanism, sigma=change(constants)))

        return made

    return patched(trials, "worst_case_constants", changed)


half_sigma = sigma(lambda constants: constants.mechanism.sigma / 2)


def masks_in(change):
    """Add the masks of the round that `change` makes of t."""
    return patched(Masks, "add", lambda add: lambda self, masked, t: add(self, masked, change(t)))


def edited_masks(edit):
    """Add what `edit` makes of the masks of a message, shape (padded,), in round t."""

    def make(add):
        def edited(self, masked, t):
            own = np.zeros_like(masked)
            add(self, own, t)
            masked += edit(own, t, self)

        return edited

    return patched(Masks, "add", make)


def silent_from_machine_10_on(monkeypatch):
    noised = Machines.noised_message
    monkeypatch.setattr(
        Machines,
        "noised_message",
        lambda self, t: self.message_sum if self.first_machine >= 10 else noised(self, t),
    )


half_of_the_coins = patched(
    BinomialMechanism,
    "noise_source",
    lambda make: lambda self, *whose: make(replace(self, fair_bits=self.fair_bits // 4 * 2), *whose),
)


def parts_for_all_machines(monkeypatch):
    """Each machine draws as if one less worked together with the server."""
    start = Machines.__init__

    def flawed(self, constants, *rest):
        start(self, constants.with_problem(noise_shares=constants.problem.noise_shares + 1), *rest)

    monkeypatch.setattr(Machines, "__init__", flawed)
