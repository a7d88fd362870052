"""Conversion between rho, epsilon and delta."""

import math
from collections.abc import Mapping

from mu2mpi.analysis.description import describe_tradeoff
from mu2mpi.analysis.setting_labels import format_value
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.text import bullet_list, rounded_up, text_table, wrap_paragraph
from mu2mpi.privacy.accounting import gaussian_dp
from mu2mpi.privacy.accounting.guarantee import GaussianGuarantee
from mu2mpi.privacy.accounting.tradeoff import TradeoffCurve
from mu2mpi.privacy.statement import budget_concerns

DEFAULT_DELTA = float(Experiment.model_fields["delta"].default)


def convert_budget(parameters: Mapping[str, float]) -> str:
    """Return rho, epsilon and delta, one computed from the others, as text with a table over deltas.

    With ``samples``, the number of samples of all machines, delta is compared with its inverse.
    """
    samples = int(parameters["samples"]) if "samples" in parameters else None
    if samples is not None and not 1 <= samples < 2**63:
        raise InputError(f"--samples must be at least 1 and less than 2^63, got {samples}")
    # One by one, since an experiment has either rho or epsilon.
    names = [name for name in ("rho", "epsilon", "delta") if name in parameters]
    numbers = {n: float(getattr(Experiment.from_settings({n: parameters[n]}), n)) for n in names}
    if len(numbers) == 3 or not numbers.keys() & {"rho", "epsilon"}:
        raise InputError("give --rho, --epsilon, or two of --rho, --epsilon and --delta to compute the third")
    if math.inf in (numbers.get("rho"), numbers.get("epsilon")):
        return "This is a run without noise: there is no privacy guarantee at all."
    rho, epsilon, delta = numbers.get("rho"), numbers.get("epsilon"), numbers.get("delta", DEFAULT_DELTA)
    epsilon_text, qualifier = "" if epsilon is None else format_value(epsilon), "exactly"
    if rho is None:
        rho, epsilon = Experiment.from_settings({"epsilon": epsilon, "delta": delta}).rho, epsilon or 0.0
        qualifier = "the largest rho if 1/512 of both is reserved for the error of the noise sampler"
        delta_text = str(delta)
    elif epsilon is None:
        epsilon = gaussian_dp.epsilon_exact(rho, delta)
        epsilon_text, delta_text = rounded_up(epsilon), str(delta)
    else:
        delta = gaussian_dp.gaussian_delta(epsilon, rho)
        delta_text = rounded_up(delta)
    summary = (
        f"rho = {format_value(rho)} is (epsilon, delta)-DP with epsilon = {epsilon_text} and delta = "
        f"{delta_text}, {qualifier}."
    )
    deltas = sorted({*(float(f"1e-{k}") for k in range(3, 13)), numbers.get("delta", 1e-3)}, reverse=True)
    curves = gaussian_dp.epsilon_exact, gaussian_dp.epsilon_paper
    rows = [[rounded_up(d), *(rounded_up(curve(rho, d)) for curve in curves)] for d in deltas]
    meaning = (
        "Neighbouring data sets differ in one sample of one machine, which is replaced or zeroed out, as "
        "--neighbours says; the same noise has about twice the rho for replace. The Renyi divergence "
        f"of the released values at any order a > 1 is at most a rho^2/2 = {rounded_up(rho * rho / 2)} a."
    )
    remarks = [concern.full for concern in budget_concerns(epsilon, delta, samples)]
    if samples is None:
        remarks.append("delta has to be far below 1/n for n samples. Give --samples N to compare them.")
    table = text_table(["delta", "epsilon, exactly", "by the paper's lemma"], [rows])
    tradeoff = describe_tradeoff(TradeoffCurve(GaussianGuarantee(rho)).claims())
    sentences = map(wrap_paragraph, (meaning, tradeoff))
    blocks = [wrap_paragraph(summary), table, *sentences, bullet_list(remarks)]
    return "\n\n".join(blocks).rstrip()
