"""What several runs reveal together: which of them may be on the same people's data, and their sum.

Where it is not certain that two runs are on different people's data, they count as on the same.
"""

import hashlib
import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from mu2mpi.analysis.formats import rounded_up
from mu2mpi.config.experiment import Experiment
from mu2mpi.config.identity import sent
from mu2mpi.privacy.statement import PrivacyStatement
from mu2mpi.results.collection import names_of
from mu2mpi.results.schema import Result


@dataclass(frozen=True)
class Release:
    """What one result, at `path`, tells of what was sent."""

    path: Path
    experiment: Experiment
    privacy: PrivacyStatement
    model: bytes | None
    """A digest of x_T and w_T; None if nothing that was sent is in the model, as after a single round."""

    @classmethod
    def of(cls, path: Path, result: Result) -> "Release":
        """Return what counts of a result."""
        return cls(path, result.experiment, result.privacy, digest(result) if result.w.any() else None)


def digest(result: Result) -> bytes:
    """Return a digest of x_T and w_T."""
    return hashlib.sha256(result.x.tobytes() + result.w.tobytes()).digest()


def together(
    found: Iterable[Release], rho: str = "rho", epsilon: str = "epsilon", delta: str = "delta"
) -> list[str]:
    """Say what all runs on what may be the same people's data reveal to who sees them all.

    What was sent once counts once: copies of a file, and repeats of a run with its seed.
    """
    by_people: dict[tuple[object, ...], list[Release]] = {}
    for release in found:
        # A file of the user's may be a copy, a later version, a part or another format of another.
        asked = release.experiment
        people = ("files",) if asked.on_file else (asked.data, asked.data_seed)
        by_people.setdefault(people, []).append(release)
    sentences = []
    for group in by_people.values():
        # Models that agree to the bit had the same messages.
        runs = list({release.model or number: release for number, release in enumerate(group)}.values())
        silent = [run.path for run in runs if not run.privacy.is_noisy]
        if len(runs) == 1 or len(silent) == len(runs):
            continue
        data = names_of(list(dict.fromkeys(run.experiment.data for run in runs)))
        first = runs[0].experiment
        seed = "" if first.data_seed is None or first.on_file else f" data with data_seed = {first.data_seed}"
        which = f"these {len(runs)} runs on {data}{seed}"
        if len(runs) < len(group):
            which += f" (in {len(group)} files; what was sent once counts once)"
        unbounded = f"nothing bounds what {which} reveal together"
        if silent:
            learns = f"{unbounded}: {names_of(silent)} added no noise."
        elif shared := _one_noise(runs):
            learns = (
                f"{unbounded}: {names_of(shared)} had the same noise, and "
                "their models do not show that it hid the same data: the difference of their messages may "
                "hold no noise."
            )
        else:
            total = reduce(operator.add, (run.privacy.guarantee for run in runs))
            deltas = [run.privacy.delta for run in runs]
            if total.rho is None:
                # Where not all are Gaussian mechanisms, what they reveal adds up, deltas as well.
                at_delta, at_most = sum(deltas), math.fsum(run.privacy.epsilon_exact for run in runs)
                as_one, sums = "", ", the sums of theirs"
            else:
                at_delta, at_most = min(deltas), total.epsilon(min(deltas))
                as_one, sums = f"as much as from one with {rho} = {rounded_up(total.rho)}; exactly, ", ""
            at = f"{epsilon} = {rounded_up(at_most)} at {delta} = {at_delta:g}"
            learns = f"whoever sees what {which} released learns at most {as_one}{at}{sums}."
        files = " Files of your own count as the same people's data, whatever they are called."
        sentences.append(learns + files * runs[0].experiment.on_file)
    return sentences


def _one_noise(runs: Sequence[Release]) -> list[Path]:
    """Return the first runs that drew the same noise for different messages, if there are any."""
    by_noise: dict[tuple[int, Experiment], list[Path]] = {}
    for run in runs:
        if run.experiment.seed is not None:
            by_noise.setdefault((run.experiment.seed, sent(run.experiment)), []).append(run.path)
    return next((paths for paths in by_noise.values() if len(paths) > 1), [])
