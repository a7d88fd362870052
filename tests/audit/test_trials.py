"""The audit passes the code as it is, and refutes its claims once the code is broken on purpose."""

import math
import re

import numpy as np
import pytest
from helpers.faults import (
    changed_noise,
    few_messages,
    found,
    half_of_the_coins,
    half_sigma,
    masks_in,
    only,
    parts_for_all_machines,
    patched,
    scaled_noise,
    sigma,
)
from helpers.slow import slow

from mu2mpi import cli
from mu2mpi.audit import trials as trials_module
from mu2mpi.audit.canaries import CLIPPED_CASE
from mu2mpi.audit.trials import audit
from mu2mpi.config.experiment import Experiment
from mu2mpi.config.experiment_options import method_option_names, own_option_fields
from mu2mpi.core.parallel import Communicator
from mu2mpi.federation.machine import Machines
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.federation.servers.trusted import TrustedServer
from mu2mpi.federation.servers.untrusted import UntrustedServer
from mu2mpi.privacy.noise import noise_source as drawing, noise_stream
from mu2mpi.privacy.noise.binomial_sampler import BinomialNoiseSource
from mu2mpi.privacy.noise.noise_stream import SERVER_STREAM, add_noise, padded_zeros

SERVERS = ("untrusted", "trusted")
POWER, FEW_BUFFERS = {"method": "anytime-dp-mf"}, {"noise_correlation": 0.5, "noise_buffers": 2}


@pytest.fixture(autouse=True)
def worst_cases_alone(monkeypatch):
    """Other attacks have tests of their own."""
    few_messages(monkeypatch)
    only(monkeypatch, "multiplier")


ZEROED = {"neighbours": "zero-out"}
CLAIMS = [
    *((server, {"rho": 8.0, "rounds": 5, "normalize": "unit"}) for server in SERVERS),
    ("untrusted", POWER),
    ("trusted", FEW_BUFFERS),
    ("aggregated", {"rho": 8.0, "colluders": 0}),
    ("shuffled", {"rho": 8.0, "colluders": 1}),
    ("untrusted", ZEROED),
]
MORE_CLAIMS = [
    *((server, {"rho": 8.0, **ZEROED}) for server in ("trusted", "aggregated", "shuffled")),
    *(("trusted", {**ZEROED, "method": method}) for method in ("anytime-dp-mf", "dp-gd", "parallel-sgd")),
    ("untrusted", {**ZEROED, "loss": "logistic", "participation": "uniform:2"}),
    ("aggregated", {"rho": 8.0, "machines": 4, "colluders": 2, **POWER}),
    ("shuffled", {"rho": 8.0, "colluders": 0}),
    *((server, {"rho": rho, "rounds": 5, "normalize": "unit"}) for server in SERVERS for rho in (0.05, 1e-4)),
    *((server, {"rho": 8.0, "machines": 5, "rounds": 3}) for server in SERVERS),
    ("untrusted", FEW_BUFFERS),
    ("trusted", POWER),
    ("aggregated", {"rho": 8.0, "machines": 6, "colluders": 2}),
    ("aggregated", {"rho": 8.0, "machines": 4, "masks": "all"}),
    ("aggregated", {"rho": 8.0, "method": "anytime-sgd"}),
    ("aggregated", {"rho": 8.0, "method": "dp-gd"}),
    ("aggregated", {"rho": 8.0, "method": "dp-gd", "machines": 4, "colluders": 2, "batch": 2}),
    ("aggregated", {"rho": 8.0, "machines": 5, "noise_correlation": 0.5}),
    ("shuffled", {"rho": 8.0, "colluders": 2, "method": "anytime-sgd"}),
    ("shuffled", {"rho": 8.0, "colluders": 0, "method": "dp-gd"}),
    ("shuffled", {"rho": 8.0, "machines": 5}),
    *((("untrusted", "trusted")[k % 2], {"rho": 8.0, "loss": loss})
      for k, loss in enumerate(("logistic", "squared", "huber", "smoothed-hinge", "poisson"))),
]  # fmt: skip


