"""The audit passes the code as it is, and refutes its claims once the code is broken on purpose."""

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from slowly import slow

from mu2mpi import cli
from mu2mpi.audit import tails, trials as trials_module
from mu2mpi.audit.canaries import CLIPPED, UNCLIPPED, Canaries
from mu2mpi.audit.finding import LEAST
from mu2mpi.audit.trials import audit
from mu2mpi.audit.wire import OutOfStepError, on_ranks
from mu2mpi.config.experiment import Experiment
from mu2mpi.config.options import method_options, server_options
from mu2mpi.federation.machine import Machines
from mu2mpi.federation.schedule import Schedule
from mu2mpi.federation.servers.trusted import TrustedServer
from mu2mpi.federation.servers.untrusted import UntrustedServer
from mu2mpi.parallel import Communicator
from mu2mpi.privacy import drawing
from mu2mpi.privacy.mechanisms.last_iterate import (
    LastIterate,
    growing_batches,
    growth_of,
    halving_steps,
    hidden_rho,
)
from mu2mpi.privacy.noise import SERVER, add_noise, padded_zeros
from mu2mpi.registry import names

SERVERS = ("untrusted", "trusted")


@pytest.fixture(autouse=True)
def few_normals(monkeypatch):
    """Lattices and streams have tests of their own."""
    monkeypatch.setattr(trials_module, "NORMALS_A_TRIAL", 1)
    monkeypatch.setattr(trials_module, "check_streams", lambda *_: [])
    monkeypatch.setattr(tails, "MESSAGES", 100)


def found(server: str, trials: int, **settings: Any):
    chosen = {"server": server, "machines": 3, "rounds": 6, "rho": 1.0, "seed": 1, **settings}
    return audit(Experiment(**chosen), trials, Communicator())


@pytest.mark.slow
@pytest.mark.parametrize("server", SERVERS)
def test_the_code_keeps_its_claim_and_reaches_it(server):
    finding = found(server, 1000, rounds=10)
    assert finding.complaints == []
    for attack in finding.attacks:
        judgement = attack.judgement
        for reading in (judgement.overall, judgement.most, judgement.least):
            assert reading.share.low < 1
            assert reading.share.high > LEAST
        assert 0.9 < judgement.overall.share.low < judgement.overall.share.high < 1.13
        assert 0.5 < judgement.learnt.share.low < 1
        assert judgement.epsilon_bound < finding.experiment.target_epsilon


@pytest.mark.parametrize(
    ("rho", "settings"),
    [(8.0, {}), *slow((0.05, {}), (8.0, {"machines": 5, "rounds": 3}), (40.0, {}), (1e-4, {}))],
)
@pytest.mark.parametrize("server", SERVERS)
def test_other_claims_are_kept_with_samples_of_norm_1(server, rho, settings):
    finding = found(server, 300, rho=rho, **{"rounds": 5, "normalize": "unit", **settings})
    assert finding.complaints == []
    for attack in finding.attacks:
        assert rho < 1 or 0.9 < attack.judgement.overall.share.estimate < 1.1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "server", "batch", "words"),
    [
        ("noisy-minibatch-sgd", "untrusted", None, "K = 1 of n = 4 samples"),
        ("noisy-minibatch-sgd", "trusted", 3, "K = 3 of n = 4 samples"),
        ("dp-sgd", "trusted", None, "q = 0.333"),
    ],
)
def test_methods_that_draw_their_samples_keep_their_claim(monkeypatch, method, server, batch, words):
    """And with hardly any noise they do not, though the canary is not drawn in each run."""
    claim = {"method": method, "rho": 0.1, "batch": batch}
    finding = found(server, 300, rounds=4, **claim)
    assert finding.complaints == []
    assert f"{method}, {words}, 3 machines" in " ".join(finding.describe().split())
    change_sigma(monkeypatch, lambda schedule: schedule.mechanism.sigma / 1000)
    finding = found(server, 300, rounds=4, **claim)
    # By counting, by the mechanism's own account of its noise, and by the noise multiplier.
    assert len(finding.refutations) == 3
    assert "epsilon is at least" in finding.refutations[0]
    assert "mu of" not in finding.describe()


