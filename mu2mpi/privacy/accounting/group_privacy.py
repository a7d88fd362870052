"""Group privacy of a person with samples at several machines: docs/background/privacy-proofs.md."""

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import NamedTuple

from mu2mpi.privacy.accounting.guarantee import GaussianGuarantee, GroupGuarantee, Guarantee
from mu2mpi.privacy.mechanisms.mechanism import Mechanism


class PersonSamples(NamedTuple):
    """One person's samples at one machine."""

    mechanism: Mechanism  # that protects the machine's messages
    samples: int  # number of the person's samples that the machine uses or may draw


def person_guarantee(
    machines: Sequence[PersonSamples],
    max_machines: int,
    shares_noise: bool,
    one_per_round: bool,
    delta: float,
    aggregated_machines: int = 1,
) -> Guarantee:
    """Guarantee for all samples of a person at the worst `max_machines` of some machines, at `delta`.

    `shares_noise` means that only noised sums over machines are released, so that one noise term protects
    all; `one_per_round` that a machine uses at most one of the person's samples per round.
    """
    shared = one_per_round, aggregated_machines
    groups = {m: m.mechanism.group_guarantee(m.samples, *shared) for m in dict.fromkeys(machines)}
    losses = {m: g.epsilon(delta) if g.rho is None else g.rho for m, g in groups.items()}
    worst = sorted(machines, key=losses.__getitem__, reverse=True)[:max_machines]
    guarantees = [groups[m] for m in worst]
    if not shares_noise:
        return reduce(add, guarantees)
    gaussian = [g for g in guarantees if isinstance(g, GaussianGuarantee)]
    if len(gaussian) == len(guarantees):
        error = reduce(add, (g.sampler_error for g in gaussian))
        return GaussianGuarantee(sum(g.rho for g in gaussian), error)
    single = worst[0].mechanism.guarantee(aggregated_machines=aggregated_machines)
    return GroupGuarantee(single, sum(m.samples for m in worst))