@pytest.mark.parametrize(("server", "settings"), [*CLAIMS, *slow(*MORE_CLAIMS)])
def test_the_claim_is_kept_and_reached(server, settings):
    report = found(server, 200, **{"rounds": 4, **settings})
    assert report.failures == []
    assert report.verdicts[0].is_claim_tight
    for judgement in report.verdicts:
        share = judgement.overall_separation.relative_mu
        assert share.low < 1
        assert settings.get("rho", 1) < 1 or 0.85 < share.estimate < 1.15
        assert judgement.learned_separation.relative_mu.low < 1
        assert judgement.epsilon_lower_bound < report.experiment.target_epsilon


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "server", "batch", "words"),
    [
        ("noisy-minibatch-sgd", "untrusted", None, "K = 1 of n = 4 samples"),
        ("noisy-minibatch-sgd", "trusted", 3, "K = 3 of n = 4 samples"),
        ("dp-sgd", "trusted", None, "q = 0.333"),
        ("dp-sgd", "aggregated", None, "q = 0.333"),
    ],
)
@pytest.mark.parametrize("neighbours", ["replace", "zero-out"])
def test_methods_that_draw_their_samples_keep_their_claim(
    monkeypatch, method, server, batch, words, neighbours
):
    """And with hardly any noise they do not, though the canary is not drawn in each run."""
    claim = {"method": method, "rho": 0.1, "batch": batch, "neighbours": neighbours}
    report = found(server, 300, rounds=4, **claim)
    assert report.failures == []
    assert f"{method}, {words}" in " ".join(report.to_text().split())
    sigma(lambda constants: constants.mechanism.sigma / 100)(monkeypatch)
    # A zeroed-out sample is hidden by the draws of others as well.
    report = found(server, 300 if neighbours == "replace" else 2000, rounds=4, **claim)
    # By counting, by the noise multiplier, by the mechanism's own account and by that of the audit.
    assert report.verdicts[0].refutations
    assert len(report.refutations) >= 3
    assert "mu of" not in report.to_text()


@pytest.mark.slow
@pytest.mark.parametrize(("server", "batch"), [("untrusted", None), ("trusted", 2), *slow(("untrusted", 2))])
def test_passes_over_samples_keep_their_claim_and_reach_it(monkeypatch, server, batch):
    """With noise for a sample that is in one message alone they do not."""
    claim = {"method": "dp-gd", "rho": 4.0, "batch": batch}
    report = found(server, 200, rounds=6, **claim)
    assert report.failures == []
    assert 0.9 < report.verdicts[0].overall_separation.relative_mu.estimate < 1.1
    # A sample is in all of 6 messages, or in 2 K = 4 of 6 with n = 3.
    sigma(lambda constants: constants.mechanism.sigma / math.sqrt(6 if batch is None else 4))(monkeypatch)
    assert found(server, 200, rounds=6, **claim).refutations


@pytest.mark.parametrize("method", ["fedavg", *slow("scaffold")])
def test_noise_in_local_steps_keeps_its_claim_and_reaches_it(monkeypatch, method):
    """With that of one step in a round, or with half of it in each, it does not."""
    claim = {"method": method, "rho": 4.0, "rounds": 5, "local_steps": 3}
    report = found("untrusted", 200, **claim)
    assert report.failures == []
    assert report.verdicts[0].is_claim_tight
    for judgement in report.verdicts:
        assert 0.9 < judgement.overall_separation.relative_mu.estimate < 1.1
        assert judgement.overall_separation.relative_mu.low < 1
    for share in (math.sqrt(3), 2):
        with monkeypatch.context() as broken:
            sigma(lambda constants, share=share: constants.mechanism.sigma / share)(broken)
            assert found("untrusted", 200, **claim).refutations


@pytest.mark.slow
@pytest.mark.parametrize("server", ["trusted", "aggregated"])
@pytest.mark.parametrize("neighbours", ["replace", "zero-out"])
def test_sums_over_random_machines_keep_their_claim(monkeypatch, server, neighbours):
    """And with hardly any noise they do not."""
    claim = {"method": "fedavg", "unit": "machine", "local_steps": 2, "rho": 0.1, "neighbours": neighbours}
    report = found(server, 300, rounds=4, **claim)
    assert report.failures == []
    assert "fedavg, each machine with probability 0.333" in " ".join(report.to_text().split())
    sigma(lambda constants: constants.mechanism.sigma / 100)(monkeypatch)
    report = found(server, 300 if neighbours == "replace" else 2000, rounds=4, **claim)
    assert report.verdicts[0].refutations
    assert len(report.refutations) >= 3


@pytest.mark.slow
def test_a_seed_repeats_an_audit():
    first = found("trusted", 73, rounds=3)
    assert found("trusted", 73, rounds=3) == first
    assert found("trusted", 73, rounds=3, seed=2).verdicts != first.verdicts
    assert found("trusted", 73, rounds=3, seed=None) != found("trusted", 73, rounds=3, seed=None)


