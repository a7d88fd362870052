"""The audit passes the code as it is, and refutes its claims once the code is broken on purpose."""

import math
from dataclasses import replace
from threading import BrokenBarrierError
from typing import Any

import numpy as np
import pytest

from mu2mpi import cli, preparation
from mu2mpi.algorithm import machine as machine_module
from mu2mpi.algorithm import server as server_module
from mu2mpi.algorithm.machine import Machines
from mu2mpi.algorithm.schedule import Schedule
from mu2mpi.algorithm.server import TrustedServer, UntrustedServer
from mu2mpi.algorithm.snowball import growth_of
from mu2mpi.audit.neighbours import CANARY_MACHINE, WORST_CASE, Neighbour, neighbours
from mu2mpi.audit.trials import audit
from mu2mpi.audit.wire import on_ranks
from mu2mpi.experiment import Experiment
from mu2mpi.parallel import Communicator
from mu2mpi.privacy.iteration import growing_batches, halving_steps, hidden_rho
from mu2mpi.privacy.noise import SERVER, add_noise, padded_zeros

SERVERS = ("untrusted", "trusted")


def found(server: str, trials: int, **settings: Any):
    chosen = {"server": server, "machines": 3, "rounds": 6, "rho": 1.0, "seed": 1, **settings}
    return audit(Experiment(**chosen), trials, Communicator())


@pytest.mark.parametrize(("server", "telling"), [("untrusted", 9), ("trusted", 8)])
def test_the_code_keeps_its_claim_and_the_canary_comes_near_it(server, telling):
    finding = found(server, 1500, rounds=10)
    assert finding.objections == []
    assert finding.mu.estimate > 0.8 * finding.rho
    # The rounds that tell of the canary: not the first; nor, with a trusted server, the last.
    assert finding.mu.low < finding.rho * math.sqrt(telling / 10) < finding.mu.high
    assert 0.5 < finding.epsilon_bound < finding.epsilon


@pytest.mark.parametrize("rho", [0.05, 8.0])
@pytest.mark.parametrize("server", SERVERS)
def test_other_claims_are_kept_with_samples_of_norm_1(server, rho):
    finding = found(server, 300, rho=rho, rounds=5, normalize="unit")
    assert finding.objections == []
    assert rho < 1 or 0.7 * rho < finding.mu.estimate < rho


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
    assert finding.objections == []
    assert f"{method}, {words}, 3 machines" in " ".join(finding.describe().split())
    change_schedule(monkeypatch, lambda schedule: replace(schedule, sigma=schedule.sigma / 1000))
    finding = found(server, 300, rounds=4, **claim)
    assert len(finding.objections) == 1
    assert "epsilon is at least" in finding.objections[0]
    assert "mu" not in finding.describe()


def test_neighbours_differ_in_one_sample_of_the_canarys_machine():
    experiment = Experiment(machines=4, rounds=6, seed=1, **WORST_CASE)
    schedule = preparation.plan(experiment, Neighbour(24, None), 4)
    one, other = neighbours(schedule, bytes(32))
    for i, supplies in enumerate(zip(one, other, strict=True)):
        mine, theirs = (supply(1) for supply in supplies)
        np.testing.assert_array_equal(mine.features, theirs.features)
        changed = np.argwhere(mine.labels != theirs.labels).tolist()
        assert changed == ([[1]] if i == CANARY_MACHINE else [])


