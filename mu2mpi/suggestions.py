"""What the user may have meant by a name that there is none of: one near in letters, or called otherwise."""

import difflib
from collections.abc import Iterable

OTHER_WORDS = {
    "machines": "clients users workers nodes devices participants parties silos num-clients M",
    "epsilon": "eps target-epsilon privacy-budget",
    "rounds": "iterations iters steps max-steps epochs num-rounds T",
    "eta-scale": "learning-rate lr step-size stepsize eta",
    "clip-norm": "clip clipping clipping-norm clipping-threshold max-grad-norm l2-norm-clip C",
    "diameter": "radius ball D",
    "batch": "batch-size minibatch minibatch-size K",
    "l2": "weight-decay regularization regularisation lambda",
    "budgets": "privacy-budgets",
    "colluders": "corrupted adversaries c",
    "data": "dataset input",
    "data-seed": "split-seed",
    "seed": "random-state random-seed",
    "labels": "target targets label-column",
    "test": "test-set test-size validation test-data",
    "loss": "objective-function criterion model",
    "method": "algorithm optimizer optimiser algo",
    "partition": "split heterogeneous non-iid",
    "participation": "sampling client-fraction participation-rate",
    "normalize": "normalise scale scaling",
    "server": "trust trust-mode threat-model",
    "output": "out output-file save",
    "evaluations": "eval-every evals",
    "test-accuracy": "accuracy acc",
    "test-loss": "val-loss",
    "test-r2": "r2",
    "untrusted": "local ldp",
    "trusted": "central curator honest",
    "aggregated": "secagg secure-aggregation secure distributed",
    "shuffled": "shuffle shuffler",
    "latex": "tex",
    "softmax": "cross-entropy multinomial",
    "logistic": "logreg binary-cross-entropy bce",
    "squared": "mse least-squares linear-regression",
    "smoothed-hinge": "svm hinge",
    "numeric": "number float continuous",
    "categorical": "category nominal enum",
    "ignored": "skip drop",
}
"""What else things are called, by their names here."""

NOTES = {"radius": ", which is twice the radius", "eta-scale": ", in units of what theory allows"}
"""What is to be known of another word, or of what has other words, before one is put for the other."""

LEAST_ALIKE = 0.65
"""Of two words that may be one, misspelt: the share of letters that they have in common, as of difflib."""


def or_else(word: str, known: Iterable[str], what: str) -> str:
    """Return how a message about an unknown word ends: with what it may mean, or else all that is known."""
    there = list(known)
    return did_you_mean(word, there) or f"; the {what} are {', '.join(there)}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a question to put behind a message about an unknown word; empty if it is like nothing known."""
    own: dict[str, str] = {}
    other: dict[str, str] = {}
    bare = word.lstrip("-")
    for name in known:
        key = _plain(name.lstrip("-"))
        own[key] = name
        other |= dict.fromkeys(OTHER_WORDS.get(key, "").split(), name)
    # Letters of the paper are told apart by their case.
    said = bare if bare in other else _plain(bare)
    if said in other and said not in own:
        note = NOTES.get(said) or NOTES.get(_plain(other[said].lstrip("-")), "")
        return f"; did you mean {other[said]}{note}?"
    candidates = {_plain(key): name for key, name in other.items()} | own
    near = difflib.get_close_matches(_plain(bare), candidates, n=1, cutoff=LEAST_ALIKE)
    return f"; did you mean {candidates[near[0]]}?" if near else ""


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")
