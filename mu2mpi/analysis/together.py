"""What several runs reveal together: which of them may be on the same people's data, and their sum.

Where it is not certain that two runs are on different people's data, they count as on the same.
"""

import math
import operator
from collections.abc import Iterable
from functools import reduce

from mu2mpi.analysis.formats import rounded_up
from mu2mpi.config.experiment import sent
from mu2mpi.results.collection import names_of
from mu2mpi.results.result import Result


def together(found: Iterable[Result]) -> list[str]:
    """Say what all runs on what may be the same people's data reveal to who sees them all.

    What was sent once counts once: copies of a file, and repeats of a run with its seed.
    """
    by_people: dict[object, list[Result]] = {}
    for result in found:
        # A file of the user's may be a copy, a later version, a part or another format of another.
        asked = result.experiment
        by_people.setdefault("files" if asked.on_file else (asked.data, asked.data_seed), []).append(result)
    sentences = []
    for group in by_people.values():
        # Models that agree to the bit had the same messages, unless nothing that was sent is in the model, as
        # after a single round.
        models = {bits(run) if run.w.any() else number: run for number, run in enumerate(group)}
        runs, first = list(models.values()), group[0].experiment
        silent = [run.path for run in runs if not run.privacy.is_noisy]
        if len(runs) == 1 or len(silent) == len(runs):
            continue
        which = f"these {len(runs)} runs on {names_of(list(dict.fromkeys(r.experiment.data for r in runs)))}"
        if first.data_seed is not None and not first.on_file:
            which += f" data with data_seed = {first.data_seed}"
        if len(runs) < len(group):
            which += f" (in {len(group)} files; what was sent once counts once)"
        unbounded = f"nothing bounds what {which} reveal together"
        by_noise: dict[object, list[object]] = {}
        for run in runs:
            if (seed := run.experiment.seed) is not None:
                by_noise.setdefault((seed, sent(run.experiment)), []).append(run.path)
        if silent:
            learns = f"{unbounded}: {names_of(silent)} added no noise."
        elif shared := next((paths for paths in by_noise.values() if len(paths) > 1), None):
            learns = (
                f"{unbounded}: {names_of(shared)} had the same noise, and their models do not show that it "
                "hid the same data: the difference of their messages may hold no noise."
            )
        else:
            total = reduce(operator.add, (run.privacy.guarantee for run in runs))
            deltas, as_one, sums = [run.privacy.delta for run in runs], "", ""
            if total.rho is None:
                # Where not all are Gaussian mechanisms, what they reveal adds up, deltas as well.
                delta, epsilon = sum(deltas), math.fsum(run.privacy.epsilon_exact for run in runs)
                sums = ", the sums of theirs"
            else:
                delta, epsilon = min(deltas), total.epsilon(min(deltas))
                as_one = f"as much as from one with rho = {rounded_up(total.rho)}; exactly, "
            at = f"epsilon = {rounded_up(epsilon)} at delta = {delta:g}"
            learns = f"whoever sees what {which} released learns at most {as_one}{at}{sums}."
        files = " Files of your own count as the same people's data, whatever they are called."
        sentences.append(learns + files * first.on_file)
    return sentences


def bits(result: Result) -> tuple[bytes, bytes]:
    """Return x_T and w_T for a comparison to the last bit."""
    return result.x.tobytes(), result.w.tobytes()
