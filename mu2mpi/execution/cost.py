"""What a run costs, roughly, from its size alone: the same on every machine, so that it may decide things."""

from mu2mpi.federation.schedule import Schedule

# Nanoseconds on one core, measured on MNIST.
PER_NORMAL, PER_BUFFER, PER_GRADIENT_WEIGHT, PER_TEST_WEIGHT = 3.2, 0.8, 0.4, 0.12
PER_ROUND, PER_EVALUATION = 10_000, 100_000


def run_cost(schedule: Schedule) -> float:
    """Return the rough time of all rounds on one core, in nanoseconds, without evaluations."""
    machine_rounds = schedule.summed(schedule.rounds, float)
    # What a machine drew when it was there last is drawn again to take it back.
    machine_rounds *= 2 if schedule.members is not None and schedule.estimator.lasts else 1
    gradients = schedule.summed(schedule.rounds, schedule.sampling.drawn)
    separate = not (schedule.trust.is_central or schedule.aggregate_noise)
    draws = machine_rounds if separate else schedule.rounds
    correlation = schedule.mechanism.correlation
    per_normal = PER_NORMAL + (PER_BUFFER * correlation.buffers if correlation is not None else 0.0)
    noise = per_normal * draws if schedule.mechanism.is_noisy else 0.0
    return schedule.d * (PER_GRADIENT_WEIGHT * gradients + noise) + PER_ROUND * schedule.rounds


def affordable_samples(schedule: Schedule, nanoseconds: float) -> int:
    """Return on how many test samples an evaluation takes so long: the other way round."""
    return int(max(0.0, nanoseconds - PER_EVALUATION) / (PER_TEST_WEIGHT * schedule.d))


def evaluation_cost(schedule: Schedule, test_samples: int) -> float:
    """Return the rough time of one evaluation on one core, in nanoseconds."""
    return PER_TEST_WEIGHT * schedule.d * test_samples + PER_EVALUATION
