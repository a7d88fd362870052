"""How many of the ranks that a run is given take part in it: no more than make it faster."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TypeVar

import numpy as np

from mu2mpi.errors import Interrupted
from mu2mpi.execution import environment
from mu2mpi.execution.cost import run_cost
from mu2mpi.execution.measurements import planned_measurements
from mu2mpi.execution.plan import Plan
from mu2mpi.execution.warmup import compile_kernels
from mu2mpi.federation.machine import HostedSamples
from mu2mpi.federation.schedule import Schedule
from mu2mpi.federation.servers.base import machines_and_server
from mu2mpi.federation.stopwatch import Stopwatch
from mu2mpi.parallel import Communicator, block

SHORT = 30_000_000
"""Nanoseconds on one core: a shorter run is over before others could be of use to it."""

SHARE = 0.02
"""Of the time of a run, about this much may be spent on finding out."""

FEWEST_ROUNDS, MOST_ROUNDS, TIMES = 3, 12, 2
"""That are tried on each number of ranks, one after the other, and how often; the best time counts."""

MOST_BYTES = 2**26
"""Samples of a round that are worth to be tried; with more, no message is worth speaking of."""

WORTHWHILE = 1.02
"""By how much more ranks must be faster to be taken: they could do something else."""

Thing = TypeVar("Thing")


def fastest_ranks(plan: Plan, communicator: Communicator) -> range:
    """Return the first ranks, so many that the run takes least time, the same on every rank.

    They are chosen by rounds on made-up samples, without the key of the noise, on all ranks that have
    machines and a core, on half of them, and so on to one. All ranks must call this.
    """
    schedule = plan.schedule
    most = min(schedule.machines, _cores(communicator))
    if most == 1 or run_cost(schedule) < SHORT:
        return range(1)
    numbers = [most >> k for k in range(most.bit_length())]
    affordable = int(SHARE * schedule.rounds / (TIMES * len(numbers)))
    rounds = min(max(FEWEST_ROUNDS, min(affordable, MOST_ROUNDS)), schedule.rounds - 1)
    made_up = schedule.machines * _each(schedule)
    if rounds < 1 or rounds * made_up * plan.source.sample_bytes > MOST_BYTES:
        return range(most)
    compile_kernels(plan, communicator)
    seconds = dict.fromkeys(numbers, math.inf)
    for number in numbers * TIMES:
        with part_of(communicator, 0 if communicator.rank < number else None) as crew:
            mine = None if crew is None else _seconds_a_round(plan, crew, rounds)
        seconds[number] = min(seconds[number], communicator.share(mine))
    return range(_best(plan, seconds))


def _cores(communicator: Communicator) -> int:
    """Return how many of the first ranks have a core of their own, as far as the system says."""
    available = communicator.allgather((communicator.host, environment.own_cores()))
    # A launcher may have bound each rank to other cores of its host.
    cores: dict[str, set[int]] = {}
    for host, of_rank in available:
        cores.setdefault(host, set()).update(of_rank)
    taken = dict.fromkeys(cores, 0)
    for number, (host, _) in enumerate(available):
        taken[host] += 1
        if taken[host] > len(cores[host]):
            return number
    return len(available)


def _each(schedule: Schedule) -> int:
    """Return how many samples a machine uses in a round in which it is there."""
    return max(1, round(schedule.sampling.drawn(schedule.rounds) / schedule.rounds))


def _seconds_a_round(plan: Plan, crew: Communicator, rounds: int) -> float:
    """Return the median time of a round on a crew, on samples that are made up."""
    schedule = plan.schedule
    hosted = block(schedule.machines, crew.size, crew.rank)
    sizes = np.full((rounds, len(hosted)), _each(schedule))
    if schedule.members is not None:
        sizes *= schedule.members.attendance.present(range(1, rounds + 1), hosted)
    chance, kind = np.random.default_rng(0), plan.source.feature_type
    features = chance.integers(0, 2, (sizes.sum(), plan.source.dimension), np.int8).astype(kind)
    labels = np.full(len(features), plan.source.values[0])
    scales = np.full(len(features), plan.source.scale)
    samples = HostedSamples(features, labels, scales, sizes, bias=schedule.scaling.bias)
    key = np.zeros(8, np.uint32)
    machines, server = machines_and_server(schedule, hosted, lambda _: samples, crew, key)
    machines.read(1)
    crew.wait_for_all()
    clock, ends = Stopwatch(rounds), [perf_counter()]
    for t in range(1, rounds + 1):
        server.iterates.visit(t)
        server.round(t, machines, clock)
        ends.append(perf_counter())
    return float(np.median(np.diff(ends)))


def _best(plan: Plan, seconds: dict[int, float]) -> int:
    """Return on how many ranks a run takes least time, evaluations included, given that of a round."""
    evaluations = 1e-9 * planned_measurements(plan).cost(plan.schedule)
    times = {n: plan.schedule.rounds * of_round + evaluations / n for n, of_round in seconds.items()}
    return min(times, key=lambda n: times[n] * WORTHWHILE ** math.log2(n))


@contextmanager
def part_of(communicator: Communicator, number: int | None) -> Iterator[Communicator | None]:
    """Give a communicator to the ranks that name the same part by its number, and None to those of none."""
    part = communicator.split(number)
    yield part
    # All of them must do this, so not if one has failed.
    if part is not None:
        part.free()


def on_a_part(
    everyone: Communicator,
    part: Communicator | None,
    is_asked: Callable[[], bool],
    action: Callable[[Communicator], Thing],
) -> Thing | None:
    """Do something on the ranks that have a part, while the others wait; every rank ends alike.

    Whatever rank is asked to stop leaves word for all, by `call`. Errors and Interrupted of any part are
    raised on every rank once all are through. Returns what the action does, or None without a part.
    """
    done = stopped_after = None
    has_called = False

    def pass_on() -> None:
        nonlocal has_called
        if not has_called and is_asked():
            has_called = True
            everyone.call()

    with everyone.together(pass_on):
        if part is not None:
            try:
                done = action(part)
            except Interrupted as stop:
                stopped_after = stop.rounds_done
                has_called = True
                if part.rank == 0 and not everyone.called():
                    everyone.call()
    stops = [rounds for rounds in everyone.allgather(stopped_after) if rounds is not None]
    everyone.forget_calls()
    if stops:
        raise Interrupted(max(stops))
    return done