@pytest.mark.parametrize(("server", "batch"), [("untrusted", None), ("trusted", 2), *slow(("untrusted", 2))])
def test_passes_over_samples_keep_their_claim_and_reach_it(monkeypatch, server, batch):
    """With noise for a sample that is in one message alone they do not."""
    claim = {"method": "dp-gd", "rho": 4.0, "batch": batch}
    finding = found(server, 200, rounds=6, **claim)
    assert finding.complaints == []
    assert 0.9 < finding.attacks[0].judgement.overall.share.estimate < 1.1
    # A sample is in all of 6 messages, or in 2 K = 4 of 6 with n = 3.
    change_sigma(
        monkeypatch, lambda schedule: schedule.mechanism.sigma / math.sqrt(6 if batch is None else 4)
    )
    assert len(found(server, 200, rounds=6, **claim).refutations) >= 1


def canaries_of(case, server="untrusted", **settings):
    known = {"server": server, "machines": 4, "rounds": 6, "rho": 1.0, "seed": 1, **settings}
    schedule = trials_module._schedule(Experiment(**known), case)
    return schedule, Canaries(schedule, case, bytes(32))


@pytest.mark.parametrize("case", [CLIPPED, UNCLIPPED])
@pytest.mark.parametrize("server", SERVERS)
def test_every_sample_is_a_canary_and_each_changes_its_own_machine_alone(case, server):
    _, canaries = canaries_of(case, server)
    rounds = range(1, 7 if server == "untrusted" else 6)
    places = list(zip(canaries.machines.tolist(), canaries.rounds.tolist(), strict=True))
    assert sorted(places) == [(i, t) for i in range(4) for t in rounds]
    none = np.zeros(len(canaries), bool)
    for k, (machine, t) in enumerate(places):
        one = none.copy()
        one[k] = True
        for i in range(4):
            hosted = range(i, i + 1)
            before, after = canaries.supply(hosted, none)(1), canaries.supply(hosted, one)(1)
            changed = np.flatnonzero(before.labels != after.labels).tolist()
            assert changed == ([t - 1] if i == machine else [])
            if case is UNCLIPPED and changed:
                assert (before.features[t - 1], after.features[t - 1]) == (1, 0)
    together = canaries.supply(range(4), ~none)(1)
    apart = np.array([canaries.supply(range(i, i + 1), ~none)(1).labels for i in range(4)])
    np.testing.assert_array_equal(together.labels.reshape(6, 4), apart.T)
    assert len(canaries.supply(range(4, 4), none)(1).labels) == 0


def test_samples_of_a_batch_are_those_of_their_round():
    """Or increments of a canary would not be as long as is said: it is the first of its batch."""
    _, canaries = canaries_of(UNCLIPPED, method="accelerated-srgd", batch=3)
    none = np.zeros(len(canaries), bool)
    before, after = (canaries.supply(range(2, 3), kinds)(1).labels for kinds in (none, ~none))
    assert before.tolist() == [UNCLIPPED.label(t) for t in range(1, 7) for _ in range(3)]
    assert np.flatnonzero(before != after).tolist() == list(range(0, 18, 3))


