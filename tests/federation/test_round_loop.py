"""Rounds of a lone rank in one call of a kernel have the bits of single rounds, and end where they must."""

import dataclasses
import weakref
from copy import deepcopy
from time import perf_counter

import numpy as np
import pytest
from helpers.interrupted_runs import StopAt, simulated, stopped_state
from helpers.sources import random_source

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import Interrupted
from mu2mpi.core.parallel import Communicator
from mu2mpi.core.registry import lookup
from mu2mpi.execution import simulation as module
from mu2mpi.execution.plan import resolve_plan
from mu2mpi.execution.simulation import CheckpointAction, CheckpointPolicy, PeriodicCheckpoints, Simulation
from mu2mpi.federation import round_loop
from mu2mpi.federation.round_loop import make_round_loop
from mu2mpi.privacy.noise.noise_stream import IndependentNoiseSource
from mu2mpi.results.callbacks import Callback, CallbackList

ROUNDS = 90
METHODS = "mu2-sgd", "anytime-sgd"


@pytest.fixture
def calls(monkeypatch):
    """First rounds and numbers of rounds of all calls of the kernel."""
    found, run_rounds = [], round_loop.run_rounds

    def recorded(t, *arguments):
        found.append((t, len(arguments[-1])))
        return run_rounds(t, *arguments)

    monkeypatch.setattr(round_loop, "run_rounds", recorded)
    return found


def prepared(**settings):
    settings = {"machines": 3, "rounds": ROUNDS, "seed": 4, "evaluations": 5, **settings}
    source = random_source(1, 6 * ROUNDS, 9, settings.pop("classes", 4))
    return source, Experiment(**settings)


def state_of(simulation, result):
    """Return everything that rounds change, as bytes or numbers."""
    iterates, machines = simulation.server.iterates, simulation.machines
    arrays = *iterates.state_arrays().values(), iterates.noised_sum, machines.message_sum
    names = {f.name for f in dataclasses.fields(result.history)} - {"elapsed_seconds"}
    history = [np.asarray(getattr(result.history, name)).tobytes() for name in sorted(names)]
    return [np.ascontiguousarray(a).tobytes() for a in arrays], history, result.diagnostics


def run_of(source, experiment):
    simulation = Simulation(resolve_plan(experiment, source, 1), Communicator())
    return state_of(simulation, simulation.run())


PLAIN = [
    *({"method": method, "server": server} for method in METHODS for server in ("untrusted", "trusted")),
    {"method": "storm", "clip_norm": 0.1},
    {"server": "aggregated"},
    {"server": "untrusted", "noise": "aggregate"},
    {"machines": 1},
    {"machines": 2, "classes": 2, "loss": "logistic"},
    {"server": "trusted", "participation": "uniform:2"},
    {"rho": 0.001},
    {"clip_norm": 0.01},
]


@pytest.mark.parametrize("settings", PLAIN, ids=str)
def test_rounds_in_one_call_have_the_bits_of_single_rounds(settings, calls, monkeypatch):
    case = prepared(**settings)
    together = run_of(*case)
    assert sum(count for _, count in calls) == ROUNDS - 5
    assert len(calls) < 10
    del calls[:]
    monkeypatch.setattr(module, "make_round_loop", lambda *_: None)
    assert run_of(*case) == together
    assert calls == []


@pytest.mark.parametrize(
    "settings",
    [
        {"l2": 0.01},
        {"method": "dp-gd", "tail": 0.5},
        {"method": "parallel-sgd"},
        {"method": "accelerated-srgd"},
        {"method": "anytime-dp-mf"},
        {"mechanism": "correlated"},
        {"server": "aggregated", "masks": "all"},
        {"server": "shuffled", "epsilon": 2.0},
        {"participation": "uniform:2"},
        {"epsilon": float("inf")},
    ],
    ids=str,
)
def test_rounds_of_other_kinds_run_one_by_one(settings, calls):
    source, experiment = prepared(**settings)
    simulation = Simulation(resolve_plan(experiment, source, 1), Communicator())
    assert make_round_loop(simulation.server, simulation.machines) is None
    simulation.run()
    assert calls == []


class TwoRanks(Communicator):
    size = 2


def test_ranks_that_send_messages_run_round_by_round():
    source, experiment = prepared()
    simulation = Simulation(resolve_plan(experiment, source, 1), Communicator())
    assert make_round_loop(simulation.server, simulation.machines) is not None
    machines, constants = range(3), simulation.constants
    server = type(simulation.server)(constants, machines, TwoRanks(), simulation.run_keys.noise)
    assert make_round_loop(server, simulation.machines) is None


def test_samples_that_are_read_between_rounds_change_no_bits(calls, monkeypatch):
    case = prepared()
    whole = run_of(*case)
    for name in ("MAX_IN_MEMORY_SAMPLE_BYTES", "SAMPLE_CHUNK_BYTES"):
        monkeypatch.setattr(f"mu2mpi.data.source.{name}", 7 * 3 * case[0].sample_bytes)
    del calls[:]
    assert run_of(*case) == whole
    assert {count for _, count in calls} <= set(range(1, 8))


