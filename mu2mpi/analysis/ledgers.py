"""The ledgers of results: every claim of privacy computed again, and what is not private about it."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from mu2mpi.analysis.formats import as_bullets, as_paragraph, as_text
from mu2mpi.analysis.show import TEST_SHARE, in_numbers, lists_tests, rounded_up
from mu2mpi.analysis.together import Release, together
from mu2mpi.errors import InputError
from mu2mpi.privacy.mechanisms.base import agree
from mu2mpi.privacy.mechanisms.correlated import CorrelatedNoise
from mu2mpi.privacy.statement import ADJACENCY, UNIT
from mu2mpi.results.collection import list_files, names_of, shown
from mu2mpi.results.reader import read_result
from mu2mpi.results.repetition import task_of_result
from mu2mpi.results.schema import Result

MEANING = (
    "Claims were computed again from the clipping norm, the noise and the rounds that a file states, and "
    "compared with its experiment and history."
)

NOT_COVERED = (
    "The guarantee does not cover /diagnostics and the times of a file: `mu2mpi publish` writes one without."
)


def check_ledgers(paths: Iterable[Path]) -> tuple[str, list[str]]:
    """Return a table of what results claim of their privacy, with what is not private about them.

    Also, for each claim that does not hold, a line that begins with the file's name. Raises an InputError if
    there is nothing to check, or something that cannot be read: nothing is passed over.
    """
    results = [(path, read_result(path)) for path in shown(list_files(paths), "reading")]
    rows, problems, learn = [], [], []
    for path, result in results:
        found, privacy = contradictions(result), result.privacy
        problems += [f"{path}: {problem}" for problem in found]
        server, sees = privacy.server.capitalize(), privacy.mechanism.who_sees(privacy.server)
        learn.append(f"{server} server: {sees} learns at most this about {UNIT} ({ADJACENCY}).")
        account, holds = privacy.mechanism.name, "MISMATCH" if found else "agrees"
        rho, *epsilons = in_numbers(privacy.rho, privacy.epsilon_exact, privacy.epsilon, account)
        rows.append([str(path), privacy.server, rho, rounded_up(privacy.delta), *epsilons, holds])
    header = ["file", "server", "rho", "delta", "epsilon, exactly", "by the paper's lemma", "computed again"]
    said = [] if problems else together(Release.of(path, result) for path, result in results)
    sentences = [*dict.fromkeys(learn), MEANING, *(f"Together: {sentence}" for sentence in said)]
    parts = [as_text(header, [rows]), *map(as_paragraph, sentences), as_bullets(_remarks(results))]
    return "\n\n".join(part for part in parts if part), problems


def contradictions(result: Result) -> list[str]:
    """Say what a file claims of its privacy that does not follow from what it holds; empty if all does.

    The claims are computed again from clipping norm, noise and rounds, and these are compared with the
    experiment, the model and the history of the same file.
    """
    privacy = result.privacy
    if found := privacy.out_of_range():
        return found
    found = [*_sizes(result), *_claims(result)]
    # How long a run is decides how long it takes to compute with.
    if privacy.mechanism.rounds == result.experiment.rounds:
        found = [*privacy.mismatches(), *found, *_with_history(result)]
    return found


def _sizes(result: Result) -> list[str]:
    """Compare what the mechanism was to hide with the experiment, the model and the history."""
    privacy, experiment, history = result.privacy, result.experiment, result.history
    mechanism, method = privacy.mechanism, result.experiment.chosen_method
    try:
        task = task_of_result(result)
        asked = method.messages(task, method.sizes(task, experiment.rounds))
    except InputError as error:
        return [f"there is no run of its experiment: {error}"]
    if not mechanism.accounts_for(asked):
        return [f"mechanism = {mechanism.name} does not account for method = {method.name}"]
    names = ("rounds", "machines", "samples", "drawn", "touched", "parameters", "clip_norm")
    pairs = {name: (getattr(mechanism, name, None), getattr(asked, name)) for name in names}
    if isinstance(mechanism, CorrelatedNoise):
        pairs |= {name: (getattr(mechanism, name), value) for name, value in mechanism.own(asked).items()}
    pairs["S"] = privacy.S, method.increment_bound(task)
    found = [
        f"{name} is {ours} in /privacy and {theirs} in the experiment"
        for name, (ours, theirs) in pairs.items()
        if ours is not None and not agree(ours, theirs)
    ]
    ours, theirs = mechanism.samples_used, int(history.samples[-1]) if len(history) else 0
    if ours != theirs:
        found.append(f"{theirs:,} samples were used by /history, and {ours:,} by /privacy")
    return found


def _claims(result: Result) -> list[str]:
    """Compare what is claimed with what the experiment asks for."""
    privacy, experiment, mechanism = result.privacy, result.experiment, result.privacy.mechanism
    stated: list[tuple[str, object, object]] = [
        ("server", privacy.server, experiment.server),
        ("mechanism", mechanism.name, experiment.chosen_mechanism),
        ("delta", privacy.delta, experiment.delta),
        ("noise", privacy.noise, experiment.noise or "protocol"),
        ("noise_recomputable", privacy.noise_recomputable, experiment.seed is not None),
    ]
    promised = experiment.promised_epsilon
    if privacy.rho is not None and experiment.epsilon is None:
        if not agree(privacy.rho, experiment.rho):
            stated.append(("rho", privacy.rho, experiment.rho))
    elif not privacy.epsilon_exact <= promised:
        stated.append(("epsilon_exact", privacy.epsilon_exact, f"at most {promised}"))
    return [
        f"{name} is {ours} in /privacy and {theirs} in the experiment"
        for name, ours, theirs in stated
        if ours != theirs
    ]


def _with_history(result: Result) -> list[str]:
    """Return the first round by which less rho is said to be spent than was, or more."""
    mechanism, history = result.privacy.mechanism, result.history
    t = history.round
    if not (t.size and t[0] > 0 and t[-1] == mechanism.rounds and np.all(np.diff(t) > 0)):
        return [f"the rounds of /history do not end with the {mechanism.rounds:,} of /privacy"]
    for t, stated in zip(history.round.tolist(), history.rho_spent.tolist(), strict=True):
        rho = mechanism.guarantee(t).rho
        if not agree(None if math.isnan(stated) else stated, rho):
            text = "none" if rho is None else f"{rho:.10g}"
            return [f"rho_spent by round {t} is {stated:.10g} in /history, and {text} by the noise"]
    return []


def _remarks(results: Sequence[tuple[Path, Result]]) -> list[str]:
    """Return each concern once, with the files that it is about where it is not about all."""
    about: dict[str, list[Path]] = {}
    for path, result in results:
        texts = [concern.full for concern in result.privacy.concerns()] + [TEST_SHARE] * lists_tests(result)
        if result.diagnostics is not None or result.timing:
            texts.append(NOT_COVERED)
        for text in texts:
            about.setdefault(text, []).append(path)
    return [
        text if len(paths) == len(results) else f"{names_of(paths, joint=', ')}: {text}"
        for text, paths in about.items()
    ]
