"""What is revealed of a person with several samples: docs/background/privacy-proofs.md has the proofs."""

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import NamedTuple

from mu2mpi.privacy.accounting.guarantee import Gaussian, Grouped, Guarantee
from mu2mpi.privacy.mechanisms.mechanism import Mechanism


class Held(NamedTuple):
    """A machine, and how many samples of a person's it uses, or draws from."""

    mechanism: Mechanism
    samples: int


def of_person(
    machines: Sequence[Held], most: int, shares_noise: bool, is_apart: bool, delta: float, draws: int = 1
) -> Guarantee:
    """Return what is revealed of a person at `most` machines, at worst; one draw may hide all of them."""
    kinds = {held: held.mechanism.group(held.samples, is_apart, draws) for held in dict.fromkeys(machines)}
    told = {held: found.epsilon(delta) if found.rho is None else found.rho for held, found in kinds.items()}
    worst = sorted(machines, key=told.__getitem__, reverse=True)[:most]
    found = [kinds[held] for held in worst]
    if not shares_noise:
        return reduce(add, found)
    gaussian = [one for one in found if isinstance(one, Gaussian)]
    if len(gaussian) == len(found):
        return Gaussian(sum(one.rho for one in gaussian), reduce(add, (one.drawn for one in gaussian)))
    return Grouped(worst[0].mechanism.guarantee(draws=draws), sum(held.samples for held in worst))
