"""What crosses the wire: a communicator that records every message that a run sends or receives.

It stands in for mpi4py's communicator itself, so that no other way out of a rank goes unseen.
"""

import math
import pickle
import struct
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from helpers.simulations import simulation_of
from helpers.sources import random_source
from scipy import stats

from mu2mpi.audit.adversary_view import run_algorithm
from mu2mpi.audit.canaries import CLIPPED_CASE, Canaries, CanarySource
from mu2mpi.audit.recorded_ranks import run_on_ranks
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.parallel import Communicator, MpiCommunicator
from mu2mpi.execution.plan import RunKeys, resolve_plan
from mu2mpi.execution.simulation import CheckpointAction, CheckpointPolicy, Simulation
from mu2mpi.privacy.noise.noise_stream import (
    MACHINE_STREAM,
    SERVER_STREAM,
    add_noise,
    key_to_uint32,
    padded_zeros,
    root_key,
)
from mu2mpi.results.callbacks import CallbackList

pytestmark = pytest.mark.several_ranks
ROUNDS, SEED = 12, 5


def kept(argument: Any) -> Any:
    """Return a copy of an array, with a sign where MPI is to add integers modulo 2^64."""
    if not isinstance(argument, np.ndarray):
        return argument
    return argument.copy().view(np.int64) if argument.dtype == np.uint64 else argument.copy()


