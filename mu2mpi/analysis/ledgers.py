"""The ledgers of results: every claim of privacy computed again, and what is not private about it."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from mu2mpi.analysis.formats import as_bullets, as_paragraph, as_text
from mu2mpi.analysis.show import TEST_SHARE, in_numbers, lists_tests, rounded_up
from mu2mpi.analysis.together import Release, together
from mu2mpi.config.task import task_of
from mu2mpi.privacy.mechanisms.base import Messages, agree
from mu2mpi.privacy.statement import ADJACENCY, UNIT
from mu2mpi.results.collection import list_files, names_of, shown
from mu2mpi.results.reader import read_result
from mu2mpi.results.schema import Result

__all__ = ["check_ledgers", "contradictions"]

MEANING = (
    "Claims were computed again from the clipping norm, the noise and the rounds that a file states, and "
    "compared with its experiment and history."
)

NOT_COVERED = (
    "The guarantee does not cover /diagnostics and the times of a file: `mu2mpi publish` writes one without."
)


def check_ledgers(paths: Iterable[Path]) -> tuple[str, list[str]]:
    """Check what results among files and folders claim of their privacy.

    Returns
    -------
    text : str
        A table of the claims, and what is not private.
    problems : list of str
        One for each claim that does not hold; begins with the file's name.

    Raises
    ------
    InputError
        If there is nothing to check, or something that cannot be read: nothing is passed over.
    """
    results = [(path, read_result(path)) for path in shown(list_files(paths), "reading")]
    rows, problems = [], []
    for path, result in results:
        found, privacy = contradictions(result), result.privacy
        problems += [f"{path}: {problem}" for problem in found]
        rho, *epsilons = in_numbers(
            privacy.rho, privacy.epsilon_exact, privacy.epsilon, privacy.mechanism.name
        )
        holds = "MISMATCH" if found else "agrees"
        rows.append([str(path), privacy.server, rho, rounded_up(privacy.delta), *epsilons, holds])
    header = ["file", "server", "rho", "delta", "epsilon, exactly", "by the paper's lemma", "computed again"]
    statements = [result.privacy for _, result in results]
    who = dict.fromkeys((each.server, each.mechanism.who_sees(each.server)) for each in statements)
    said = [] if problems else together(Release.of(path, result) for path, result in results)
    sentences = [
        *(
            f"{server.capitalize()} server: {sees} learns at most this about {UNIT} ({ADJACENCY})."
            for server, sees in who
        ),
        MEANING,
        *(f"Together: {sentence}" for sentence in said),
    ]
    parts = [as_text(header, [rows]), *map(as_paragraph, sentences), as_bullets(_remarks(results))]
    return "\n\n".join(part for part in parts if part), problems


def contradictions(result: Result) -> list[str]:
    """Say what a file claims of its privacy that does not follow from what it holds; empty if all does."""
    return [*result.privacy.mismatches(), *_with_experiment(result), *_with_history(result)]


def _with_experiment(result: Result) -> list[str]:
    privacy, experiment, mechanism = result.privacy, result.experiment, result.privacy.mechanism
    stated: list[tuple[str, object, object]] = [
        ("server", privacy.server, experiment.server),
        ("mechanism", mechanism.name, experiment.chosen_mechanism),
        ("delta", privacy.delta, experiment.delta),
        ("noise", privacy.noise, experiment.noise or "protocol"),
        ("noise_recomputable", privacy.noise_recomputable, experiment.seed is not None),
        ("parameters", mechanism.parameters, result.x.size),
    ]
    asked = _asked_of(result)
    if not mechanism.accounts_for(asked):
        return [f"mechanism = {mechanism.name} does not account for method = {experiment.chosen_method.name}"]
    for name in ("rounds", "machines", "samples", "drawn", "touched"):
        ours, theirs = getattr(mechanism, name, None), getattr(asked, name)
        if ours is not None and not agree(ours, theirs):
            stated.append((name, ours, theirs))
    promised = experiment.target_epsilon * (1 if experiment.epsilon else 1 + 1e-9)
    if privacy.rho is not None and experiment.epsilon is None:
        if not agree(privacy.rho, experiment.rho):
            stated.append(("rho", privacy.rho, experiment.rho))
    elif privacy.epsilon_exact > promised:
        stated.append(("epsilon_exact", privacy.epsilon_exact, f"at most {promised}"))
    if mechanism.clip_norm > asked.clip_norm * (1 + 1e-9):
        stated.append(("clip_norm", mechanism.clip_norm, f"at most {asked.clip_norm}"))
    return [
        f"{name} is {ours} in /privacy and {theirs} in the experiment"
        for name, ours, theirs in stated
        if ours != theirs
    ]


def _asked_of(result: Result) -> Messages:
    """Return what the mechanism of a file was to hide, by its experiment and the shape of its model."""
    experiment, (classes, features) = result.experiment, result.x.shape
    samples = result.privacy.mechanism.samples
    task = task_of(experiment, experiment.machines or 1, classes, features, samples)
    method = experiment.chosen_method
    return method.messages(task, method.sizes(task, experiment.rounds))


def _with_history(result: Result) -> list[str]:
    """Return the first round by which less rho is said to be spent than was, or more; or that for samples."""
    mechanism, history = result.privacy.mechanism, result.history
    ours, theirs = mechanism.samples_used, int(history.samples[-1])
    if ours != theirs:
        return [f"{theirs:,} samples were used by /history, and {ours:,} by /privacy"]
    for t, stated in zip(history.round.tolist(), history.rho_spent.tolist(), strict=True):
        spent = mechanism.guarantee(t)
        rho = 0.0 if spent is None else spent.rho
        if not agree(None if math.isnan(stated) else stated, rho):
            return [f"rho_spent by round {t} is {stated:.10g} in /history, and {rho} by the noise"]
    return []


def _remarks(results: Sequence[tuple[Path, Result]]) -> list[str]:
    """Return each concern once, with the files that it is about where it is not about all."""
    about: dict[str, list[Path]] = {}
    for path, result in results:
        texts = [concern.full for concern in result.privacy.concerns()]
        if lists_tests(result):
            texts.append(TEST_SHARE)
        if result.diagnostics is not None or result.timing:
            texts.append(NOT_COVERED)
        for text in texts:
            about.setdefault(text, []).append(path)
    return [
        text if len(paths) == len(results) else f"{names_of(paths, joint=', ')}: {text}"
        for text, paths in about.items()
    ]
