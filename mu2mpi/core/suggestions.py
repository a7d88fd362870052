"""Suggestions for unknown names: one near in letters, or the word that this package has for it."""

import difflib
from collections.abc import Iterable

# Words of other packages, by ours
_SYNONYMS = {
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
}
_NOTES = {"radius": ", which is twice the radius", "eta-scale": ", in units of what theory allows"}


def or_else(word: str, known: Iterable[str], what: str) -> str:
    """Return the end of a message about an unknown word: what it may mean, or else all that is known."""
    there = list(known)
    return did_you_mean(word, there) or f"; the {what} are {', '.join(there)}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a question to put behind a message about an unknown word; empty if it is like nothing known."""
    said, candidates = _plain(word), {_plain(name): name for name in known}
    for key, name in list(candidates.items()):
        candidates = dict.fromkeys(_SYNONYMS.get(key, "").split(), name) | candidates
    near = difflib.get_close_matches(said, candidates, n=1, cutoff=0.65)
    if not near:
        return ""
    meant = candidates[near[0]]
    is_synonym = near[0] != _plain(meant)
    note = _NOTES.get(near[0], _NOTES.get(_plain(meant), "")) if is_synonym else ""
    return f"; did you mean {meant}{note}?"


def _plain(name: str) -> str:
    return name.lstrip("-").lower().replace("_", "-")