class Aside(Communicator):
    """Rank 0 of two, of which the other has no runs."""

    def gather(self, thing):
        return [thing, []]


def test_ranks_without_runs_change_nothing():
    experiment = Experiment(server="trusted", machines=3, rounds=3, rho=1.0, seed=1)
    assert audit(experiment, 73, Aside()) == audit(experiment, 73, Communicator())


@pytest.mark.parametrize(
    ("settings", "servers", "clip_norm"),
    [
        ({}, ["untrusted", "trusted"], None),
        ({"server": "trusted"}, ["trusted"], None),
        ({"method": "dp-sgd", "epsilon": 2.0}, ["trusted"], None),
        ({"method": "objective-perturbation"}, ["trusted"], None),
        ({"method": "fedavg"}, ["untrusted"], None),
        ({"method": "fedavg", "unit": "machine"}, ["trusted"], None),
        ({"method": "scaffold"}, ["untrusted"], None),
        ({"method": "storm"}, ["untrusted", "trusted"], CLIPPED_CASE.clip_norm),
        ({"query": "iterate", "server": "untrusted"}, ["untrusted"], CLIPPED_CASE.clip_norm),
    ],
)
def test_those_servers_are_audited_that_the_method_allows(monkeypatch, settings, servers, clip_norm):
    """And what has no bound but a clipping norm is given one; rho is 1 unless an epsilon is claimed."""
    audited = []
    monkeypatch.setattr(trials_module, "audit", lambda experiment, *_: audited.append(experiment))
    given = {"machines": 3, "rounds": 4, "batch": None, **settings}
    list(trials_module.run_audits(given, 100, Communicator()))
    assert [experiment.server for experiment in audited] == servers
    assert {experiment.clip_norm for experiment in audited} == {clip_norm}
    assert {experiment.epsilon for experiment in audited} == {settings.get("epsilon")}
    assert "epsilon" in settings or {experiment.rho for experiment in audited} == {1.0}


# What is broken on purpose: each a mistake that somebody has made somewhere.

no_clipping = lambda monkeypatch: monkeypatch.setattr(RunConstants, "reduced_clip_norm", math.inf)  # noqa: E731


def noise_after_the_reduction(_):
    def flawed(self, t, machines, timer):
        iterates, constants = self.iterates, machines.constants
        machines.accumulate_increments(t, iterates.x, iterates.x_previous)
        (flat, total), (flat_noised, noised) = (
            padded_zeros(machines.message_sum.shape),
            padded_zeros(machines.message_sum.shape),
        )
        self._communicator.allreduce(machines.message_sum, total)
        scale = constants.mechanism.sigma / constants.mechanism.grid_spacing / constants.problem.machines
        add_noise(flat_noised, flat, machines.key, SERVER_STREAM, 0, 1, t, scale)
        if t < self._constants.rounds:
            iterates.step(t, noised)

    return flawed


def sum_for_every_machine(take):
    def flawed(self, t, machines, timer):
        take(self, t, machines, timer)
        self._communicator.allreduce(machines.message_sum, np.empty_like(machines.message_sum))

    return flawed


def noise_of_the_first_machine_alone(noised):
    return lambda self, t: self.message_sum if self.first_machine else noised(self, t)


def noise_for_half_of_the_coordinates(_):
    def changed(noised, message, *arguments):
        add_noise(noised, message, *arguments)
        noised[:2] = message[:2]

    return changed


def default_noise_for_gradients(constants):
    """As if S were G where no clipping norm is given."""
    mechanism, S = constants.mechanism, constants.S
    return mechanism.sigma * (constants.problem.G / S if mechanism.clip_norm >= S else 1)


def columns_that_are_not_normalized(draw):
    """As if noise for columns of norm 1 hid those of the power itself."""

    def flawed(self, *message):
        norms = self.correlation.column_norms
        self.correlation.__dict__["column_norms"] = np.ones_like(norms)
        draw(self, *message)
        self.correlation.__dict__["column_norms"] = norms

    return flawed


def rounds_in(change):
    return changed_noise(lambda first, t, scale: (first, change(t), scale))


def machines_in(change):
    return changed_noise(lambda first, t, scale: (change(first), t, scale))


def noiseless_in(round):
    return scaled_noise(0.0, lambda first, t: t == round)


def noiseless_on(machine):
    return scaled_noise(0.0, lambda first, t: first == machine)


