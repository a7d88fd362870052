"""What an audit found, next to what is claimed."""

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

from mu2mpi.analysis.formats import as_paragraph, as_text
from mu2mpi.audit.attack import Finding
from mu2mpi.audit.evidence import CONFIDENCE
from mu2mpi.audit.judge import LEAST, Judgement
from mu2mpi.config.experiment import Experiment
from mu2mpi.privacy.accountant import epsilon_exact


@dataclass(frozen=True)
class Report:
    """Claims about a server, and what the runs of an audit say of them."""

    words: str  # what was run, but for the default, and what of it was attacked
    reaches: bool  # whether faithful runs reach all that is claimed
    experiment: Experiment  # what makes the claims, of an epsilon at its delta too
    trials: int  # runs with each sample of either kind
    judgements: list[Judgement]  # of worst cases
    findings: list[Finding]  # of further attacks

    @property
    def refutations(self) -> list[str]:
        """What contradicts the claim, in words."""
        found = [words for judgement in self.judgements for words in judgement.refutations]
        return found + [words for finding in self.findings for words in finding.refutations]

    @property
    def alarms(self) -> list[str]:
        """What cannot be if the code does what it says, though it refutes no claim."""
        found = [words for judgement in self.judgements for words in judgement.alarms if self.reaches]
        return found + [words for finding in self.findings for words in finding.alarms]

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
        heading = (
            f"{run.server.capitalize()} server: {self.words}{run.machines} machines, {run.rounds} rounds, "
            f"{self.trials:,} runs with each sample of either kind, {len(self.judgements)} worst "
            f"case{'s' if len(self.judgements) > 1 else ''}."
        )
        header = ["", "claimed: at most", "must be reached", "reached", f"{CONFIDENCE:.0%} confidence"]
        table = textwrap.indent(as_text(header, list(map(self._rows, self.judgements))), "  ")
        said = [finding.summary for finding in self.findings if finding.summary]
        said += [f"Refuted: {words}." for words in self.refutations]
        said += [f"Alarm: {words}." for words in self.alarms]
        if not self.complaints:
            said.append("Nothing is refuted, and there is no alarm.")
        return "\n\n".join([as_paragraph(heading), table, *map(as_paragraph, said)])

    def _rows(self, found: Judgement) -> list[list[str]]:
        """Return what was found in a worst case, under its name."""
        delta = self.experiment.delta
        rows = [[found.words.capitalize(), *[""] * 4]]
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
        at_delta = f"epsilon at delta = {delta:g}"
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
