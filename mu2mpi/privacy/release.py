"""What leaves the machines or the server, for a mechanism to hide: how often, and with which sensitivity."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Release:
    """The sums that machines send, or that a server makes of them, before noise."""

    rounds: int  # T, the number of sums
    machines: int  # M, whose messages are added up
    parameters: int  # d, the coordinates of a sum
    clip_norm: float  # bound on the norm of what a sample adds to a sum: the sensitivity is twice this
    gradient_norm: float  # bound on the norm of a gradient
    touched: int  # largest number of sums that a sample can change
    summed: int  # largest number of increments that a machine's message adds up
    samples: int  # of each machine, which it uses or draws from
    drawn: float  # expected number of them in the first round, or in any
    draws: int = 1  # machines whose noise is drawn as one: 1 if each draws its own
    parts: int = 1  # machines whose noise hides a sum together: 1 if each hides its own message
    chance: str = ""  # how samples are drawn: not at random, or "poisson" or "replacement"
    is_hidden: bool = False  # whether nobody sees an iterate before the last, and steps contract
    lasts: bool = False  # whether sums are cumulative: a sample stays in all of them from its round on
    options: Any = None  # the mechanism's own, as the user set them
