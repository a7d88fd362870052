"""Snowball SGD: growing batches, so that the noise of the steps to come hides every sample as well.

Only the last iterate is protected, from whoever sees no other.
"""

import math
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from mu2mpi.errors import InputError
from mu2mpi.federation.estimators import GRADIENT, ITERATE
from mu2mpi.federation.schedule import Schedule, Sizes, Task
from mu2mpi.methods.base import Method, PresetOptions
from mu2mpi.privacy.guarantee import Messages
from mu2mpi.privacy.mechanisms.base import Mechanism
from mu2mpi.problem.practical import Facts, choices, normalize
from mu2mpi.registry import find, register

if TYPE_CHECKING:
    from mu2mpi.config.experiment import Experiment
    from mu2mpi.federation.iterates import Iterates
    from mu2mpi.problem.base import Constants

LOOSENESS = 1 + 2.0**-10
"""By what the norm C that noise is scaled to exceeds G: rounded gradients keep to it without being clipped.

A clipped gradient may be no gradient of a convex function, and its step no contraction.
"""

LEAST_LOOSENESS = 1 + 2.0**-12
"""The same relative to a G that covers features above their bound."""

CONTRACTING = 2 * (1 - 2.0**-18)
"""Longest step in units of 1 / L."""

CONTRACTING_WITH_SLACK = 2 * (1 - 2.0**-20)
"""Longest step in units of 1 / L where L covers features above their bound; the rest is for rounding."""


def _constants_with_slack(task: Task) -> "Constants":
    return task.problem.constants_with_slack(task.square, task.diameter / 2, task.classes)


@register
class SnowballSgd(Method):
    """Feldman, Koren and Talwar, "Private stochastic convex optimization", 2020."""

    name, title = "snowball-sgd", "Snowball SGD (last iterate alone)"
    summary = "gradients of growing batches, which protects the last iterate alone"
    options, presets = PresetOptions, ("preset",)
    estimator, query = GRADIENT, ITERATE
    mechanism = "last-iterate"
    hides_iterates = True

    def check(self, asked: "Experiment", options: Any) -> None:
        """Make sure that nobody sees an iterate who must not, that steps contract, and what is measured."""
        if asked.trust.shows_sums and (asked.machines or 1) > 1:
            raise ValueError(
                "method = snowball-sgd protects the last iterate alone, from whoever sees no other, and with "
                f"server = {asked.server} the server and all machines see the others; give --server trusted, "
                "or --machines 1"
            )
        if asked.clip_norm is not None:
            raise ValueError(
                "method = snowball-sgd takes gradients as they are: its privacy needs steps that contract, "
                "and those with clipped gradients need not; leave --clip-norm out"
            )
        if asked.eta_scale is not None and asked.eta_scale > 1:
            raise ValueError(
                f"eta_scale = {asked.eta_scale:g} is in units of 2/L, and steps of method = snowball-sgd "
                "that are longer do not contract, so that nothing is known of its privacy; give at most 1"
            )
        if asked.evaluations is not None and asked.evaluations > 1:
            raise ValueError(
                "method = snowball-sgd protects the last iterate alone, so that is where loss and accuracy "
                "are measured; give --evaluations 1, or leave it out"
            )

    def preset(self, asked: "Experiment", options: Any, facts: Facts | None) -> dict[str, Any]:
        """Return the settings of the practical mode, from public facts alone: all but the ball is of theory.

        Nothing is clipped, so where gradients grow with the ball, and noise with them, margins are at most 1.
        """
        if options.preset is None:
            return {}
        if facts is None:
            return {"normalize": normalize(asked), "diameter": None}
        reach = find("problems", asked.loss).practical.reach
        wide, narrow = choices(asked, facts), choices(asked, facts, 1 / reach)
        diameter = narrow.diameter if wide.G > narrow.G else wide.diameter
        return {"normalize": normalize(asked), "diameter": diameter}

    def sizes(self, task: Task, rounds: int | None) -> Sizes:
        """Return as many steps as the samples allow, and one more round that shows the last iterate."""
        from mu2mpi.data.partition import check_rounds
        from mu2mpi.federation.sampling import Batches
        from mu2mpi.privacy.mechanisms.last_iterate import check_steps, growing_batches, growth_of, most_steps

        growth = growth_of(task.machines, task.d, task.budget.rho)
        if rounds is None:
            rounds = most_steps(task.samples, growth) + 1
            if rounds == 1:
                raise InputError(
                    f"snowball-sgd with rho = {task.budget.rho:g} needs a last batch of "
                    f"{math.ceil(growth):,} samples of each machine, which has {task.samples:,}; give "
                    "a larger rho, or more machines or samples"
                )
        if task.most is not None:
            # Each step takes a sample at least, and it takes memory to say how many more.
            check_rounds(task.most, task.machines, rounds, rounds - 1)
        check_steps(rounds)
        batches = [*growing_batches(rounds - 1, growth).tolist(), 0]
        return Sizes(rounds, Batches(tuple(accumulate(batches))))

    def clip_norm(self, task: Task) -> float:
        """Return a norm that rounded gradients keep to without being clipped."""
        if task.clip_norm is not None:
            return task.clip_norm
        return max(task.G * LOOSENESS, _constants_with_slack(task).G * LEAST_LOOSENESS)

    def messages(self, task: Task, sizes: Sizes, present: int | None = None) -> Messages:
        """Return what is to be hidden; its gradient norm covers features above their bound."""
        from mu2mpi.privacy.mechanisms.last_iterate import ABOVE

        # The mechanism itself adds this share, which is enough for losses that grow slowly.
        longest = max(task.G, _constants_with_slack(task).G / (1 + ABOVE))
        return replace(super().messages(task, sizes, present), gradient_norm=longest)

    def largest_rate(self, task: Task, sizes: Sizes) -> float:
        """Return about 2 / L, up to which steps contract, also of features above their bound."""
        smoothness = _constants_with_slack(task).L + task.l2
        return min(CONTRACTING / task.smoothness, CONTRACTING_WITH_SLACK / smoothness)

    def base_rate(self, task: Task, sizes: Sizes, mechanism: Mechanism) -> float:
        """Return D / (G' sqrt(N)) with E ||g||^2 <= G'^2, noise included, but at most about 2 / L.

        See Jain, Nagaraj and Netrapalli, "Making the last iterate of SGD information theoretically optimal",
        2019.
        """
        noise = mechanism.sigma / task.machines
        error = math.hypot(mechanism.clip_norm, math.sqrt(task.d) * noise)
        return min(task.diameter / (error * math.sqrt(sizes.rounds - 1)), self.largest_rate(task, sizes))

    def schedule(self, task: Task, sizes: Sizes) -> Schedule:
        """Return the constants of a run, of which rounding errors and the last grid are checked."""
        from mu2mpi.federation.landing import check_landing

        schedule = super().schedule(task, sizes)
        if schedule.mechanism.is_noisy:
            check_landing(schedule, task.budget.rho)
        return schedule

    def rate(self, eta: float, rounds: int, t: int) -> float:
        """Return a rate that is halved again and again: the last iterate has to be good by itself."""
        from mu2mpi.privacy.mechanisms.last_iterate import halving_steps

        return eta * float(halving_steps(rounds - 1)[t - 1])

    def iterates(self, schedule: Schedule, options: Any) -> "Iterates":
        """Return iterates whose last step alone is seen."""
        from mu2mpi.federation.landing import LandingIterates

        return LandingIterates(schedule)
