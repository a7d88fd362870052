"""What results guarantee a person with several samples, at one machine or at several."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mu2mpi.analysis.formats import as_paragraph, as_text, rounded_up
from mu2mpi.privacy.guarantee import Guarantee
from mu2mpi.privacy.persons import Held, of_person
from mu2mpi.privacy.statement import LARGE_EPSILON
from mu2mpi.results.repetition import schedule_of_result, task_of_result
from mu2mpi.results.schema import Result


@dataclass(frozen=True)
class Person:
    """How many samples at each of how many machines, at most; None for all samples of a machine."""

    samples: int | None = 1
    machines: int = 1


def guarantee_of(result: Result, person: Person) -> Guarantee:
    """Return what the releases of a run whose claims hold reveal of such a person at most."""
    privacy, T = result.privacy, result.experiment.rounds or 0
    schedule = None if result.accounts is None else schedule_of_result(result)
    if schedule is None or schedule.members is None:
        sampling = result.experiment.chosen_method.sizes(task_of_result(result), T).sampling
        kinds, rounds = [privacy.mechanism] * privacy.mechanism.machines, [T] * privacy.mechanism.machines
    else:
        sampling, members = schedule.sampling, schedule.members
        there = members.of >= 0
        kinds = [members.kinds[k] for k in members.of[there].tolist()]
        rounds = members.attendance.attended[there].tolist()
    # Where chance decides, any of those may be used from which samples are drawn.
    used = [sampling.owned if sampling.chance else sampling.used(n) for n in rounds]
    held = [Held(kind, min(n, person.samples or n)) for kind, n in zip(kinds, used, strict=True)]
    return of_person(
        held,
        person.machines,
        shares_noise=result.experiment.trust.hides_sums,
        is_apart=sampling.most == 1 and not sampling.chance,
        delta=privacy.delta,
        draws=privacy.mechanism.machines if privacy.noise == "aggregate" else 1,
    )


def describe_person(results: Sequence[tuple[str, Result]], person: Person) -> str:
    """Say what each of some results guarantees such a person, in a table and in words."""
    rows, largest = [], 0.0
    for name, result in results:
        found, delta = guarantee_of(result, person), result.privacy.delta
        epsilon = found.epsilon(delta)
        largest = max(largest, epsilon)
        rho = "none" if found.rho is None else rounded_up(found.rho)
        rows.append([name, result.privacy.server, rho, rounded_up(delta), rounded_up(epsilon)])
    samples = {None: "all samples", 1: "one sample"}.get(person.samples, f"up to {person.samples} samples")
    where = "one machine" if person.machines == 1 else f"each of up to {person.machines:,} machines"
    words = (
        f"A person with {samples} at {where}: if all of them were replaced by others at once, what is seen "
        "would tell at most this of it. Which machines take part when, and how many samples each has, counts "
        "as known."
    )
    if any(result.accounts is not None for _, result in results):
        words += " Where machines differ, it is of a person at those that tell most."
    if math.isinf(largest):
        words += " An infinite epsilon says that none is known."
    elif largest > LARGE_EPSILON:
        words += f" An epsilon beyond {LARGE_EPSILON:g} protects little."
    return f"{as_paragraph(words)}\n\n{as_text(['file', 'server', 'rho', 'delta', 'epsilon'], [rows])}"
