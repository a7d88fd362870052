"""What leaves the machines or the server, for a mechanism to hide: how often, and with which sensitivity."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Release:
    """The sums that machines send, or that a server makes of them, before noise.

    Attributes
    ----------
    rounds : int
        T, the number of sums.
    machines : int
        M, the number of machines whose messages are added up.
    parameters : int
        d, the coordinates of a sum.
    clip_norm : float
        Bound on the norm of what one sample adds to a sum: the sensitivity is twice this.
    gradient_norm : float
        G, the bound on the norm of a gradient.
    touched : int
        Largest number of sums that one sample can change.
    summed : int
        Largest number of increments that a machine's message adds up.
    samples : int
        Samples that each machine uses, or draws from.
    drawn : float
        Expected number of them in the first round, or in any.
    draws : int
        Machines whose noise is drawn as one; 1 if each draws its own.
    parts : int
        Machines whose noise hides a sum together; 1 if each hides its own message.
    chance : str
        How samples are drawn: empty (none at random), ``poisson`` or ``replacement``.
    is_hidden : bool
        Whether nobody sees an iterate before the last, and no step takes two iterates farther apart.
    lasts : bool
        Whether sums are cumulative: a sample stays in all of them from its round on.
    options : Options, optional
        The mechanism's own options, as the user set them.
    """

    rounds: int
    machines: int
    parameters: int
    clip_norm: float
    gradient_norm: float
    touched: int
    summed: int
    samples: int
    drawn: float
    draws: int = 1
    parts: int = 1
    chance: str = ""
    is_hidden: bool = False
    lasts: bool = False
    options: Any = None
