"""Outcome of one additional attack of an audit."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """Outcome of one additional attack."""

    summary: str  # one line of the report
    refutations: tuple[str, ...] = ()  # violations of the privacy claim
    alarms: tuple[str, ...] = ()  # deviations that disclose nothing more than claimed