@pytest.mark.parametrize("server", SERVERS)
def test_the_canary_changes_every_later_sum_by_twice_the_clipping_norm(server):
    experiment = Experiment(server=server, machines=3, rounds=8, rho=1.0, **WORST_CASE)
    schedule = preparation.plan(experiment, Neighbour(24, None), 3)
    norms = []
    for supplies in zip(*neighbours(schedule, bytes(32)), strict=True):
        sums = []
        for supply in supplies:
            machines = Machines(schedule, range(1), supply, None)
            x = np.zeros((2, 2))
            sums.append([machines.q.copy() for t in range(1, 9) if machines.observe(t, x, x) is None])
        norms.append([np.linalg.norm(b - a) * schedule.resolution for a, b in zip(*sums, strict=True)])
    canarys = norms.pop(CANARY_MACHINE)
    assert np.all(np.array(norms) == 0)
    assert canarys[0] == 0
    np.testing.assert_allclose(canarys[1:], 2 * schedule.clip_norm, rtol=1e-3)
    assert max(canarys) <= 2 * schedule.clip_norm


def test_a_seed_repeats_an_audit():
    first = found("trusted", 60, rounds=3)
    assert found("trusted", 60, rounds=3) == first
    assert found("trusted", 60, rounds=3, seed=2) != first
    assert found("trusted", 60, rounds=3, seed=None) != found("trusted", 60, rounds=3, seed=None)


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
        on_ranks(2, lambda rank: rank.allgather(1))


def test_ranks_that_do_not_meet_are_an_error(monkeypatch):
    monkeypatch.setattr("mu2mpi.audit.wire.PATIENCE_SECONDS", 0.1)
    with pytest.raises(BrokenBarrierError):
        on_ranks(3, lambda rank: rank.rank == 0 and rank.bcast(np.zeros(1)))


class Aside(Communicator):
    """Rank 0 of two, of which the other has no runs."""

    def gather(self, thing):
        return [thing, [np.empty(0), np.empty(0)]]


def test_ranks_without_runs_change_nothing():
    experiment = Experiment(server="trusted", machines=3, rounds=3, rho=1.0, seed=1)
    assert audit(experiment, 60, Aside()) == audit(experiment, 60, Communicator())


# Ways to break the code, each a mistake that somebody has made somewhere.


def change_schedule(monkeypatch, change):
    make = preparation.make_schedule
    monkeypatch.setattr(preparation, "make_schedule", lambda **known: change(make(**known)))


def change_noise(monkeypatch, change):
    """Call `add_noise` with what `change` makes of who, first, count, t and scale."""

    def changed(noised, message, key, *arguments):
        add_noise(noised, message, key, *change(*arguments))

    for module in (machine_module, server_module):
        monkeypatch.setattr(module, "add_noise", changed)


def half_the_noise(monkeypatch):
    change_schedule(monkeypatch, lambda schedule: replace(schedule, sigma=schedule.sigma / 2))


def no_clipping(monkeypatch):
    change_schedule(monkeypatch, lambda schedule: replace(schedule, bound=math.inf))


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
        scale = schedule.sigma / schedule.resolution / schedule.machines
        add_noise(flat_noised, flat, machines.key, SERVER, 0, 1, t, scale)
        if t < self._rounds:
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


BOTH = [half_the_noise, no_clipping, noise_divided_by_machines, one_key_for_two_rounds]
MACHINES = [
    noise_shared_out_among_machines,
    one_key_for_all_machines,
    noise_of_the_first_machine_alone,
    noise_after_the_reduction,
]


@pytest.mark.parametrize(
    ("server", "break_it"),
    [(server, way) for server in SERVERS for way in BOTH]
    + [("untrusted", way) for way in MACHINES]
    + [("trusted", way) for way in (sum_for_every_machine, no_noise_by_the_server)],
)
def test_the_audit_has_teeth(monkeypatch, server, break_it):
    break_it(monkeypatch)
    finding = found(server, 400)
    assert finding.mu.low > finding.rho
    assert len(finding.objections) == 1
    # Where no noise is left, counting finds all that 200 runs can show.
    if finding.mu.low > 10:
        assert finding.epsilon_bound == pytest.approx(3.984, abs=0.001)