no_noise_by_the_server = patched(
    TrustedServer, "_noised_sum", lambda _: lambda self, t, message_sum, machines: message_sum
)
not_normalized = patched(drawing.CorrelatedNoiseSource, "_generate", columns_that_are_not_normalized)
SHUFFLED = {"rho": 8.0, "rounds": 4, "colluders": 0}
MASKED = {"rho": 8.0, "rounds": 3, "colluders": 2}

QUICK = [
    ("untrusted", half_sigma, {}),
    ("untrusted", machines_in(lambda first: 0), {}),
    ("untrusted", noiseless_on(1), {}),
    ("trusted", no_clipping, {}),
    ("trusted", patched(TrustedServer, "run_round", sum_for_every_machine), {}),
    ("aggregated", parts_for_all_machines, MASKED),
    ("shuffled", half_of_the_coins, SHUFFLED),
    ("shuffled", no_noise_by_the_server, SHUFFLED),
    *((server, not_normalized, {"rounds": 5, **POWER}) for server in SERVERS),
]
BOTH = [
    scaled_noise(1 / 3),
    rounds_in(lambda t: (t + 1) // 2),
    sigma(default_noise_for_gradients),
    patched(noise_stream, "add_noise", noise_for_half_of_the_coordinates),
    noiseless_in(1),
    noiseless_in(4),
    rounds_in(lambda t: 1 if t == 2 else t),
    rounds_in(lambda t: 2 if t == 5 else t),
]
SAME_COINS = lambda call: lambda self, noised, message, t: call(self, noised, message, 1)  # noqa: E731
THOROUGH = [
    *((server, way, {}) for server in SERVERS for way in BOTH),
    ("untrusted", no_clipping, {}),
    ("untrusted", patched(UntrustedServer, "run_round", noise_after_the_reduction), {}),
    ("untrusted", scaled_noise(1 / 3**0.5), {}),
    ("untrusted", patched(Machines, "noised_message", noise_of_the_first_machine_alone), {}),
    ("untrusted", noiseless_in(6), {}),
    *(("untrusted", noiseless_on(i), {}) for i in (0, 2)),
    *(("untrusted", scaled_noise(0.6, lambda first, t, i=i: first == i), {}) for i in range(3)),
    *(("untrusted", machines_in(lambda first, a=a, b=b: a if first == b else first), {})
      for a, b in ((0, 1), (0, 2), (1, 2))),
    ("trusted", half_sigma, {}),
    ("trusted", no_noise_by_the_server, {}),
    ("shuffled", patched(BinomialNoiseSource, "__call__", SAME_COINS), SHUFFLED),
    *(("untrusted", half_sigma, {"rho": 8.0, "loss": loss}) for loss in ("logistic", "squared", "poisson")),
]  # fmt: skip


@pytest.mark.parametrize(("server", "break_it", "settings"), [*QUICK[::2], *slow(*QUICK[1::2], *THOROUGH)])
def test_the_audit_has_teeth(monkeypatch, server, break_it, settings):
    break_it(monkeypatch)
    report = found(server, 200, **settings)
    assert any("mu is at least" in words for words in report.refutations)
    # Where no noise is left, counting finds what 200 runs can show.
    if server in SERVERS and report.verdicts[0].learned_separation.relative_mu.low > 100:
        assert report.verdicts[0].epsilon_lower_bound == pytest.approx(2.42, abs=0.2)


def test_an_audit_refutes_what_its_attacks_refute(monkeypatch):
    only(monkeypatch, "mask")
    masks_in(lambda t: 1)(monkeypatch)
    report = found("aggregated", 80, rounds=3, rho=8.0)
    assert len(report.findings) == 1
    assert report.verdicts[0].refutations == []
    assert any("rounds apart" in refutation for refutation in report.refutations)
    assert "Refuted: the masks of machines" in " ".join(report.to_text().split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("server", "rounds"), [("untrusted", (4, 5, 6)), ("trusted", (3, 4, 5)), ("untrusted", range(1, 7))]
)
def test_too_little_is_an_alarm(monkeypatch, server, rounds):
    """Noise that is too large; refuted it is as well, if the large noise is the same in several rounds."""
    scaled_noise(1.6, lambda first, t: t in rounds)(monkeypatch)
    report = found(server, 600)
    assert report.refutations == []
    assert any(words.startswith("mu is at most ") for words in report.alarms)


# The command.


@pytest.mark.slow
def test_command(capsys, monkeypatch):
    arguments = ["audit", "--rounds", "3", "--trials", "200", "--seed", "1"]
    assert cli.main(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for word in ("Untrusted server", "Trusted server", "claimed", "epsilon at delta = 1e-05, by counting"):
        assert word in out
    no_clipping(monkeypatch)
    assert cli.main([*arguments, "--server", "trusted"]) == 1
    out, err = capsys.readouterr()
    assert err.startswith("mu2mpi: error: the claim of privacy is refuted: trusted server: mu is at least ")
    assert "where rho = 1 is claimed" in out


def test_command_says_of_an_alarm_that_it_is_one(capsys, monkeypatch):
    sigma(lambda constants: 2 * constants.mechanism.sigma)(monkeypatch)
    assert cli.main(["audit", "--rounds", "3", "--trials", "200", "--seed", "1", "--server", "trusted"]) == 1
    out, err = capsys.readouterr()
    assert err.startswith("mu2mpi: error: alarm: trusted server: mu is at most ")
    assert "refuted" not in err
    assert "Alarm: mu is at most" in out


@pytest.mark.slow
@pytest.mark.parametrize("method", ["anytime-sgd", "parallel-sgd", "storm"])
def test_command_for_other_estimators_and_query_points(capsys, method):
    assert cli.main(["audit", "--method", method, "--rounds", "8", "--trials", "600", "--seed", "1"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "mu of all samples" in line]
    assert all(0.9 < float(row[6]) < 1.1 for row in rows)
    # Of the last, no increment has a bound but the clipping norm.
    assert len(rows) == (2 if method == "storm" else 4)


def test_another_mechanism_is_audited_by_name(capsys):
    """Poisson subsampling that is not counted on: then there is a rho, though no statistic reaches it."""
    small = ["--rounds", "3", "--trials", "60", "--seed", "1", "--batch", "1"]
    assert cli.main(["audit", "--method", "dp-sgd", "--mechanism", "gaussian", *small]) == 0
    assert "dp-sgd, q = 0.333" in capsys.readouterr().out
    assert cli.main(["audit", "--method", "dp-sgd", "--mechanism", "replacement-exact", *small]) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["--rho", "inf"],
        ["--machines", "2"],
        ["--rounds", "2"],
        ["--trials", "100"],
        ["--rho", "0"],
        ["--data", "mnist"],
        ["--server", "trusted", "--colluders", "1"],
        ["--trials", str(10**12)],
        ["--rounds", str(2**32 - 1)],
        ["--method", "accelerated-srgd", "--rounds", "4", "--batch", "1000000"],
    ],
)
def test_what_cannot_be_audited_is_bad_input(capsys, arguments):
    assert cli.main(["audit", *arguments]) == 2
    assert capsys.readouterr().err.startswith("mu2mpi: error: ")


def test_every_option_of_a_method_or_server_but_a_preset_can_be_audited(capsys):
    with pytest.raises(SystemExit):
        cli.main(["audit", "--help", "all"])
    offered = set(re.findall(r"--[a-z0-9-]+", capsys.readouterr().out))
    own = {f"--{name.replace('_', '-')}" for name in (*method_option_names(), *own_option_fields("server"))}
    assert {"--batch", "--estimator", "--query", "--colluders", "--masks"} <= own
    assert {"--loss", "--method", "--mechanism", *own} <= offered
    assert "--preset" not in offered


def test_command_for_the_output_alone(capsys):
    arguments = [
        "audit",
        "--method",
        "objective-perturbation",
        "--rounds",
        "5",
        "--trials",
        "100",
        "--seed",
        "1",
    ]
    assert cli.main(arguments) == 0
    out, _ = capsys.readouterr()
    assert "Trusted server: objective-perturbation, its output alone, 3 machines" in out
    assert "Untrusted" not in out
    assert cli.main([*arguments, "--server", "untrusted", "--machines", "1"]) == 0
    assert cli.main([*arguments, "--server", "untrusted"]) == 2


@pytest.mark.parametrize("neighbours", ["replace", "zero-out"])
def test_noise_for_zeroed_samples_does_not_hide_replaced_ones(monkeypatch, neighbours):
    """Half the noise is a claim for zero-out that holds, and one for replace that is refuted."""
    half = sigma(lambda constants: constants.mechanism.sigma / 2) if neighbours == "replace" else None
    if half:
        half(monkeypatch)
    report = found("untrusted", 200, rounds=4, rho=3.0, neighbours=neighbours)
    assert bool(report.refutations) == (neighbours == "replace")