@pytest.mark.parametrize("normalize", ["none", "unit"])
@pytest.mark.parametrize("estimator", ["corrected-momentum", "gradient"])
@pytest.mark.parametrize("case", [CLIPPED, UNCLIPPED])
@pytest.mark.parametrize("loss", names("problems"))
def test_a_canary_changes_every_sum_by_what_is_said(loss, case, estimator, normalize):
    """That is twice the clipping norm, or nearly so where it is the default and both kinds are clipped."""
    schedule, canaries = canaries_of(case, estimator=estimator, normalize=normalize, loss=loss)
    schedule = replace(schedule, mechanism=replace(schedule.mechanism, sigma=0.0))
    for k, t in ((1, 1), (6, 2), (10, 3), (21, 6)):
        assert canaries.rounds[k] == t
        hosted, sums = range(canaries.machines[k], canaries.machines[k] + 1), []
        for kind in (False, True):
            kinds = np.zeros(len(canaries), bool)
            kinds[k] = kind
            machines, x, seen = (
                Machines(schedule, hosted, canaries.supply(hosted, kinds), None),
                np.zeros((schedule.rows, 2)),
                [],
            )
            for at in range(1, 7):
                points = (x, x)
                if case.chosen:
                    points = [case.query_point(k, schedule.rows) for k in (at, at - 1)]
                machines.observe(at, *points)
                seen.append(machines.q.copy())
            sums.append(np.array(seen) * schedule.mechanism.resolution)
        norms = np.linalg.norm(sums[1] - sums[0], axis=(1, 2)) / (2 * schedule.mechanism.clip_norm)
        messages = 7 - t if estimator == "corrected-momentum" else 1
        expected = np.zeros(6)
        expected[t - 1 : t - 1 + messages] = case.reach(schedule, t)
        # Clipping leaves half a per cent of the norm for rounding.
        np.testing.assert_allclose(norms, expected, rtol=5e-3)
        assert len(canaries.messages[k]) == messages
    assert case is not CLIPPED or case.reach(schedule, t) == pytest.approx(1)
    if normalize == "none" and estimator == "corrected-momentum":
        assert schedule.S > 1.9 * schedule.G or case is CLIPPED or loss == "logistic"
        # Of Huber's loss, whose residuals are short, only in later rounds.
        assert case.reach(schedule, 10) > 0.92
        assert loss not in ("softmax", "logistic", "squared", "poisson") or case.reach(schedule, 4) > 0.92


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "server"),
    [
        ("logistic", "untrusted"),
        ("squared", "trusted"),
        ("huber", "untrusted"),
        ("smoothed-hinge", "trusted"),
        ("poisson", "untrusted"),
    ],
)
def test_every_loss_keeps_its_claim_and_half_the_noise_is_refuted(monkeypatch, loss, server):
    assert found(server, 300, rho=8.0, loss=loss).complaints == []
    half_the_noise(monkeypatch)
    assert len(found(server, 300, rho=8.0, loss=loss).refutations) == 2


def test_kinds_are_tossed_for_each_run_and_then_turned_round():
    kinds = trials_module._kinds(30, 500, bytes(32))
    np.testing.assert_array_equal(kinds[::2], ~kinds[1::2])
    assert abs(np.corrcoef(kinds[::2].T) - np.eye(30)).max() < 0.25


def test_a_seed_repeats_an_audit():
    first = found("trusted", 73, rounds=3)
    assert found("trusted", 73, rounds=3) == first
    assert found("trusted", 73, rounds=3, seed=2).attacks != first.attacks
    assert found("trusted", 73, rounds=3, seed=None) != found("trusted", 73, rounds=3, seed=None)


def test_ranks_of_one_process_do_what_the_communicator_promises():
    def act(rank):
        mine = np.arange(3, dtype=np.int64) + 10 * rank.rank
        total = rank.allreduce(mine, np.empty_like(mine)).copy()
        reduced = rank.reduce(mine, np.empty_like(mine) if rank.rank == 0 else None)
        array = np.full(2, float(rank.rank))
        rank.bcast(array)
        return total.tolist(), reduced is None, array.tolist(), len(rank.sent), len(rank.received)

    answers = on_ranks(3, act)
    total = [30, 33, 36]
    assert answers[0] == (total, False, [0, 0], 3, 2)
    assert answers[1] == answers[2] == (total, True, [0, 0], 2, 2)


def test_an_error_on_one_rank_ends_all():
    def act(rank):
        if rank.rank == 1:
            raise ZeroDivisionError
        rank.bcast(np.zeros(1))

    with pytest.raises(ZeroDivisionError):
        on_ranks(3, act)
    with pytest.raises(RuntimeError, match="does not record"):
        on_ranks(2, lambda rank: rank.split(0))


