"""Suggestions in messages about unknown names: similar names, and synonyms used by other packages."""

import difflib
from collections.abc import Iterable

_NAME_SYNONYMS = {  # Synonyms used by other packages, by the name in this package
    "machines": "clients users workers nodes participants parties silos num-clients",
    "epsilon": "eps target-epsilon privacy-budget",
    "rounds": "iterations iters steps max-steps epochs num-rounds",
    "eta-scale": "learning-rate lr step-size eta",
    "clip-norm": "clip clipping-norm max-grad-norm l2-norm-clip",
    "diameter": "radius ball",
    "batch": "batch-size minibatch-size",
    "l2": "weight-decay regularization lambda",
    "method": "algorithm optimizer",
    "server": "trust-mode threat-model",
    "aggregated": "secagg secure-aggregation",
    "test-accuracy": "accuracy acc",
    "test-loss": "val-loss",
    "dry-run": "list",
}
_SYNONYM_HINTS = {"radius": ", which is twice the radius", "eta-scale": ", in units of what theory allows"}


def one_of(names: Iterable[str]) -> str:
    """Phrase for a choice among names: "a", "a or b", "one of a, b, c"."""
    listed = list(names)
    return f"one of {', '.join(listed)}" if len(listed) > 2 else " or ".join(listed)


def should_be_one_of(unknown: str, known: Iterable[str]) -> str:
    """Phrase of an error message on a value that is no known name: all known names and the most similar."""
    names = list(known)
    return f"should be {one_of(names)}{did_you_mean(unknown, names)}"


def suggest_setting(unknown: str, known: Iterable[str]) -> str:
    """Suffix of an error message on an unknown setting: the most similar one, or a command that lists all."""
    return did_you_mean(unknown, known) or "; `mu2mpi run --help all` lists all settings"


def suggest_or_list(unknown: str, known: Iterable[str], noun: str) -> str:
    """Suffix of an error message on an unknown name: the most similar known name, or else all known names."""
    names = list(known)
    return did_you_mean(unknown, names) or f"; the {noun} are {', '.join(names)}"


def did_you_mean(unknown: str, known: Iterable[str]) -> str:
    """Suffix of an error message on an unknown name: "; did you mean NAME?", or "" without a similar name."""
    candidates = {_normalise_name(name): name for name in known}
    for key, name in list(candidates.items()):
        candidates = dict.fromkeys(_NAME_SYNONYMS.get(key, "").split(), name) | candidates
    matches = difflib.get_close_matches(_normalise_name(unknown), candidates, n=1, cutoff=0.65)
    if not matches:
        return ""
    suggestion = candidates[matches[0]]
    synonym, name = matches[0], _normalise_name(suggestion)
    note = _SYNONYM_HINTS.get(synonym, _SYNONYM_HINTS.get(name, "")) if synonym != name else ""
    return f"; did you mean {suggestion}{note}?"


def _normalise_name(name: str) -> str:
    return name.lstrip("-").lower().replace("_", "-")
