"""The ledgers of results: every claim of privacy computed again, and what is not private about it."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from mu2mpi.analysis.formats import as_bullets, as_paragraph, as_text
from mu2mpi.analysis.show import TEST_SHARE, rounded_up, who_sees
from mu2mpi.analysis.together import Release, together
from mu2mpi.errors import InputError
from mu2mpi.methods.snowball import growth_of
from mu2mpi.privacy.accountant import rho_of
from mu2mpi.privacy.ledger import (
    ADJACENCY,
    ALL_RELEASES,
    LAST_ITERATE,
    UNIT,
    PrivacyStatement,
    agree,
    concerns,
    mismatches,
    releases,
    samples_used,
)
from mu2mpi.results.collection import find_files, shown
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
    """Check what results claim of their privacy.

    Parameters
    ----------
    paths : iterable of Path
        Files, and folders of them.

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
    paths = list(paths)
    files, unlisted = find_files(paths)
    if unlisted or not files:
        raise InputError("\n".join(unlisted) or f"no results in {', '.join(map(str, paths))}")
    results = [(path, read_result(path)) for path in shown(files, "reading")]
    found = [(path, contradictions(result)) for path, result in results]
    problems = [f"{path}: {problem}" for path, of_file in found for problem in of_file]
    rows = [
        _row(path, result, not of_file) for (path, result), (_, of_file) in zip(results, found, strict=True)
    ]
    header = ["file", "server", "rho", "delta", "epsilon, exactly", "by the paper's lemma", "computed again"]
    kinds = {(result.privacy.server, result.privacy.protects): result.privacy for _, result in results}
    said = [] if problems else together(Release.of(path, result) for path, result in results)
    parts = [
        as_text(header, [rows]),
        *(as_paragraph(f"{server.capitalize()} server: {_who(kinds[server, _])}") for server, _ in kinds),
        as_paragraph(MEANING),
        *(as_paragraph(f"Together: {sentence}") for sentence in said),
        as_bullets(_remarks(results)),
    ]
    return "\n\n".join(part for part in parts if part), problems


def _who(privacy: PrivacyStatement) -> str:
    return f"{who_sees(privacy)} learns at most this about {UNIT} ({ADJACENCY})."


def _row(path: Path, result: Result, holds: bool) -> list[str]:
    privacy = result.privacy
    rho, epsilon, lemma, delta = map(
        rounded_up, (privacy.rho, privacy.epsilon_exact, privacy.epsilon, privacy.delta)
    )
    if math.isnan(privacy.rho):
        # Neither column is meant then: the number is that of the run's own accountant.
        rho, epsilon, lemma = "none", f"{epsilon} ({privacy.accountant})", "–"
    verdict = "agrees" if holds else "MISMATCH"
    return [str(path), privacy.server, rho, delta, epsilon, lemma, verdict]


def contradictions(result: Result) -> list[str]:
    """Say what a file claims of its privacy that does not follow from what it holds; empty if all does.

    The claims are computed again from clipping norm, noise and rounds, and these are compared with the
    experiment, the model and the history of the same file.
    """
    return [*mismatches(result.privacy), *_with_experiment(result), *_with_history(result)]


def _with_experiment(result: Result) -> list[str]:
    privacy, experiment = result.privacy, result.experiment
    method = experiment.pieces
    promised_epsilon, promised_norm = experiment.epsilon, experiment.clip_norm
    stated: list[tuple[str, object, object]] = [
        ("server", privacy.server, experiment.server),
        ("machines", privacy.machines, experiment.machines),
        ("rounds", privacy.rounds, experiment.rounds),
        ("accountant", privacy.accountant, method.accountant),
        ("touched", privacy.touched, method.touched(privacy.rounds)),
        ("protects", privacy.protects, LAST_ITERATE if method.hides_iterates else ALL_RELEASES),
        ("delta", privacy.delta, experiment.delta),
        ("noise", privacy.noise, experiment.noise or "protocol"),
        ("noise_recomputable", privacy.noise_recomputable, experiment.seed is not None),
    ]
    if method.draws:
        drawn = (experiment.batch or 0) / (privacy.machines if experiment.method == "dp-sgd" else 1)
        if not agree(privacy.drawn, drawn):
            stated.append(("drawn", privacy.drawn, drawn))
    growth = growth_of(privacy.machines, privacy.parameters, privacy.rho) if method.hides_iterates else 0.0
    if not agree(privacy.growth, growth):
        stated.append(("growth", privacy.growth, growth))
    if promised_epsilon is None and method.draws:
        promised_epsilon = experiment.target_epsilon * (1 + 1e-9)
    if promised_epsilon is None and not agree(privacy.rho, experiment.rho):
        stated.append(("rho", privacy.rho, experiment.rho))
    if promised_epsilon is not None and privacy.epsilon_exact > promised_epsilon:
        stated.append(("epsilon_exact", privacy.epsilon_exact, f"at most {promised_epsilon}"))
    if promised_norm is not None and privacy.clip_norm > promised_norm:
        stated.append(("clip_norm", privacy.clip_norm, f"at most {promised_norm}"))
    found = [
        f"{name} is {ours} in /privacy and {theirs} in the experiment"
        for name, ours, theirs in stated
        if ours != theirs
    ]
    if privacy.parameters != result.x.size:
        found.append(f"parameters is {privacy.parameters} in /privacy, and the model has {result.x.size}")
    return found


def _with_history(result: Result) -> list[str]:
    """Return the first round by which less rho is said to be spent than was, or more; or that for samples."""
    known = not math.isnan(result.privacy.rho)
    ours, theirs = samples_used(result.privacy), int(result.history.samples[-1])
    if ours != theirs:
        return [f"{theirs:,} samples were used by /history, and {ours:,} by /privacy"]
    for t, stated in zip(result.history.round.tolist(), result.history.rho_spent.tolist(), strict=True):
        spent = rho_of(releases(result.privacy, t)) if known else math.nan
        if not agree(stated, spent):
            return [f"rho_spent by round {t} is {stated:.10g} in /history, and {spent:.10g} by the noise"]
    return []


def _remarks(results: Sequence[tuple[Path, Result]]) -> list[str]:
    """Return each concern once, with the files that it is about where it is not about all."""
    about: dict[str, list[Path]] = {}
    for path, result in results:
        texts = [concern.full for concern in concerns(result.privacy)]
        if result.experiment.tests_on_a_share and result.history.has_losses:
            texts.append(TEST_SHARE)
        if result.diagnostics is not None or result.timing:
            texts.append(NOT_COVERED)
        for text in texts:
            about.setdefault(text, []).append(path)
    return [
        text if len(paths) == len(results) else f"{_names(paths)}: {text}" for text, paths in about.items()
    ]


def _names(paths: Sequence[Path]) -> str:
    return ", ".join(map(str, paths)) if len(paths) <= 3 else f"{paths[0]} and {len(paths) - 1} more"
