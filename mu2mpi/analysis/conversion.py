"""rho, epsilon and delta from each other: what ``mu2mpi privacy --rho 4 --delta 1e-5`` prints."""

import math
from collections.abc import Mapping

from mu2mpi.analysis.settings import number_text
from mu2mpi.analysis.words import rounded_down, rounded_up
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.text import as_bullets, as_paragraph, as_text
from mu2mpi.privacy.accounting import gaussian
from mu2mpi.privacy.statement import ADJACENCY, size_concerns

DELTA = float(Experiment.model_fields["delta"].default)


def convert(given: Mapping[str, float]) -> str:
    """Say what two of rho, epsilon and delta make the third, with epsilon for other deltas, and n samples."""
    samples = int(given["samples"]) if "samples" in given else None
    if samples is not None and not 1 <= samples < 2**63:
        raise InputError(f"samples = {samples} should be at least 1, and less than 2^63")
    # One by one, since an experiment has either rho or epsilon.
    names = [name for name in ("rho", "epsilon", "delta") if name in given]
    numbers = {name: float(getattr(Experiment.make({name: given[name]}), name)) for name in names}
    if len(numbers) == 3 or not numbers.keys() & {"rho", "epsilon"}:
        raise InputError(
            "give --rho, or --epsilon, or two of --rho, --epsilon and --delta, which make the third"
        )
    if math.inf in (numbers.get("rho"), numbers.get("epsilon")):
        return "This is a run without noise: there is no privacy guarantee at all."
    rho, epsilon, delta = numbers.get("rho"), numbers.get("epsilon"), numbers.get("delta", DELTA)
    stated, exactly = "" if epsilon is None else number_text(epsilon), "exactly"
    if rho is None:
        rho, epsilon = Experiment.make({"epsilon": epsilon, "delta": delta}).rho, epsilon or 0.0
        exactly = "the largest rho with a 512th of both left to the draws of its noise"
        found, lemma = str(delta), f"rho would be {rounded_down(gaussian.rho_paper(epsilon, delta))}"
    elif epsilon is None:
        epsilon = gaussian.epsilon_exact(rho, delta)
        stated, found = rounded_up(epsilon), str(delta)
        lemma = f"epsilon would be {rounded_up(gaussian.epsilon_paper(rho, delta))}"
    else:
        delta = gaussian.gaussian_delta(epsilon, rho)
        found, lemma = rounded_up(delta), f"delta would be {rounded_up(gaussian.delta_paper(rho, epsilon))}"
    words = (
        f"rho = {number_text(rho)} is (epsilon, delta)-DP with epsilon = {stated} and delta = {found}, "
        f"{exactly}. By the paper's lemma {lemma}."
    )
    deltas = sorted({*(float(f"1e-{k}") for k in range(3, 13)), numbers.get("delta", 1e-3)}, reverse=True)
    rows = [
        [
            rounded_up(d),
            rounded_up(gaussian.epsilon_exact(rho, d)),
            rounded_up(gaussian.epsilon_paper(rho, d)),
        ]
        for d in deltas
    ]
    meaning = (
        f"Neighbours differ in one sample of one machine, which is replaced ({ADJACENCY}). For every order "
        f"a > 1 their Renyi divergence is at most a rho^2/2 = {rounded_up(rho * rho / 2)} a."
    )
    remarks = [concern.full for concern in size_concerns(epsilon, delta, samples)]
    if samples is None:
        remarks.append("delta has to be far below 1/n for n samples; --samples N compares.")
    table = as_text(["delta", "epsilon, exactly", "by the paper's lemma"], [rows])
    return "\n\n".join([as_paragraph(words), table, as_paragraph(meaning), as_bullets(remarks)]).rstrip()