def test_ranks_that_do_not_meet_are_an_error():
    for act in (
        lambda rank: rank.rank == 0 and rank.bcast(np.zeros(1)),
        lambda rank: rank.rank == 2 and rank.bcast(np.zeros(1)),
        lambda rank: [rank.bcast(np.zeros(1)) for _ in range(rank.rank + 1)],
    ):
        with pytest.raises(OutOfStepError):
            on_ranks(3, act)


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
        ({"method": "snowball-sgd"}, ["trusted"], None),
        ({"method": "storm"}, ["untrusted", "trusted"], CLIPPED.clip_norm),
        ({"query": "iterate", "server": "untrusted"}, ["untrusted"], CLIPPED.clip_norm),
    ],
)
def test_those_servers_are_audited_that_the_method_allows(monkeypatch, settings, servers, clip_norm):
    """And what has no bound but a clipping norm is given one; rho is 1 unless an epsilon is claimed."""
    audited = []
    monkeypatch.setattr(trials_module, "audit", lambda experiment, *_: audited.append(experiment))
    given = {"machines": 3, "rounds": 4, "batch": None, **settings}
    list(trials_module.audit_servers(given, 100, Communicator()))
    assert [experiment.server for experiment in audited] == servers
    assert {experiment.clip_norm for experiment in audited} == {clip_norm}
    assert {experiment.epsilon for experiment in audited} == {settings.get("epsilon")}
    assert "epsilon" in settings or {experiment.rho for experiment in audited} == {1.0}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--trials", str(10**12)], "give fewer"),
        (["--rounds", str(2**32 - 1)], "give fewer"),
        (["--method", "snowball-sgd", "--rounds", "100000", "--trials", "8"], "give fewer"),
    ],
)
def test_what_no_memory_holds_is_refused(words, problem, capsys):
    assert cli.main(["audit", *words]) == 2
    assert problem in capsys.readouterr().err


def test_every_option_of_a_method_or_server_but_a_preset_can_be_audited(capsys):
    with pytest.raises(SystemExit):
        cli.main(["audit", "--help"])
    offered = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    own = {f"--{name.replace('_', '-')}" for name in (*method_options(presets=False), *server_options())}
    assert {"--batch", "--estimator", "--query", "--colluders", "--masks", "--shuffle"} <= own
    assert {"--loss", "--method", "--mechanism", *own} <= offered
    assert "--preset" not in offered


def test_another_mechanism_is_audited_by_name(capsys):
    """Poisson subsampling that is not counted on: then there is a rho, though no statistic reaches it."""
    small = ["--rounds", "3", "--trials", "60", "--seed", "1", "--batch", "1"]
    assert cli.main(["audit", "--method", "dp-sgd", "--mechanism", "gaussian", *small]) == 0
    out = capsys.readouterr().out
    assert "Trusted server: dp-sgd, q = 0.333, 3 machines" in " ".join(out.split())
    assert cli.main(["audit", "--method", "dp-sgd", "--mechanism", "replacement", *small]) == 2
    assert "it is not known how private" in capsys.readouterr().err


# Ways to break the code, each a mistake that somebody has made somewhere.


def change_sigma(monkeypatch, change):
    """Draw noise of the size that `change` makes of a schedule, under the same claim."""
    make = trials_module._schedule

    def changed(experiment, case):
        schedule = make(experiment, case)
        return replace(schedule, mechanism=replace(schedule.mechanism, sigma=change(schedule)))

    monkeypatch.setattr(trials_module, "_schedule", changed)


def change_noise(monkeypatch, change):
    """Call `add_noise` with what `change` makes of who, first, count, t and scale."""

    def changed(noised, message, key, *arguments):
        add_noise(noised, message, key, *change(*arguments))

    monkeypatch.setattr(drawing, "add_noise", changed)


def half_the_noise(monkeypatch):
    change_sigma(monkeypatch, lambda schedule: schedule.mechanism.sigma / 2)


def no_clipping(monkeypatch):
    monkeypatch.setattr(Schedule, "bound", math.inf)


def noise_divided_by_machines(monkeypatch):
    change_noise(monkeypatch, lambda who, first, count, t, scale: (who, first, count, t, scale / 3))


def noise_shared_out_among_machines(monkeypatch):
    change_noise(monkeypatch, lambda who, first, count, t, scale: (who, first, count, t, scale / 3**0.5))


