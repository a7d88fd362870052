"""The audit of machines that differ, or are away: claims are reached, and what breaks them is refuted."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.faults import canaries_of, few_messages, found, only, patched
from helpers.slow import slow

from mu2mpi import cli
from mu2mpi.audit import trials, verdicts
from mu2mpi.audit.adversary_view import adversary_observations
from mu2mpi.audit.canaries import CLIPPED_CASE, UNCLIPPED_CASE
from mu2mpi.federation import unequal_machines
from mu2mpi.federation.machine import Machines
from mu2mpi.federation.participants import RoundParticipants
from mu2mpi.privacy.accounting.guarantee import Budget
from mu2mpi.privacy.mechanisms.mechanism import Mechanism
from mu2mpi.privacy.noise.noise_source import PerMachineNoiseSource

UNIFORM, BY_SIZE = {"participation": "uniform:2"}, {"participation": "by-size", "objective": "machines"}
TRACE = "round,machine\n1,0\n2,0\n2,1\n3,1\n1,2\n5,0\n5,3\n6,0\n6,1\n"
BUDGETS = "[rho]\n0 = 1.0\n1 = 0.5\n2 = 4.0\n[epsilon]\n3 = 2.0\n"


@pytest.fixture(autouse=True)
def few_normals(monkeypatch):
    few_messages(monkeypatch)
    only(monkeypatch)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "trace.csv").write_text(TRACE)
    (tmp_path / "budgets.toml").write_text(BUDGETS)
    return {"trace": f"trace:{tmp_path / 'trace.csv'}", "budgets": str(tmp_path / "budgets.toml")}


WAYS = [UNIFORM, {"budgets": True, **BY_SIZE}]
MORE_WAYS = [
    {"participation": "bernoulli:0.6"},
    {"participation": "by-size"},
    {"participation": "trace"},
    {"budgets": True},
    {"objective": "samples", "budgets": True, **UNIFORM},
]
POWER = {"method": "anytime-dp-mf"}
METHODS = [{}, POWER]
MORE_METHODS = [
    {"method": "anytime-sgd"},
    {"method": "parallel-sgd"},
    {"method": "dp-gd"},
    {"method": "dp-gd", "batch": 2},
    {"method": "storm", "clip_norm": 0.01},
    {"noise_correlation": 0.5},
]


def named(way, files):
    """Return settings with the names of files in place of what stands for them."""
    return {name: files.get(name if value is True else value, value) for name, value in way.items()}


@pytest.mark.parametrize(
    ("way", "method"),
    [
        *zip(WAYS, METHODS, strict=True),
        *slow(*zip(WAYS, METHODS[::-1], strict=True)),
        *slow(*((way, method) for way in WAYS for method in MORE_METHODS)),
        *slow(*((way, method) for way in MORE_WAYS for method in METHODS + MORE_METHODS)),
    ],
)
@pytest.mark.parametrize("server", ["untrusted", "trusted"])
def test_every_canary_reaches_its_claim_where_noise_is_exact(server, way, method, files):
    """What it moves, over noise that is white of deviation 1, is the mu of all that is seen."""
    for case in (CLIPPED_CASE, UNCLIPPED_CASE):
        if case is UNCLIPPED_CASE and method.get("method") in ("dp-gd", "storm"):
            continue
        experiment, canaries = canaries_of(case, server=server, **named(way, files), **method)
        constants = canaries.constants
        present = constants.problem.per_machine_plan.participation.participation_matrix(range(1, 7), range(4))
        last = 6 if server == "untrusted" else 5
        assert present[canaries.rounds - 1, canaries.machines].all()
        if method.get("method") != "dp-gd":
            assert len(canaries) == present[:last].sum()
        claims = canaries.claimed_budgets(Budget(1.0, experiment.target_epsilon, experiment.delta))
        for machine, claim in zip(canaries.machines, claims, strict=True):
            assert claim.rho <= constants.problem.per_machine_plan.accounts(1e-5).rho_budget[machine]
        differences = trials.canary_effects(canaries, bytes(32))
        mu = np.empty(len(canaries))
        for machine in set(canaries.machines.tolist()):
            of = canaries.machines == machine
            mu[of] = np.linalg.norm(adversary_observations(constants, differences, machine)[of], axis=1)
        allowed = np.array([claim.rho for claim in claims]) * verdicts._expected_rho_shares(canaries)
        # Clipping leaves half a per cent for rounding.
        np.testing.assert_allclose(mu, allowed, rtol=6e-3)
        # What others send depends on the sum so far, if so little.
        assert np.all(mu <= allowed * 1.001)
        # Of each machine the first sample is told of most: of an untrusted server all that is claimed.
        if server == "untrusted" and case is CLIPPED_CASE and constants.mechanism.correlation is None:
            for machine, claim in dict(zip(canaries.machines.tolist(), claims, strict=True)).items():
                assert mu[canaries.machines == machine].max() > 0.99 * claim.rho


@pytest.mark.slow
@pytest.mark.parametrize(
    ("server", "settings"),
    [
        ("untrusted", UNIFORM),
        *slow(
            ("trusted", UNIFORM),
            ("untrusted", {"budgets": True, **BY_SIZE}),
            ("trusted", {"budgets": True, **BY_SIZE}),
            ("untrusted", {"method": "anytime-dp-mf", "participation": "bernoulli:0.6"}),
        ),
    ],
)
def test_claims_are_kept_and_reached(server, settings, files):
    report = found(server, 150, machines=4, rounds=4, **named({"rho": 8.0, **settings}, files))
    assert report.failures == []
    for judgement in report.verdicts:
        share = judgement.overall_separation.relative_mu
        assert share.low < 1 < share.high


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dp-sgd", "noisy-minibatch-sgd"])
def test_methods_that_draw_their_samples_keep_their_claim(method):
    report = found("trusted", 300, machines=4, rounds=4, method=method, rho=0.1, **UNIFORM)
    assert report.failures == []
    assert "participation = uniform:2" in report.to_text()


# Ways to break the code.


def changed_sigma(change):
    """Let machines draw with what `change` makes of the mechanisms of all of them, and of their weights."""

    def make(start):
        def flawed(self, constants, *rest):
            if (members := constants.problem.per_machine_plan) is not None:
                variants = [members.mechanisms[k] for k in members.mechanism_index.tolist()]
                drawn = zip(variants, change(variants, members.weights), strict=True)
                variants = tuple(replace(kind, sigma=sigma) for kind, sigma in drawn)
                index = np.arange(len(variants))
                members = replace(members, mechanisms=variants, mechanism_index=index)
            start(self, constants.with_problem(per_machine_plan=members), *rest)

        return flawed

    return patched(Machines, "__init__", make)


def changed_calls(change):
    """Let machines draw at the times, with the numbers, that `change` makes of t and both."""
    return patched(
        RoundParticipants,
        "participants",
        lambda participants: lambda self, t: change(self, t, *participants(self, t)),
    )


def changed_draws(change):
    """Let numbers and signs of draws be what `change` makes of them; None for no draw."""

    def make(add):
        def changed(self, there, numbers, sign):
            of_all = [change(number, sign) for number in numbers.tolist()]
            kept = [k for k, number in enumerate(of_all) if number is not None]
            add(self, there[kept], np.array([of_all[k] for k in kept], np.int64), sign)

        return changed

    return patched(PerMachineNoiseSource, "_add_draws", make)


def noise_while_away(roll, t, there, numbers):
    """A machine that is away hides the same sum with new noise."""
    return np.arange(len(roll._machines)), np.full(len(roll._machines), t)


def noise_of_the_least_present(variants, weights):
    least = min(kind.rounds for kind in variants)
    return [kind.sigma * (least / kind.rounds) ** 0.5 for kind in variants]


def swapped(calibrate):
    """Machines draw, and say that they draw, what is for another's budget."""

    def flawed(*of, **named):
        plan = calibrate(*of, **named)
        return replace(plan, mechanism_index=plan.mechanism_index[[2, 1, 0, 3]])

    return flawed