def test_memory_holds_the_samples_of_one_read(monkeypatch):
    source, experiment = prepared()
    for name in ("MAX_IN_MEMORY_SAMPLE_BYTES", "SAMPLE_CHUNK_BYTES"):
        monkeypatch.setattr(f"mu2mpi.data.source.{name}", 7 * 3 * source.sample_bytes)
    simulation = Simulation(resolve_plan(experiment, source, 1), Communicator())
    machines = simulation.machines
    reader, held = machines._reader, [weakref.ref(machines.samples)]

    def read(t):
        assert [samples() for samples in held] == [None] * len(held)
        samples = reader(t)
        held.append(weakref.ref(samples))
        return samples

    monkeypatch.setattr(machines, "_reader", read)
    simulation.run()
    assert len(held) > ROUNDS / 8


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
def test_a_run_that_stops_within_a_group_goes_on_to_the_same_bits(server, calls):
    source, experiment = prepared(server=server)
    unbroken = simulated(experiment, source)
    del calls[:]
    state = stopped_state(experiment, source, 53)
    assert state.rounds_done == 52
    again = simulated(experiment, source, state)
    assert calls
    assert again.x.tobytes() == unbroken.x.tobytes()
    assert again.w.tobytes() == unbroken.w.tobytes()


class EveryTen(CheckpointPolicy):
    """Decide in rounds 10, 20, ... alone, and keep the checkpoints."""

    def __init__(self):
        self.decision_round, self.asked, self.states = 10, [], {}

    def decide(self, t):
        self.asked.append(t)
        if t < self.decision_round:
            return CheckpointAction.CONTINUE
        assert t == self.decision_round
        self.decision_round += 10
        return CheckpointAction.SAVE

    def save(self, action, checkpoint):
        self.states[checkpoint.rounds_done] = deepcopy(checkpoint)


def test_groups_end_before_rounds_with_a_decision(calls):
    source, experiment = prepared(evaluations=1)
    policy = EveryTen()
    simulated(experiment, source, keeper=policy)
    assert list(policy.states) == list(range(9, ROUNDS, 10))
    assert len(calls) < 2 * ROUNDS // 10
    for t in (19, 49):
        single = StopAt(t + 1)
        with pytest.raises(Interrupted):
            simulated(experiment, source, keeper=single)
        for name, array in single.state.iterates.items():
            assert policy.states[t].iterates[name].tobytes() == array.tobytes()
        assert policy.states[t].q.tobytes() == single.state.q.tobytes()


def test_a_request_to_stop_ends_a_long_run_soon():
    source, experiment = prepared(machines=1, rounds=6 * ROUNDS)
    requested = iter([False] * 3)
    saved = []

    class Periodic(PeriodicCheckpoints):
        def save(self, action, checkpoint):
            saved.append((action, checkpoint.rounds_done))
            raise Interrupted(checkpoint.rounds_done)

    policy = Periodic(Communicator(), lambda: next(requested, True), 1e9)
    with pytest.raises(Interrupted):
        simulated(experiment, source, keeper=policy)
    ((action, rounds_done),) = saved
    assert action is CheckpointAction.SAVE_AND_STOP
    assert 0 < rounds_done < 6 * ROUNDS


def test_calls_are_short(calls, monkeypatch):
    case = prepared(evaluations=1)
    monkeypatch.setattr(module, "run_cost_ns", lambda _: ROUNDS * module.MAX_CALL_NS / 6)
    run_of(*case)
    assert {count for _, count in calls} <= set(range(1, 8))


def test_callbacks_hear_of_every_round_in_order():
    source, experiment = prepared()
    heard = []

    class Recorder(Callback):
        def on_round(self, t):
            heard.append(t)

        def on_evaluation(self, evaluation):
            heard.append(-evaluation.round)

    simulation = Simulation(resolve_plan(experiment, source, 1), Communicator())
    simulation.run(CallbackList([Recorder()]))
    assert [t for t in heard if t > 0] == list(range(1, ROUNDS + 1))
    assert all(heard[n - 1] == -t for n, t in enumerate(heard) if t < 0)


def test_time_of_groups_is_divided_into_phases(calls):
    source, experiment = prepared(machines=3, evaluations=1)
    simulation = Simulation(resolve_plan(experiment, source, 1), Communicator())
    started = perf_counter()
    timing = simulation.run().timing
    seconds = perf_counter() - started
    assert calls
    phases = {name: float(value.sum()) for name, value in timing.items()}
    assert min(phases[name] for name in ("compute", "noise", "step")) > 0
    assert sum(phases.values()) < seconds


@pytest.mark.parametrize("settings", [{}, {"server": "trusted"}, {"machines": 1}], ids=str)
def test_a_run_compiles_the_loop_before_its_first_round(settings):
    source, experiment = prepared(**settings)
    simulation = Simulation(resolve_plan(experiment, source, 1), Communicator())
    before = len(round_loop.run_rounds.signatures)
    simulation.run()
    assert len(round_loop.run_rounds.signatures) == before > 0


def test_rounds_of_a_derived_server_run_one_by_one(calls, monkeypatch):
    class OwnServer(lookup("servers", "untrusted")):
        """Untrusted server of a user, who may change what a round does."""

    monkeypatch.setattr("mu2mpi.federation.problem.Problem.trust_mode", OwnServer)
    run_of(*prepared())
    assert not calls


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
def test_rounds_with_a_derived_noise_source_run_one_by_one(server, calls, monkeypatch):
    class OwnSource(IndependentNoiseSource):
        """Noise source of a user, which may add other noise."""

    mechanism = lookup("mechanisms", "gaussian")
    make_source = mechanism.noise_source

    def own_source(*arguments):
        source = make_source(*arguments)
        return OwnSource(source.key, source.streams, source.std_units)

    monkeypatch.setattr(mechanism, "noise_source", own_source)
    run_of(*prepared(server=server))
    assert not calls
