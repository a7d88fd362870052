"""In what two experiments are the same, and where they differ."""

from collections.abc import Collection
from typing import Any

from mu2mpi.config.experiment import Experiment
from mu2mpi.config.options import option_fields
from mu2mpi.core.registry import find
from mu2mpi.data.facts import PublicFacts


def sent(experiment: Experiment) -> Experiment:
    """Return an experiment without the settings that change no message and no noise."""
    presets = find("methods", experiment.method).presets
    unsent = "seed", "evaluations", "strict", "data_is_public", *presets, *experiment.trust.unsent
    changes: dict[str, Any] = dict.fromkeys(unsent)
    if find("mechanisms", experiment.chosen_mechanism).spends == "rho":
        changes |= {"rho": experiment.rho, "epsilon": None}
        # Budgets may be stated as epsilons, of which delta makes rhos.
        changes |= {"delta": None} if experiment.budgets is None else {}
    return experiment.derived(**changes)


def simulated(experiment: Experiment) -> str:
    """Say what is sent: the protocol, or what stands for it."""
    return experiment.noise or experiment.trust.simulates(experiment.server_options)


def following(experiment: Experiment, facts: PublicFacts | None) -> dict[str, Any]:
    """Return the settings that a preset or the server chooses where nothing else is given."""
    usual = type(experiment.server_options)()
    by_server = {**usual.model_dump(), **experiment.trust.complete(usual, experiment.machines or 1)}
    return {**experiment.by_preset(facts), **by_server}


def filled(experiment: Experiment, facts: PublicFacts | None = None, **sizes: Any) -> Experiment:
    """Return an experiment with sizes, and with what its preset chooses but for what was set explicitly."""
    sizes = {name: value for name, value in sizes.items() if value is not None}
    sized = experiment.derived(**sizes)
    chosen = {name: value for name, value in sized.by_preset(facts).items() if name not in sized.given}
    return experiment.having(**chosen, **sizes)


def difference(one: Experiment, other: Experiment, but: Collection[str] = ()) -> str | None:
    """Say in words which setting differs first, but for some, or return None if none does."""
    for name in (name for name in option_fields() if name not in but):
        values = getattr(one, name), getattr(other, name)
        if values[0] != values[1]:
            mine, theirs = ("unset" if value is None else value for value in values)
            return f"{name} is {mine} here and {theirs} there"
    return None
