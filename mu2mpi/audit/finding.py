"""What an audit found, next to what is claimed, and what follows."""

import math
import textwrap
from dataclasses import dataclass

from mu2mpi.analysis.formats import as_paragraph, as_text
from mu2mpi.audit.evidence import CONFIDENCE, Interval
from mu2mpi.audit.judge import Judgement, Reading
from mu2mpi.audit.structure import Structure
from mu2mpi.privacy.accountant import epsilon_exact

__all__ = ["ATTACKS", "LEAST", "RISK", "Attack", "Finding"]

ATTACKS = 6
"""Two servers, each with two worst cases and the structure of its noise."""

RISK = (1 - CONFIDENCE) / ATTACKS
"""The probability with which each attack may complain of nothing."""

LEAST = 0.99
"""Share of what is claimed that has to be reached. Clipping leaves room for rounding, at most so much."""

Row = list[str]


@dataclass(frozen=True)
class Attack:
    """What was found in one kind of worst case.

    Attributes
    ----------
    words : str
        What it is called.
    judgement : Judgement
        How well samples were told apart.
    layout : str or None
        What differs if ranks host several machines, in words.
    """

    words: str
    judgement: Judgement
    layout: str | None


@dataclass(frozen=True)
class Finding:
    """Claims about a server, and what the runs of an audit say of them.

    Attributes
    ----------
    words : str
        What was run, but for the default, and what of it was attacked.
    reaches : bool
        Whether faithful runs reach all that is claimed.
    server : str
        ``"untrusted"`` or ``"trusted"``.
    machines, rounds : int
        M and T.
    trials : int
        Runs with each sample of either kind.
    delta : float
        At which epsilon is stated.
    rho, epsilon : float
        The claims: the releases are rho-Gaussian-DP, and so (epsilon, delta)-DP. Or rho is infinite, and the
        second alone is claimed.
    attacks : tuple of Attack
        What was found in each worst case.
    structure : Structure
        What was found of the fine structure of the noise.
    """

    words: str
    reaches: bool
    server: str
    machines: int
    rounds: int
    trials: int
    delta: float
    rho: float
    epsilon: float
    attacks: tuple[Attack, ...]
    structure: Structure

    @property
    def refutations(self) -> list[str]:
        """What the runs refute, in words; nothing where they agree with the claims."""
        found = []
        for attack in self.attacks:
            judgement = attack.judgement
            told = [reading for reading in (judgement.most, judgement.learnt) if reading is not None]
            highest = max(told, key=lambda reading: reading.share.low, default=None)
            if highest is not None and highest.share.low > 1:
                found.append(
                    f"mu is at least {highest.share.low * self.rho:.4g} where rho = {self.rho:.4g} is "
                    f"claimed ({highest.what}, {attack.words})"
                )
            if judgement.epsilon_bound > self.epsilon:
                found.append(
                    f"epsilon is at least {judgement.epsilon_bound:.4g} where {self.epsilon:.4g} is claimed "
                    f"at delta = {self.delta:g} ({attack.words})"
                )
        if self._sees_lattice:
            found.append(f"the noise is not normal: it has {self.structure.strongest}")
        return [*found, *(words for is_less, words in self.structure.faults if is_less)]

    @property
    def alarms(self) -> list[str]:
        """What cannot be if the code does what it says, though it refutes no claim, in words."""
        found = []
        for attack in self.attacks:
            least = attack.judgement.least
            if least is not None and self.reaches and least.share.high < LEAST:
                found.append(
                    f"mu is at most {least.share.high * self.rho:.4g} where {LEAST * self.rho:.4g} must be "
                    f"reached ({least.what}, {attack.words})"
                )
            if attack.layout is not None:
                found.append(f"{attack.layout} ({attack.words})")
        return [*found, *(words for is_less, words in self.structure.faults if not is_less)]

    @property
    def complaints(self) -> list[str]:
        """Both, with what they are and of whom."""
        who = f"{self.server} server"
        return [
            *(f"the claim of privacy is refuted: {who}: {words}" for words in self.refutations),
            *(f"alarm: {who}: {words}" for words in self.alarms),
        ]

    @property
    def _sees_lattice(self) -> bool:
        return self.structure.log_evidence > math.log(self.structure.threshold)

    def describe(self) -> str:
        """Say what was done, and put what was found next to what is claimed; no line break at the end."""
        heading = as_paragraph(
            f"{self.server.capitalize()} server: {self.words}{self.machines} machines, {self.rounds} "
            f"rounds, {self.trials:,} runs with each sample of either kind, {len(self.attacks)} worst "
            f"case{'s' if len(self.attacks) > 1 else ''}."
        )
        header = ["", "claimed: at most", "must be reached", "reached", f"{CONFIDENCE:.0%} confidence"]
        table = as_text(header, [self._rows(attack) for attack in self.attacks])
        verdicts = [
            *(f"Refuted: {words}." for words in self.refutations),
            *(f"Alarm: {words}." for words in self.alarms),
        ]
        parts = [textwrap.indent(table, "  "), as_paragraph(self._structure())]
        parts += [as_paragraph(words) for words in verdicts or ["Nothing is refuted, and there is no alarm."]]
        return "\n\n".join([heading, *parts])

    def _rows(self, attack: Attack) -> list[Row]:
        """Return what was found in a worst case, under its name."""
        judgement, at_delta = attack.judgement, f"epsilon at delta = {self.delta:g}"
        rows = [[attack.words.capitalize(), *[""] * 4]]
        if judgement.overall is not None:
            rows.append(self._row("mu of all samples", judgement.overall.share))
        for name, reading in (("most", judgement.most), ("least", judgement.least)):
            if reading is not None:
                rows.append(self._row(f"mu of the {name} telling: {reading.what}", reading.share))
        if judgement.learnt is not None:
            rows.append(self._row(f"mu as learnt: {judgement.learnt.what}", judgement.learnt.share, ""))
        if judgement.overall is not None:
            rows.append(self._epsilon_row(f"{at_delta}, from mu", judgement.overall))
        bound = f"at least {judgement.epsilon_bound:.4g}"
        rows.append([f"{at_delta}, by counting", f"{self.epsilon:.4g}", "", "", bound])
        return rows

    def _row(self, name: str, share: Interval, least: str | None = None) -> Row:
        if least is None:
            least = f"{LEAST * self.rho:.4g}" if self.reaches else ""
        reached, low, high = (self.rho * value for value in (share.estimate, share.low, share.high))
        return [name, f"{self.rho:.4g}", least, f"{reached:.4g}", f"{low:.4g} to {high:.4g}"]

    def _epsilon_row(self, name: str, reading: Reading) -> Row:
        share = reading.share
        reached, low, high = (
            epsilon_exact(max(self.rho * value, 0.0), self.delta)
            for value in (share.estimate, share.low, share.high)
        )
        return [name, f"{self.epsilon:.4g}", "", f"{reached:.4g}", f"{low:.4g} to {high:.4g}"]

    def _structure(self) -> str:
        """Say what was found of the noise alone."""
        structure, threshold = self.structure, math.log(self.structure.threshold)
        return (
            f"Noise of real messages, 10 x 785 coordinates: {structure.normals:.3g} normals, "
            f"{structure.pairs:,} pairs in the tail; log evidence of a lattice {structure.log_evidence:.3g}, "
            f"where more than {threshold:.3g} refutes; {len(structure.faults) or 'no'} faults of size."
        )
