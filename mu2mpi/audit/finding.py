"""What an audit found, next to what is claimed, and what follows."""

import math
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

from mu2mpi.analysis.formats import as_paragraph, as_text
from mu2mpi.audit.check import Check
from mu2mpi.audit.evidence import CONFIDENCE
from mu2mpi.audit.judge import Judgement
from mu2mpi.audit.structure import Structure
from mu2mpi.audit.uniformity import Uniformity
from mu2mpi.config.experiment import Experiment
from mu2mpi.privacy.accountant import epsilon_exact

MAX_SERVERS = 2
"""Servers per audit."""

MAX_STATISTICAL_ATTACKS = 8
"""Attacks per server whose thresholds a faultless server may exceed by chance."""

RISK = (1 - CONFIDENCE) / (MAX_SERVERS * MAX_STATISTICAL_ATTACKS)
"""Largest probability of a complaint about faultless code, per statistical attack."""

LEAST = 0.99
"""Share of what is claimed that has to be reached. Clipping leaves room for rounding, at most so much."""


@dataclass(frozen=True)
class Attack:
    """What was found in one kind of worst case."""

    words: str
    judgement: Judgement
    layout: str | None  # what differs if ranks host several machines, in words
    resumed: str | None  # what differs in a run that goes on after a kill, in words
    masks: Uniformity | None  # how masked messages look, if there are masks


@dataclass(frozen=True)
class Finding:
    """Claims about a server, and what the runs of an audit say of them."""

    words: str  # what was run, but for the default, and what of it was attacked
    reaches: bool  # whether faithful runs reach all that is claimed
    experiment: Experiment  # what makes the claims, of an epsilon at its delta too
    trials: int  # runs with each sample of either kind
    attacks: tuple[Attack, ...]
    structure: Structure
    checks: tuple[Check, ...] = ()  # further attacks

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
                    f"mu is at least {highest.share.low * highest.claim.rho:.4g} where rho = "
                    f"{highest.claim.rho:.4g} is claimed ({highest.what}, {attack.words})"
                )
            if judgement.epsilon_bound > (claim := judgement.counted).epsilon:
                found.append(
                    f"epsilon is at least {judgement.epsilon_bound:.4g} where {claim.epsilon:.4g} is claimed "
                    f"at delta = {claim.delta:g} ({attack.words})"
                )
            if attack.resumed is not None:
                found.append(f"{attack.resumed} ({attack.words})")
            if attack.masks is not None:
                found += [f"{words} ({attack.words})" for words in attack.masks.faults]
        if self.structure.log_evidence > math.log(self.structure.threshold):
            found.append(f"the noise is not normal: it has {self.structure.strongest}")
        found += [words for is_less, words in self.structure.faults if is_less]
        return [*found, *(words for check in self.checks for words in check.refutations)]

    @property
    def alarms(self) -> list[str]:
        """What cannot be if the code does what it says, though it refutes no claim, in words."""
        found = []
        for attack in self.attacks:
            least = attack.judgement.least
            if least is not None and self.reaches and least.share.high < LEAST:
                rho = least.claim.rho
                found.append(
                    f"mu is at most {least.share.high * rho:.4g} where {LEAST * rho:.4g} must be "
                    f"reached ({least.what}, {attack.words})"
                )
            if attack.layout is not None:
                found.append(f"{attack.layout} ({attack.words})")
        found += [words for is_less, words in self.structure.faults if not is_less]
        return [*found, *(words for check in self.checks for words in check.alarms)]

    @property
    def complaints(self) -> list[str]:
        """Both, with what they are and of whom."""
        who = f"{self.experiment.server} server"
        return [
            *(f"the claim of privacy is refuted: {who}: {words}" for words in self.refutations),
            *(f"alarm: {who}: {words}" for words in self.alarms),
        ]

    def describe(self) -> str:
        """Say what was done, and put what was found next to what is claimed; no line break at the end."""
        run = self.experiment
        heading = as_paragraph(
            f"{run.server.capitalize()} server: {self.words}{run.machines} machines, {run.rounds} rounds, "
            f"{self.trials:,} runs with each sample of either kind, {len(self.attacks)} worst "
            f"case{'s' if len(self.attacks) > 1 else ''}."
        )
        header = ["", "claimed: at most", "must be reached", "reached", f"{CONFIDENCE:.0%} confidence"]
        table = as_text(header, [self._rows(attack) for attack in self.attacks])
        structure, threshold = self.structure, math.log(self.structure.threshold)
        noise = (
            f"Noise of real messages, 10 x 785 coordinates: {structure.normals:.3g} normals, "
            f"{structure.pairs:,} pairs in the tail; log evidence of a lattice {structure.log_evidence:.3g}, "
            f"where more than {threshold:.3g} refutes; {len(structure.faults) or 'no'} faults of size."
        )
        verdicts = [f"Refuted: {words}." for words in self.refutations]
        verdicts += [f"Alarm: {words}." for words in self.alarms]
        masked = [
            f"Masks, {attack.words}: {masks.groups} groups of machines; log evidence of bits that are not "
            f"uniform {masks.log_evidence:.3g}, where more than {masks.threshold:.3g} refutes."
            for attack in self.attacks
            if (masks := attack.masks) is not None
        ]
        further = [check.summary for check in self.checks]
        said = [noise, *masked, *further, *(verdicts or ["Nothing is refuted, and there is no alarm."])]
        return "\n\n".join([heading, textwrap.indent(table, "  "), *map(as_paragraph, said)])

    def _rows(self, attack: Attack) -> list[list[str]]:
        """Return what was found in a worst case, under its name."""
        found, delta = attack.judgement, self.experiment.delta
        at_delta = f"epsilon at delta = {delta:g}"
        rows = [[attack.words.capitalize(), *[""] * 4]]
        for name, reading, must in (
            ("mu of all samples", found.overall, self.reaches),
            ("mu of the most telling: {}", found.most, self.reaches),
            ("mu of the least telling: {}", found.least, self.reaches),
            ("mu as learnt: {}", found.learnt, False),
        ):
            if reading is not None:
                rho = reading.claim.rho
                least = f"{LEAST * rho:.4g}" if must else ""
                reached = _reached(rho * value for value in reading.share)
                rows.append([name.format(reading.what), f"{rho:.4g}", least, *reached])
        if (overall := found.overall) is not None:
            mus = (max(overall.claim.rho * value, 0.0) for value in overall.share)
            reached = _reached(epsilon_exact(mu, delta) for mu in mus)
            rows.append([f"{at_delta}, from mu", f"{overall.claim.epsilon:.4g}", "", *reached])
        bound = f"at least {found.epsilon_bound:.4g}"
        return [*rows, [f"{at_delta}, by counting", f"{found.counted.epsilon:.4g}", "", "", bound]]


def _reached(values: Iterable[float]) -> list[str]:
    """Return an estimate, and between which values the truth lies, in words."""
    estimate, low, high = values
    return [f"{estimate:.4g}", f"{low:.4g} to {high:.4g}"]
