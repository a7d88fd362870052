"""The practical mode: settings beyond the theorems that learn more, chosen from public quantities alone."""

import math
from typing import Any

from mu2mpi.config.experiment import Experiment

__all__ = ["chosen_by_preset", "with_preset"]

CLIP_NORM = 0.75
"""About the norm of an increment of samples of norm 1 while a model is being learned, and half of G."""

DIAMETER = 200.0
"""So wide that the ball hardly matters."""

NOISE = 1.5
"""Standard deviation of the noise that each weight of w_T gathers over all rounds, were there no ball. That
of logits is the same, since samples have norm 1."""

PER_MACHINE = 16.0
"""Largest learning rate for each machine, in units of 1/(4LT), however little noise there is: beyond it, w
follows single samples."""


def chosen_by_preset(experiment: Experiment) -> dict[str, Any]:
    """Return the settings that the preset chooses, as they are where nothing else is asked for.

    They depend on M, rho, the server and a clipping norm of the user's, never on data. The step size makes
    the noise of w_T, eta sigma sqrt(T) for the average over machines, the same in all runs: it is the first
    term of the theorem's min(rho D N / (2 C T sqrt(d)), 1/(4LT)) with `NOISE` for D / sqrt(d), where N is
    sqrt(M) for the untrusted and M for the trusted server.

    Parameters
    ----------
    experiment : Experiment
        With M filled in.

    Returns
    -------
    dict
        Empty without a preset.
    """
    if experiment.preset is None or experiment.machines is None:
        return {}
    machines = experiment.machines
    shared = machines if experiment.server == "trusted" else math.sqrt(machines)
    clip_norm = experiment.clip_norm or CLIP_NORM
    eta_scale = min(NOISE * experiment.rho * shared / clip_norm, PER_MACHINE * machines)
    # Rounded, so that all processors agree.
    return {
        "normalize": "unit",
        "clip_norm": CLIP_NORM,
        "diameter": DIAMETER,
        "eta_scale": float(f"{eta_scale:.4g}"),
    }


def with_preset(experiment: Experiment) -> Experiment:
    """Return the experiment with what its preset chooses filled in, but for what was set explicitly.

    All is explicit then: the result repeats the run even where a later version chooses differently.
    """
    chosen = chosen_by_preset(experiment)
    return experiment.model_copy(
        update={name: value for name, value in chosen.items() if name not in experiment.model_fields_set}
    )
