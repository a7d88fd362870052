"""The practical preset: settings beyond the theorems, for good models (docs/guides/practical.md)."""

import math
from typing import Any, NamedTuple

from mu2mpi.core.registry import find, register
from mu2mpi.data.source import PublicFacts
from mu2mpi.federation.trust_mode import shared_by
from mu2mpi.methods.presets.preset import Preset

STEP = 1.8  # of many passes in units of 1/L, where 2 is the largest that decreases the loss


class Choices(NamedTuple):
    """Settings and constants of a loss at the public length of samples."""

    clip_norm: float
    diameter: float
    clip: float  # clipping norm in use: `clip_norm`, unless the user gives another
    noise: float  # noise std that each weight may accumulate
    G: float  # bound on norms of gradients in the ball
    L: float  # smoothness in the ball, regulariser included
    nearby: float  # smoothness where no margin exceeds 1, regulariser included


@register
class PracticalPreset(Preset):
    """Settings by scans on public data: `Problem.practical` of a loss, and `Method.practical` of a method."""

    name = "practical"
    summary = (
        "for good models: the method (dp-gd), normalize, clip-norm, diameter and eta-scale, and rounds, "
        "batch, tail, momentum and mechanism of methods with a choice"
    )
    is_default = True
    method = "dp-gd"

    def settings(self, method: Any, asked: Any, facts: PublicFacts | None) -> dict[str, Any]:
        """Return the settings of a method, and samples of norm 1 unless columns have bounds of their own."""
        has_bounds = asked.schema is not None or asked.norm_bound is not None
        chosen = {} if facts is None else method.practical(self, asked, facts)
        return {**method.chooses, **chosen, "normalize": "none" if has_bounds else "unit"}

    def clip_norm(self, problem: Any, length: float, nearby: float) -> float:
        """Return the clipping norm for samples of a length, where `nearby` bounds their first gradients."""
        clip = problem.practical.clip
        return float(nearby / 2 if clip is None else clip * length)

    def choices(self, asked: Any, facts: PublicFacts, wider: float = 1.0) -> Choices:
        """Return the choices for samples of the public length, in a ball that is so many times `wider`."""
        # The options alone are listed without numpy.
        from mu2mpi.losses.model.scaling import Scaling

        problem = find("losses", asked.loss)
        own, l2 = problem.practical, asked.l2 or 0.0
        square = Scaling(asked.scaling == "unit", asked.norm_bound).largest_square(facts.square)
        length = math.sqrt(square)
        diameter = rounded(wider * 2 * own.reach / length)
        radius = (asked.diameter if "diameter" in asked.given else diameter) / 2
        nearby = problem.constants(square, 1 / length, facts.classes)
        G, L, _ = problem.constants(square, radius, facts.classes)
        clip_norm = rounded(self.clip_norm(problem, length, nearby.G))
        return Choices(
            clip_norm=clip_norm,
            diameter=diameter,
            clip=asked.clip_norm or clip_norm,
            noise=own.noise / length,
            G=G,
            L=L + l2,
            nearby=nearby.L + l2,
        )

    def descent(
        self,
        asked: Any,
        facts: PublicFacts,
        *,
        hidden: float,
        rounds: tuple[int, int],
        tail: float,
        times: float = 1.0,
    ) -> dict[str, Any]:
        """Return the settings of methods with many passes and steps of up to 1.8 / L.

        The noise of the average gradient over all rounds is that of a sum over `hidden` samples. `rounds` are
        the fewest and the most, `tail` is the share of them whose mean is the output, and momentum lengthens
        steps `times` as much in the end.
        """
        chosen, (fewest, most) = self.choices(asked, facts), rounds
        step = STEP / chosen.nearby
        path = chosen.noise * asked.rho * hidden / (2 * min(chosen.clip, chosen.G)) / times
        number = math.ceil(min(max(path / step, fewest), most))
        return {
            "clip_norm": chosen.clip_norm,
            "diameter": chosen.diameter,
            "rounds": number,
            "tail": tail,
            "eta_scale": rounded(chosen.L * min(step, path / (asked.rounds or number))),
        }


def longest_at_averages(asked: Any, facts: PublicFacts) -> float:
    """Return the largest learning rate at averages, in units of 1/(4LT) with L where no margin exceeds 1.

    Beyond it, w follows single samples, or oscillates where samples do not have norm 1 and classes.
    """
    most = facts.effective or asked.machines or 1
    if asked.scaling != "unit" or find("losses", asked.loss).labels == "numbers":
        most = min(most, rounds_of_one_pass(asked, facts))
    return 16.0 * most


def rounds_of_one_pass(asked: Any, facts: PublicFacts) -> int:
    """Return the number of rounds in which every machine uses a sample per round, each once."""
    return asked.rounds or facts.samples // (asked.machines or 1)


def gathered(asked: Any, chosen: Choices) -> float:
    """Return the sum of step sizes that accumulates the noise of weights, 2 C / (rho shared) each."""
    return float(chosen.noise * asked.rho * shared_by(asked) / (2 * min(chosen.clip, chosen.G)))


def rounded(value: float) -> float:
    """Round to four digits, so that all processors agree."""
    return float(f"{value:.4g}")
