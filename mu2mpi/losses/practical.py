"""The practical presets: settings beyond the theorems, from public facts alone (docs/guides/practical.md)."""

import math
from typing import Any, NamedTuple

from mu2mpi.core.registry import find


class Facts(NamedTuple):
    """What is public of the data, and presets may use."""

    classes: int
    square: float  # no squared norm of features in [-1, 1] passes it, without the bias
    samples: int  # how many all machines can use together
    shared: float | None = None  # where machines differ: by what their average has less noise,
    effective: float | None = None  # and as how many equal machines they average samples


class Practical(NamedTuple):
    """What practical presets go by, in terms of margins of samples of norm 1: docs/guides/practical.md."""

    clip: float | None = None  # norm to which gradients are clipped; half of G where no margin passes 1
    noise: float = 1.5  # standard deviation of the noise that margins may gather
    reach: float = 100.0  # margins of the ball


class Choices(NamedTuple):
    """What the presets of all methods go by: how long samples are, and what follows for the loss."""

    clip_norm: float
    diameter: float
    clip: float  # what is used for `clip_norm`, if the user has given another
    noise: float  # standard deviation of the noise that each weight may gather
    G: float  # no gradient's norm passes it on the ball
    L: float  # smoothness there, in units of which steps are,
    nearby: float  # and where no margin passes 1, both with that of the regulariser


STEP = 1.8  # of presets with many passes, in units of 1/L, where 2 is the longest that goes down


def descent(
    asked: Any,
    facts: Facts,
    *,
    hidden: float,
    rounds: tuple[int, int],
    tail: float,
    times: float = 1.0,
) -> dict[str, Any]:
    """Return what presets choose that go over the samples again and again, in steps of up to 1.8 / L.

    The noise of the average gradient over all rounds is that of one sum over `hidden` samples; there are from
    the first to the second of `rounds`. The output is the mean of a `tail` of them. With momentum each step
    is so many `times` as long in the end.
    """
    chosen, (fewest, most) = choices(asked, facts), rounds
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


def longest_at_averages(asked: Any, facts: Facts) -> float:
    """Return the largest learning rate at averages, in units of 1/(4LT) with L where no margin passes 1.

    Beyond it, w follows single samples, or swings where samples do not have norm 1 and classes.
    """
    most = facts.effective or asked.machines or 1
    if asked.scaling != "unit" or find("losses", asked.loss).labels == "numbers":
        most = min(most, rounds_of_one_pass(asked, facts))
    return 16.0 * most


def rounds_of_one_pass(asked: Any, facts: Facts) -> int:
    """Return how many rounds there are of a sample of each machine."""
    return asked.rounds or facts.samples // (asked.machines or 1)


def gathered(asked: Any, chosen: Choices, shared: float) -> float:
    """Return by what gradients with noise 2 C / rho, but shared, may be multiplied in all."""
    return float(chosen.noise * asked.rho * shared / (2 * min(chosen.clip, chosen.G)))


def normalize(asked: Any) -> str:
    """Return how samples are to be scaled: to norm 1, but where columns have bounds of their own."""
    return "none" if asked.schema is not None or asked.norm_bound is not None else "unit"


def choices(asked: Any, facts: Facts, wider: float = 1.0) -> Choices:
    """Return what is chosen for samples of which the longest, of length ||z||, is known in public."""
    # Whoever only wants to know what options there are need not import numpy.
    from mu2mpi.losses.model.scaling import Scaling

    problem = find("losses", asked.loss)
    own, l2 = problem.practical, asked.l2 or 0.0
    square = Scaling(asked.scaling == "unit", asked.norm_bound).largest_square(facts.square)
    length = math.sqrt(square)
    diameter = rounded(wider * 2 * own.reach / length)
    radius = (asked.diameter if "diameter" in asked.given else diameter) / 2
    nearby = problem.constants(square, 1 / length, facts.classes)
    G, L = problem.constants(square, radius, facts.classes)
    clip_norm = rounded(nearby.G / 2 if own.clip is None else own.clip * length)
    return Choices(
        clip_norm=clip_norm,
        diameter=diameter,
        clip=asked.clip_norm or clip_norm,
        noise=own.noise / length,
        G=G,
        L=L + l2,
        nearby=nearby.L + l2,
    )


def rounded(value: float) -> float:
    """Return a number of four digits, so that all processors agree."""
    return float(f"{value:.4g}")
