"""Which settings do not go together, whatever the method."""

from typing import Any

from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import find, names

OF_MACHINES = ("participation", "objective", "budgets")  # by which machines differ, or are away


def machines_differ(asked: Any) -> bool:
    """Return whether machines differ, or may be away, by any option."""
    return any(getattr(asked, name) is not None for name in OF_MACHINES)


def check_together(asked: Any) -> None:
    """Raise InputError for settings that do not go together; the message says what would."""
    asked.source.check(asked, asked.source_options)
    if asked.norm_bound is not None and asked.normalize == "unit":
        raise InputError("norm_bound bounds samples of which normalize = unit makes the norm 1; give one")
    if asked.noise == "aggregate" and asked.trust.hides_sums:
        raise InputError("noise = aggregate is for server = untrusted: others have noise for sums already")
    if asked.trust.mechanism not in (None, asked.chosen_mechanism):
        raise InputError(
            f"mechanism = {asked.chosen_mechanism} is not for server = {asked.server}, which has "
            f"{asked.trust.mechanism} noise; leave --mechanism out, or choose another server"
        )
    if find("mechanisms", asked.chosen_mechanism).belongs and asked.trust.mechanism is None:
        having = [name for name in names("servers") if find("servers", name).mechanism == asked.mechanism]
        raise InputError(
            f"mechanism = {asked.mechanism} belongs to server = {' or '.join(having)}, and the server is "
            f"{asked.server}; leave it out, or choose another server"
        )
    if given := [name for name in OF_MACHINES if getattr(asked, name) is not None]:
        _check_machines(asked, given[0])
    elif asked.participation_seed is not None:
        raise InputError("participation_seed decides which machines are away; give it with --participation")


def _check_machines(asked: Any, name: str) -> None:
    """Refuse what machines that differ, by one of the options, cannot have."""
    what = f"{name} = {getattr(asked, name)}"
    method, kind = asked.chosen_method, find("mechanisms", asked.chosen_mechanism)
    preset: Any = asked.preset
    if not asked.trust.takes_absence:
        raise InputError(
            f"{what}: server = {asked.server} is for machines that are alike and all there, since noise of "
            "each is a part of that which hides the others; leave it out, or choose another server"
        )
    if not method.takes_absence:
        raise InputError(
            f"{what}: method = {method.name} does not say what becomes of machines that are away or "
            "differ; choose another method (docs/guides/federations.md), or leave it out"
        )
    if asked.noise == "aggregate":
        raise InputError(f"{what} and noise = aggregate: one draw for all is for machines that are the same")
    if preset is not None and not method.preset_knows_absence:
        raise InputError(
            f"{what} and preset = {preset}: the steps of method = {method.name} would be for machines that "
            "are all there; take method = mu2-sgd, or give --clip-norm, --diameter and --eta-scale"
        )
    if asked.budgets is not None and (kind.spends != "rho" or not kind.shows_messages):
        raise InputError(
            f"{what}: mechanism = {kind.name} has one account for all machines; leave budgets out, or choose "
            "a method with gaussian or correlated noise"
        )