def one_key_for_two_rounds(monkeypatch):
    change_noise(monkeypatch, lambda who, first, count, t, scale: (who, first, count, (t + 1) // 2, scale))


def one_key_for_all_machines(monkeypatch):
    change_noise(monkeypatch, lambda who, first, count, t, scale: (who, 0, count, t, scale))


def noise_of_the_first_machine_alone(monkeypatch):
    noised = Machines.noised
    monkeypatch.setattr(Machines, "noised", lambda self, t: self.q if self.first else noised(self, t))


def noise_after_the_reduction(monkeypatch):
    def flawed(self, t, machines, clock):
        iterates, schedule = self.iterates, machines.schedule
        machines.observe(t, iterates.x, iterates.x_previous)
        (flat, total), (flat_noised, noised) = padded_zeros(machines.q.shape), padded_zeros(machines.q.shape)
        self._communicator.allreduce(machines.q, total)
        scale = schedule.mechanism.sigma / schedule.mechanism.resolution / schedule.machines
        add_noise(flat_noised, flat, machines.key, SERVER, 0, 1, t, scale)
        if t < self._schedule.rounds:
            iterates.step(t, noised)

    monkeypatch.setattr(UntrustedServer, "round", flawed)


def sum_for_every_machine(monkeypatch):
    take = TrustedServer.round

    def flawed(self, t, machines, clock):
        take(self, t, machines, clock)
        self._communicator.allreduce(machines.q, np.empty_like(machines.q))

    monkeypatch.setattr(TrustedServer, "round", flawed)


def no_noise_by_the_server(monkeypatch):
    monkeypatch.setattr(TrustedServer, "_noised", lambda self, t, flat_total: self._total)


def default_noise_for_gradients(monkeypatch):
    """As if S were G where no clipping norm is given."""

    def change(schedule):
        mechanism, S = schedule.mechanism, schedule.S
        return mechanism.sigma * (schedule.G / S if mechanism.clip_norm >= S else 1)

    change_sigma(monkeypatch, change)


def noise_for_half_of_the_coordinates(monkeypatch):
    def changed(noised, message, *arguments):
        add_noise(noised, message, *arguments)
        noised[:2] = message[:2]

    monkeypatch.setattr(drawing, "add_noise", changed)


def noiseless_in(round):
    def break_it(monkeypatch):
        change_noise(monkeypatch, lambda who, i, n, t, scale: (who, i, n, t, 0.0 if t == round else scale))

    return break_it


def noiseless_on(machine):
    def break_it(monkeypatch):
        change_noise(monkeypatch, lambda who, i, n, t, scale: (who, i, n, t, 0.0 if i == machine else scale))

    return break_it


def weak_on(machine):
    def break_it(monkeypatch):
        change_noise(
            monkeypatch, lambda who, i, n, t, scale: (who, i, n, t, scale * (0.6 if i == machine else 1))
        )

    return break_it


def one_key_for(a, b):
    def break_it(monkeypatch):
        change_noise(monkeypatch, lambda who, i, n, t, scale: (who, i, n, a if t == b else t, scale))

    return break_it


def copies(a, b):
    def break_it(monkeypatch):
        change_noise(monkeypatch, lambda who, i, n, t, scale: (who, a if i == b else i, n, t, scale))

    return break_it


QUICK = [
    ("untrusted", half_the_noise),
    ("untrusted", one_key_for_all_machines),
    ("untrusted", noiseless_on(1)),
    ("trusted", no_clipping),
    ("trusted", sum_for_every_machine),
]
BOTH = [noise_divided_by_machines, one_key_for_two_rounds, default_noise_for_gradients,
        noise_for_half_of_the_coordinates, noiseless_in(1), noiseless_in(4), one_key_for(1, 2),
        one_key_for(2, 5)]  # fmt: skip
THOROUGH = [
    *((server, way) for server in SERVERS for way in BOTH),
    ("untrusted", no_clipping),
    ("untrusted", noise_after_the_reduction),
    ("untrusted", noise_shared_out_among_machines),
    ("untrusted", noise_of_the_first_machine_alone),
    ("untrusted", noiseless_in(6)),
    *(("untrusted", noiseless_on(i)) for i in (0, 2)),
    *(("untrusted", weak_on(i)) for i in range(3)),
    *(("untrusted", copies(a, b)) for a, b in ((0, 1), (0, 2), (1, 2))),
    ("trusted", half_the_noise),
    ("trusted", no_noise_by_the_server),
]


@pytest.mark.parametrize(("server", "break_it"), [*QUICK, *slow(*THOROUGH)])
def test_the_audit_has_teeth(monkeypatch, server, break_it):
    break_it(monkeypatch)
    finding = found(server, 200)
    assert finding.refutations
    # Where no noise is left, counting finds what 200 runs can show.
    if finding.attacks[0].judgement.learnt.share.low > 100:
        assert finding.attacks[0].judgement.epsilon_bound == pytest.approx(2.42, abs=0.2)


def test_a_lattice_in_the_noise_of_real_messages_refutes_the_claim():
    finding = found("trusted", 73, rounds=3)
    words = "radii on a lattice of 2^-40"
    structure = replace(finding.structure, log_evidence=50.0, strongest=words)
    assert finding.refutations == []
    assert replace(finding, structure=structure).refutations == [f"the noise is not normal: it has {words}"]


def one_draw_a_rank(monkeypatch):
    """The first machine's noise hides the sum of all that a rank hosts."""
    change_noise(monkeypatch, lambda who, first, count, t, scale: (who, first, 1, t, scale))


def the_server_draws_for_each_rank(monkeypatch):
    take = TrustedServer._noised

    def flawed(self, t, flat_total):
        return take(self, t + 100 * self._communicator.size, flat_total)

    monkeypatch.setattr(TrustedServer, "_noised", flawed)


@pytest.mark.parametrize(
    ("server", "break_it", "words"),
    [
        ("untrusted", one_draw_a_rank, "with 3 machines on 1 ranks others are sent than with one on each"),
        *slow(("trusted", the_server_draws_for_each_rank, "with 3 machines on 1 ranks")),
    ],
)
def test_machines_that_share_a_rank_are_an_alarm_if_it_shows(monkeypatch, server, break_it, words):
    break_it(monkeypatch)
    finding = found(server, 150)
    assert finding.refutations == []
    assert len(finding.alarms) == 2
    assert words in finding.alarms[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("server", "rounds"), [("untrusted", (4, 5, 6)), ("trusted", (3, 4, 5)), ("untrusted", range(1, 7))]
)
def test_too_little_is_an_alarm(monkeypatch, server, rounds):
    """Noise that is too large; refuted it is as well, if the large noise is the same in several rounds."""

    def louder(who, first, count, t, scale):
        return who, first, count, t, scale * (1.6 if t in rounds else 1)

    change_noise(monkeypatch, louder)
    finding = found(server, 600)
    assert finding.refutations == []
    assert any(words.startswith("mu is at most ") for words in finding.alarms)
    assert "must be reached" in finding.alarms[0]


@pytest.mark.slow
def test_command(capsys, monkeypatch):
    arguments = ["audit", "--rounds", "3", "--trials", "200", "--seed", "1"]
    assert cli.main(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for word in ("Untrusted server", "Trusted server", "claimed", "epsilon at delta = 1e-05, by counting"):
        assert word in out
    assert out.count("Nothing is refuted, and there is no alarm.") == 2
    assert out.endswith("Without --server only the paper's are audited; others are aggregated, shuffled.\n")
    no_clipping(monkeypatch)
    assert cli.main([*arguments, "--server", "trusted"]) == 1
    out, err = capsys.readouterr()
    assert err.startswith("mu2mpi: error: the claim of privacy is refuted: trusted server: mu is at least ")
    assert "where rho = 1 is claimed" in out
    assert "Without --server" not in out


def test_command_says_of_an_alarm_that_it_is_one(capsys, monkeypatch):
    change_sigma(monkeypatch, lambda schedule: 2 * schedule.mechanism.sigma)
    assert cli.main(["audit", "--rounds", "3", "--trials", "200", "--seed", "1", "--server", "trusted"]) == 1
    out, err = capsys.readouterr()
    assert err.startswith("mu2mpi: error: alarm: trusted server: mu is at most ")
    assert "refuted" not in err
    assert "Alarm: mu is at most" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rho", "inf"], ["rho = inf", "finite"]),
        (["--machines", "2"], ["machines = 2", "at least 3"]),
        (["--rounds", "2"], ["rounds = 2", "at least 3"]),
        (["--trials", "100"], ["100 trials", "at least 240"]),
        (["--rho", "0"], ["rho", "greater than 0"]),
        (["--data", "mnist"], ["--data", "--server"]),
    ],
)
def test_bad_input(capsys, arguments, words):
    assert cli.main(["audit", *arguments]) == 2
    _, err = capsys.readouterr()
    assert err.startswith("mu2mpi: error: ")
    for word in words:
        assert word in err


# Snowball SGD, of which only the last iterate is protected.


def growing(trials, **settings):
    chosen = {"server": "trusted", "method": "snowball-sgd", "machines": 1, "rho": 0.5, **settings}
    return found(trials=trials, **chosen)


@pytest.mark.parametrize(("server", "machines"), [("untrusted", 1), *slow(("trusted", 3))])
def test_the_last_iterate_keeps_its_claim_and_the_canary_comes_near_it(server, machines):
    """Clipped gradients are the same everywhere here, so that steps are translations and no noise is lost.

    All noise hides a canary then, of which the accountant counts that from its own round on. Batches that
    are rounded up hide it better than they need. So mu is a little less than rho, and known.
    """
    finding = growing(1500, server=server, machines=machines, rounds=8)
    assert finding.complaints == []
    growth = growth_of(machines, 4, 0.5)
    eta, batches = halving_steps(7), growing_batches(7, growth)
    noise = hidden_rho(batches, machines, 1.0, 1.0, 0.0, 4).max() / 0.5
    mu = 2 * eta / (machines * np.array(batches)) / (noise * np.sqrt(np.sum(eta**2)))
    assert 0.3 < mu.max() < 0.5
    (attack,) = finding.attacks
    for reading in (attack.judgement.most, attack.judgement.least, attack.judgement.learnt):
        of_round = mu[int(reading.what.rpartition(" ")[2]) - 1]
        assert reading.share.low * 0.5 < of_round < reading.share.high * 0.5


def noise_that_does_not_grow(monkeypatch):
    monkeypatch.setattr(LastIterate, "sigma_of", lambda self, t: self.sigma)


def noise_of_the_last_step_alone(monkeypatch):
    change_noise(
        monkeypatch, lambda who, first, count, t, scale: (who, first, count, t, scale if t == 7 else 0.0)
    )


@pytest.mark.parametrize(
    "break_it",
    [
        noise_that_does_not_grow,
        *slow(
            noise_of_the_last_step_alone,
            half_the_noise,
            no_clipping,
            noise_divided_by_machines,
            no_noise_by_the_server,
        ),
    ],
)
def test_the_audit_of_the_last_iterate_has_teeth(monkeypatch, break_it):
    break_it(monkeypatch)
    finding = growing(1000, rounds=8)
    assert any(words.startswith("mu is at least ") for words in finding.refutations)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("estimator", "query", "server", "method"),
    [
        ("gradient", "average", "untrusted", "anytime-sgd"),
        ("gradient", "iterate", "trusted", "parallel-sgd"),
        ("corrected-momentum", "iterate", "trusted", "storm"),
    ],
)
def test_command_for_other_estimators_and_query_points(capsys, estimator, query, server, method):
    arguments = ["--estimator", estimator, "--query", query, "--server", server, "--seed", "1"]
    assert cli.main(["audit", *arguments, "--rounds", "8", "--trials", "600"]) == 0
    out, _ = capsys.readouterr()
    assert f"{server.capitalize()} server: {method}, 3 machines" in " ".join(out.split())
    for row in (line.split() for line in out.splitlines() if line.startswith("  mu of all samples")):
        assert 0.9 < float(row[6]) < 1.1
    assert ("default norm" in out) == (query != "iterate" or estimator == "gradient")


def test_command_for_the_last_iterate(capsys):
    arguments = ["audit", "--method", "snowball-sgd", "--rounds", "5", "--trials", "100", "--seed", "1"]
    assert cli.main(arguments) == 0
    out, _ = capsys.readouterr()
    assert "Trusted server: snowball-sgd, its output alone, 3 machines" in out
    assert "Untrusted" not in out
    assert cli.main([*arguments, "--server", "untrusted", "--machines", "1"]) == 0
    assert cli.main([*arguments, "--server", "untrusted"]) == 2
    assert "--machines 1" in capsys.readouterr().err