def test_command(capsys, monkeypatch):
    arguments = ["audit", "--rounds", "3", "--trials", "200", "--seed", "1"]
    assert cli.main(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for word in ("Untrusted server", "Trusted server", "claimed", "epsilon at delta = 1e-05, by counting"):
        assert word in out
    assert out.count("No bound from below passes its claim.") == 2
    no_clipping(monkeypatch)
    assert cli.main([*arguments, "--server", "trusted"]) == 1
    out, err = capsys.readouterr()
    assert err.startswith("mu2mpi: error: the claim of privacy is refuted: trusted server: mu is at least ")
    assert "where rho = 1 is claimed." in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rho", "inf"], ["rho = inf", "finite"]),
        (["--machines", "2"], ["machines = 2", "at least 3"]),
        (["--rounds", "2"], ["rounds = 2", "at least 3"]),
        (["--trials", "100"], ["100 trials", "at least 480"]),
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


@pytest.mark.parametrize(("server", "machines"), [("untrusted", 1), ("trusted", 3)])
def test_the_last_iterate_keeps_its_claim_and_the_canary_comes_near_it(server, machines):
    """Clipped gradients are the same everywhere here, so that steps are translations and no noise is lost.

    All noise hides the canary then, of which the accountant counts that from its own round on. Batches that
    are rounded up hide it better than they need. So mu is a little less than rho, and known.
    """
    finding = growing(1500, server=server, machines=machines, rounds=8)
    assert finding.objections == []
    growth = growth_of(machines, 4, 0.5)
    eta, batches = halving_steps(7), growing_batches(7, growth)
    noise = hidden_rho(batches, machines, 1.0, 1.0, 0.0, 4).max() / 0.5
    mu = 2 * eta[1] / (machines * batches[1]) / (noise * np.sqrt(np.sum(eta**2)))
    assert 0.3 < mu < 0.5
    assert finding.mu.low < mu < finding.mu.high


def noise_that_does_not_grow(monkeypatch):
    monkeypatch.setattr(Schedule, "sigma_of", lambda self, t: self.sigma)


def noise_of_the_last_step_alone(monkeypatch):
    change_noise(
        monkeypatch, lambda who, first, count, t, scale: (who, first, count, t, scale if t == 7 else 0.0)
    )


@pytest.mark.parametrize(
    "break_it",
    [half_the_noise, no_clipping, noise_divided_by_machines, noise_that_does_not_grow,
     noise_of_the_last_step_alone, no_noise_by_the_server],
)  # fmt: skip
def test_the_audit_of_the_last_iterate_has_teeth(monkeypatch, break_it):
    break_it(monkeypatch)
    finding = growing(1000, rounds=8)
    assert finding.mu.low > finding.rho


@pytest.mark.parametrize(
    ("estimator", "query", "server"),
    [
        ("gradient", "average", "untrusted"),
        ("gradient", "iterate", "trusted"),
        ("corrected-momentum", "iterate", "trusted"),
    ],
)
def test_command_for_other_estimators_and_query_points(capsys, estimator, query, server):
    arguments = ["--estimator", estimator, "--query", query, "--server", server, "--seed", "1"]
    assert cli.main(["audit", *arguments, "--rounds", "8", "--trials", "600"]) == 0
    out, _ = capsys.readouterr()
    assert f"{estimator} at {query}s, 3 machines" in " ".join(out.split())
    (row,) = (line.split() for line in out.splitlines() if line.split()[:1] == ["mu"])
    assert 0.7 < float(row[2]) < 1.1


def test_command_for_the_last_iterate(capsys):
    arguments = ["audit", "--method", "snowball-sgd", "--rounds", "5", "--trials", "100", "--seed", "1"]
    assert cli.main(arguments) == 0
    out, _ = capsys.readouterr()
    assert "Trusted server: snowball-sgd, its output alone, 3 machines" in out
    assert "Untrusted" not in out
    assert cli.main([*arguments, "--server", "untrusted", "--machines", "1"]) == 0
    assert cli.main([*arguments, "--server", "untrusted"]) == 2
    assert "--machines 1" in capsys.readouterr().err