class Recorder:
    """Passes everything on to a real communicator and keeps copies of all arrays and their direction."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self.log: list[tuple[str, Any, Any]] = []

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._comm, name)
        if not callable(attribute) or name.startswith(("Get_", "Split", "Ibarrier", "Free", "Abort")):
            return attribute

        def call(*arguments: Any, **options: Any) -> Any:
            sent = [kept(a) for a in arguments]
            answer = attribute(*arguments, **options)
            received = [kept(a) for a in arguments]
            # Between two ranks, a reduction is a message to rank 0, which sends none of its own.
            if name == "Send":
                self.log.append(("Reduce", [sent[0], None], [None, None]))
            elif name == "Recv":
                self.log.append(("Reduce", [None, None], [None, received[0]]))
            else:
                self.log.append((name, sent, [*received, answer]))
            return answer

        return call


def recorded_run(communicator: Communicator, server: str, machines: int, rho: float = 4.0, **own: Any):
    recorder = Recorder(communicator._comm)  # type: ignore[attr-defined]
    source = random_source(3, machines * ROUNDS, 9, 4)
    experiment = Experiment(server=server, machines=machines, rounds=ROUNDS, rho=rho, seed=SEED, **own)
    simulation = simulation_of(experiment, source, MpiCommunicator(recorder))
    sums = []
    observe = simulation.machines.accumulate_increments

    def remember(*arguments: Any) -> None:
        observe(*arguments)
        sums.append(simulation.machines.message_sum.copy())

    simulation.machines.accumulate_increments = remember  # type: ignore[method-assign]
    before = len(recorder.log)
    simulation._run_rounds(CallbackList(), CheckpointPolicy())
    log = recorder.log[before:]
    # What else crosses are losses of test samples, and word of whether a callback has failed.
    assert all(sent == [None] for name, sent, _ in log if name == "bcast")
    return simulation, [entry for entry in log if entry[0] not in ("gather", "bcast")], sums


def receives_alone(communicator: Communicator) -> bool:
    """Whether this rank is the one of two that gets sums, and sends no message of its own to anyone."""
    return communicator.size == 2 and communicator.rank == 0


def noise_units(simulation: Simulation, who: int, first: int, count: int, t: int) -> np.ndarray:
    constants = simulation.constants
    zeros, _ = padded_zeros((constants.problem.classes, constants.problem.features))
    flat, noise = padded_zeros((constants.problem.classes, constants.problem.features))
    key = key_to_uint32(RunKeys.noise_key(root_key(SEED), simulation.experiment))
    scale = constants.mechanism.sigma / constants.mechanism.grid_spacing
    add_noise(flat, zeros, key, who, first, count, t, scale)
    return noise


@pytest.mark.parametrize("machines_per_rank", [1, 3])
def test_untrusted_nothing_leaves_a_machine_without_its_own_noise(communicator, machines_per_rank):
    machines = machines_per_rank * communicator.size
    simulation, log, sums = recorded_run(communicator, "untrusted", machines)
    assert [name for name, _, _ in log] == ["Sendrecv" if communicator.size == 2 else "Allreduce"] * ROUNDS
    first = communicator.rank * machines_per_rank
    for t, (_, sent, _) in enumerate(log, 1):
        noise = noise_units(simulation, MACHINE_STREAM, first, machines_per_rank, t)
        np.testing.assert_array_equal(sent[0] - sums[t - 1], noise)
        # Every machine's noise is there with its full weight, and none of it is small.
        mechanism = simulation.constants.mechanism
        measured = noise.std() / (mechanism.sigma / mechanism.grid_spacing)
        assert measured == pytest.approx(np.sqrt(machines_per_rank), rel=0.5)


@pytest.mark.parametrize("server", ["untrusted", "aggregated"])
def test_a_run_that_goes_on_sends_nothing_that_tells_what_was_sent_before(communicator, server):
    """Rounds that are sent again: sums as before, and of single ranks nothing but uniform words."""
    source = random_source(3, communicator.size * ROUNDS, 9, 4)
    experiment = Experiment(server=server, machines=communicator.size, rounds=ROUNDS, seed=SEED)
    plan = resolve_plan(experiment, source, communicator.size)
    half = ROUNDS // 2

    def messages(simulation: Simulation, recorder: Recorder) -> np.ndarray:
        before = len(recorder.log)
        simulation._run_rounds(CallbackList(), simulation_keeper)
        found = [s[0] for name, s, _ in recorder.log[before:] if name in ("Sendrecv", "Allreduce")]
        return np.array(found[-half:]).view(np.uint64)

    class HalfWay(CheckpointPolicy):
        state: Any = None

        def decide(self, t: int) -> CheckpointAction:
            return (
                CheckpointAction.SAVE if t == half + 1 and self.state is None else CheckpointAction.CONTINUE
            )

        def save(self, action: CheckpointAction, state: Any) -> None:
            self.state = deepcopy(state) or "elsewhere"

    simulation_keeper = HalfWay()
    recorders = [Recorder(communicator._comm) for _ in range(2)]  # type: ignore[attr-defined]
    first = Simulation(plan, MpiCommunicator(recorders[0]))
    sent = messages(first, recorders[0])
    state = simulation_keeper.state if communicator.rank == 0 else None
    again = Simulation(plan, MpiCommunicator(recorders[1]), state)
    differences = messages(again, recorders[1]) - sent
    assert (differences == differences[0]).all()
    counts = np.bincount(differences[0].ravel().view(np.uint8) >> 4, minlength=16)
    assert stats.chisquare(counts).pvalue > 1e-5
    assert not np.sum(communicator.allgather(differences), axis=0, dtype=np.uint64).any()
    assert again.server.iterates.output.tobytes() == first.server.iterates.output.tobytes()


def integers_in(thing: Any) -> list[np.ndarray]:
    """Return all arrays of int64 in nested tuples and lists."""
    if isinstance(thing, np.ndarray):
        return [thing] if thing.dtype == np.int64 else []
    return [array for part in thing for array in integers_in(part)] if isinstance(thing, tuple | list) else []


@pytest.mark.parametrize("server", ["untrusted", "aggregated"])
def test_what_a_checkpoint_gathers_is_uniform_unless_the_server_is_central(communicator, server):
    """Bytes of sums and of statistics, by a test that fails for other seeds with probability 1e-5."""
    source = random_source(3, communicator.size * ROUNDS, 9, 4)
    experiment = Experiment(server=server, machines=communicator.size, rounds=ROUNDS, seed=SEED)
    recorder = Recorder(communicator._comm)  # type: ignore[attr-defined]
    simulation = Simulation(resolve_plan(experiment, source, communicator.size), MpiCommunicator(recorder))
    simulation._run_rounds(CallbackList(), CheckpointPolicy())
    before = len(recorder.log)
    states = [simulation.gather_checkpoint() for _ in range(20)]
    assert {name for name, *_ in recorder.log[before:]} <= {"Reduce", "gather", "bcast", "allgather"}
    sent = [array for name, arguments, _ in recorder.log[before:] for array in integers_in(arguments[:1])]
    words = np.concatenate([array.ravel() for array in sent]).view(np.uint64)
    assert len(words) >= 20 * 2 * 40
    counts = np.bincount(words.view(np.uint8), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-5
    assert np.unique(words).size == words.size
    # What rank 0 makes of it are the sums of all machines.
    q = communicator.allgather(simulation.machines.message_sum)
    for state in states if communicator.rank == 0 else ():
        np.testing.assert_array_equal(state.q, np.sum(q, axis=0))


@pytest.mark.parametrize("server", ["untrusted", "aggregated", "trusted", "shuffled"])
def test_no_rank_but_0_receives_what_is_computed_from_private_data(communicator, server):
    source = random_source(3, communicator.size * ROUNDS, 9, 4)
    experiment = Experiment(server=server, machines=communicator.size, rounds=ROUNDS, seed=SEED)
    recorder = Recorder(communicator._comm)  # type: ignore[attr-defined]
    simulation = Simulation(resolve_plan(experiment, source, communicator.size), MpiCommunicator(recorder))
    result = simulation.run()
    norms = communicator.allgather(simulation.machines.largest_squared_norm)
    if communicator.rank == 0:
        assert result.diagnostics.largest_increment_norm == math.sqrt(max(norms))
        return
    assert result.diagnostics is None
    received = b"".join(pickle.dumps(answers) for _, _, answers in recorder.log)
    for norm in norms[: communicator.rank] + norms[communicator.rank + 1 :]:
        for value in (norm, math.sqrt(norm)):
            assert struct.pack("<d", value) not in received
            assert struct.pack(">d", value) not in received


@pytest.mark.parametrize("masks", ["crossing", "all"])
@pytest.mark.parametrize("machines_per_rank", [1, 3])
def test_aggregated_what_leaves_a_rank_is_uniform_and_what_all_leave_is_the_sum(
    communicator, machines_per_rank, masks
):
    """Bytes of what is sent, by a test that fails for other seeds with probability 1e-5 on each rank."""
    machines = machines_per_rank * communicator.size
    _, log, _ = recorded_run(communicator, "aggregated", machines, masks=masks)
    _, bare, sums = recorded_run(communicator, "aggregated", machines, masks="none")
    assert [name for name, _, _ in log] == ["Sendrecv" if communicator.size == 2 else "Allreduce"] * ROUNDS
    sent, unmasked = (np.array([before[0] for _, before, _ in of]).view(np.uint64) for of in (log, bare))
    differences = sent - unmasked
    for words in (sent, differences):
        assert np.unique(words).size == words.size
        counts = np.bincount(words.ravel().view(np.uint8), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-5
    # Without masks, only noise is between what is sent and the sums: nothing near the ends of 64 bits.
    assert np.abs(unmasked.view(np.int64) - np.array(sums)).max() < 2**40
    everyones = communicator.allgather(sent), communicator.allgather(unmasked)
    np.testing.assert_array_equal(*(np.sum(arrays, axis=0, dtype=np.uint64) for arrays in everyones))


@pytest.mark.parametrize("machines_per_rank", [1, 3])
def test_shuffled_no_rank_but_0_receives_more_than_query_points(communicator, machines_per_rank):
    simulation, log, sums = recorded_run(communicator, "shuffled", machines_per_rank * communicator.size)
    assert [name for name, _, _ in log] == ["Reduce", "Bcast"] * (ROUNDS - 1) + ["Reduce"]
    if communicator.rank != 0:
        assert (
            simulation.server.noise_source is simulation.server._message_sum is simulation.server._key is None
        )
        assert simulation.run_keys.noise is None
    sent = [before[0] for name, before, _ in log if name == "Reduce"]
    if receives_alone(communicator):
        assert sent == [None] * ROUNDS
    else:
        np.testing.assert_array_equal(sent, sums)


@pytest.mark.parametrize("machines_per_rank", [1, 3])
def test_trusted_no_rank_but_0_receives_a_sum_without_noise(communicator, machines_per_rank):
    simulation, log, sums = recorded_run(communicator, "trusted", machines_per_rank * communicator.size)
    # The last round's sum moves nothing, so nothing is sent back.
    assert [name for name, _, _ in log] == ["Reduce", "Bcast"] * (ROUNDS - 1) + ["Reduce"]
    for name, sent, received in log:
        if name == "Reduce" and communicator.rank != 0:
            assert sent[1] is None
            assert received[1] is None
    if communicator.rank != 0:
        # Nothing that this rank holds could remove the noise, or is a sum of others' increments.
        assert simulation.machines.key is simulation.run_keys.noise is None
        assert simulation.server.noise_source is None
        assert simulation.server._message_sum is None
        return
    iterates = [received[0] for name, _, received in log if name == "Bcast"]
    totals = [received[1] for name, _, received in log if name == "Reduce"]
    if receives_alone(communicator):
        totals = np.add(totals, sums)
    w, x = np.zeros_like(iterates[0]), np.zeros_like(iterates[0])
    constants = simulation.constants
    for t, sent_x in enumerate(iterates, 1):
        noised = totals[t - 1] + noise_units(simulation, SERVER_STREAM, 0, 1, t)
        w -= constants.eta * noised * constants.mechanism.grid_spacing / constants.problem.machines
        w *= min(1, constants.problem.radius / np.linalg.norm(w))
        x += 2 / (t + 2) * (w - x)
        np.testing.assert_allclose(sent_x, x, rtol=1e-9, atol=1e-15)
        x = sent_x.copy()


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
def test_without_noise_the_sums_themselves_are_sent(communicator, server):
    _, log, sums = recorded_run(communicator, server, communicator.size, rho=float("inf"))
    sent = [entry[1][0] for entry in log if entry[0] in ("Sendrecv", "Allreduce", "Reduce")]
    for message, expected in zip(sent, sums, strict=True):
        if server == "trusted" and receives_alone(communicator):
            assert message is None
        else:
            np.testing.assert_array_equal(message, expected)


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
def test_the_audit_records_what_crosses_the_wire(communicator, server):
    size, rank = communicator.size, communicator.rank
    settings = {"clip_norm": CLIPPED_CASE.clip_norm, "diameter": CLIPPED_CASE.diameter}
    experiment = Experiment(server=server, machines=size, rounds=ROUNDS, rho=1.0, **settings)
    constants = resolve_plan(experiment, CanarySource(size * ROUNDS, 2), size).constants
    canaries = Canaries(constants, CLIPPED_CASE, bytes(32))
    kinds = np.arange(len(canaries)) % 2 == 0
    key = bytes(range(32))
    recorder = Recorder(communicator._comm)
    mpi = MpiCommunicator(recorder)
    recorder.log.clear()
    hosted_machines = range(rank, rank + 1)
    run_algorithm(constants, canaries, hosted_machines, kinds, mpi, key)
    sent = [before[0] for name, before, _ in recorder.log if name != "Bcast" or rank == 0]

    def watch(recorded):
        hosted_machines = range(recorded.rank, recorded.rank + 1)
        run_algorithm(constants, canaries, hosted_machines, kinds, recorded, key)
        return recorded.sent, recorded.received

    ours = run_on_ranks(size, watch)
    if server == "trusted" and receives_alone(communicator):
        # The audit records what a rank contributes to a reduction, also where it stays on the rank.
        sent = [own if array is None else array for own, array in zip(ours[rank][0], sent, strict=True)]
    assert [array.tobytes() for array in ours[rank][0]] == [array.tobytes() for array in sent]
    if server == "trusted" and rank != 0:
        received = [after[0] for name, _, after in recorder.log if name == "Bcast"]
        assert [array.tobytes() for array in ours[rank][1]] == [array.tobytes() for array in received]