def of_the_least_private(_):
    """A trusted server draws what is enough for one machine, and all others say what they need."""
    return lambda self, sigma, grid: replace(self, grid_spacing=grid)


a_draw_twice = changed_calls(lambda roll, t, there, numbers: (there, (numbers + 1) // 2))
QUICK = [
    ("untrusted", changed_draws(lambda number, sign: number if sign < 0 or number == 1 else None), UNIFORM),
    ("untrusted", changed_calls(noise_while_away), {"participation": "trace"}),
    (
        "untrusted",
        changed_sigma(lambda variants, weights: [variants[i].sigma for i in (2, 1, 0, 3)]),
        {"budgets": True},
    ),
]
THOROUGH = [
    ("untrusted", changed_draws(lambda number, sign: 1), UNIFORM),
    *(
        ("untrusted", a_draw_twice, {**method, **UNIFORM})
        for method in ({}, {"method": "anytime-sgd"}, POWER)
    ),
    ("untrusted", changed_sigma(noise_of_the_least_present), BY_SIZE),
    # As if one message told of a sample, not all from its own on; and noise that is weighted twice.
    (
        "untrusted",
        changed_sigma(lambda variants, weights: [kind.sigma / kind.rounds**0.5 for kind in variants]),
        BY_SIZE,
    ),
    (
        "untrusted",
        changed_sigma(lambda variants, weights: [kind.sigma for kind in variants] * weights),
        BY_SIZE,
    ),
    ("untrusted", patched(unequal_machines, "calibrate_machines", swapped), {"budgets": True}),
    ("trusted", patched(Mechanism, "with_noise", of_the_least_private), {"budgets": True}),
]


@pytest.mark.parametrize(("server", "break_it", "settings"), [*QUICK, *slow(*THOROUGH)])
def test_the_audit_has_teeth(monkeypatch, server, break_it, settings, files):
    break_it(monkeypatch)
    report = found(server, 130, machines=4, rounds=4, **named({"rho": 8.0, **settings}, files))
    assert any(words.startswith("mu is at least ") for words in report.refutations)


@pytest.mark.slow
def test_noise_that_is_not_taken_back_is_seen(monkeypatch):
    changed_draws(lambda number, sign: number if sign > 0 else None)(monkeypatch)
    report = found("untrusted", 130, machines=4, rounds=4, rho=8.0, **UNIFORM)
    assert any(words.startswith("mu is at most ") for words in report.alarms)


def test_what_cannot_be_audited_is_refused_before_the_run(files, tmp_path, capsys):
    (tmp_path / "last.csv").write_text("round,machine\n6,0\n")
    (tmp_path / "owners.toml").write_text('[rho]\n"Ward 7" = 1.0\n')
    for words in (
        ["--participation", f"trace:{tmp_path / 'last.csv'}", "--server", "trusted"],
        ["--participation", files["trace"], "--rounds", "7"],
        ["--participation", "uniform:5"],
        ["--budgets", str(tmp_path / "owners.toml")],
        ["--budgets", files["budgets"], "--method", "dp-sgd"],
        ["--participation", "uniform:2", "--method", "objective-perturbation"],
    ):
        assert cli.main(["audit", "--machines", "4", "--rounds", "6", *words]) == 2
        assert capsys.readouterr().err.startswith("mu2mpi: error: ")
