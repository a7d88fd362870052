"""Group privacy of a person who has samples at several machines: docs/background/privacy-proofs.md."""

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import NamedTuple

from mu2mpi.privacy.accounting.guarantee import GaussianGuarantee, GroupGuarantee, Guarantee
from mu2mpi.privacy.mechanisms.mechanism import Mechanism


class PersonSamples(NamedTuple):
    """Number of one person's samples at one machine, and the machine's privacy mechanism."""

    mechanism: Mechanism  # that protects the machine's messages
    samples: int  # number of the person's samples that the machine uses or may draw


def person_guarantee(
    machines: Sequence[PersonSamples],
    max_machines: int,
    machines_share_noise: bool,
    one_sample_per_round: bool,
    delta: float,
    aggregated_machines: int = 1,
) -> Guarantee:
    """Privacy guarantee for all samples of a person at the `max_machines` machines with most privacy loss.

    `delta` ranks machines by loss; `machines_share_noise`: only noised sums over machines are released, so
    that one noise term protects all; `one_sample_per_round`: a machine uses at most one of the person's
    samples per round.
    """
    shared = one_sample_per_round, aggregated_machines
    machine_guarantees = {m: m.mechanism.group_guarantee(m.samples, *shared) for m in dict.fromkeys(machines)}
    losses = {m: g.epsilon(delta) if g.rho is None else g.rho for m, g in machine_guarantees.items()}
    worst = sorted(machines, key=losses.__getitem__, reverse=True)[:max_machines]
    guarantees = [machine_guarantees[m] for m in worst]
    if not machines_share_noise:
        return reduce(add, guarantees)
    gaussian = [g for g in guarantees if isinstance(g, GaussianGuarantee)]
    if len(gaussian) == len(guarantees):
        sampler_error = reduce(add, (g.sampler_error for g in gaussian))
        return GaussianGuarantee(sum(g.rho for g in gaussian), sampler_error)
    single_sample = worst[0].mechanism.guarantee(aggregated_machines=aggregated_machines)
    return GroupGuarantee(single_sample, sum(m.samples for m in worst))
