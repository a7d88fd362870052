"""One result file in words: what ``mu2mpi show`` prints."""

import math
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mu2mpi.analysis.setting_labels import number_text, rounded_up
from mu2mpi.core.registry import find, names
from mu2mpi.core.text import as_paragraph, as_text
from mu2mpi.losses.metrics.metric import metrics
from mu2mpi.privacy.accounting.per_machine import Accounts
from mu2mpi.privacy.statement import PrivacyStatement
from mu2mpi.results.records import SCORES, Checkpoint, Diagnostics, History, Theory, checkpoint_path
from mu2mpi.results.result import Result

# Numbers of classes, machines and coefficients up to which each is listed
MAX_CLASSES, MAX_ROWS, MAX_TERMS = 20, 20, 100
# Headers of a table, with the arrays that stand below and the formats of their numbers
Columns = Mapping[str, tuple[str, Callable[[float], str]]]
_ACCOUNTS: Columns = {
    "samples": ("samples", "{:,}".format),
    "rounds": ("rounds", "{:,}".format),
    "weight": ("weight", "{:.3g}".format),
    "sigma": ("sigma", "{:.4g}".format),
    "rho allowed": ("rho_allowed", rounded_up),
    "rho": ("rho", rounded_up),
    "epsilon": ("epsilon", rounded_up),
}
_HISTORY: Columns = {
    "round": ("round", "{:,}".format),
    "samples": ("samples", "{:,}".format),
    "test loss": ("test_loss", "{:.4f}".format),
    "R2": ("test_r2", "{:.4f}".format),
    "accuracy": ("test_accuracy", "{:.1%}".format),
    "rho spent": ("rho_spent", "{:.3g}".format),
    "seconds": ("elapsed_seconds", "{:.2f}".format),
}

_METRIC_FORMATS = {"%": "{:.1%}", "1": "{:.4f}", "label": "{:.6g}"}

TEST_SHARE = (
    "Test loss and scores were computed without noise on a share of the data file: nothing protects the "
    "people in it. Do not publish these numbers, or test on a file that is public (--test FILE)."
)

KEY_GONE = (
    "No result holds the secret key of the noise, and a finished run has removed the checkpoint that did. "
    "Unless a backup or a snapshot kept a copy of that, the noise cannot be computed again, not even by you."
)


def describe(result: Result, path: Path, diagnostics: bool = False) -> str:
    """Say what a file holds, in paragraphs for a terminal; on request also what no guarantee covers."""
    privacy = [describe_privacy(result.privacy, result.accounts)]
    privacy += [as_paragraph(f"WARNING: {TEST_SHARE}")] * lists_tests(result)
    if result.privacy.has_lost_key and (checkpoint := checkpoint_path(path)).exists():
        # A kill after the result was written, and before the checkpoint was removed.
        warning = f"WARNING: {checkpoint} is still there and may hold the key of this noise. Remove it."
        privacy.append(as_paragraph(warning))
    sections = {
        "Experiment": _experiment(result),
        "Test samples by class": _by_class(result),
        "History": _history(result.history, result.labels),
        "Privacy": "\n".join(privacy),
        "Theory": _theory(result.theory, " (nats)" * (result.unit == "nat")),
        "Diagnostics": _diagnostics(result.diagnostics, path, diagnostics),
        "Time in seconds": _timing(result),
        "Where it ran": _pairs(result.environment.items()),
        "To repeat it": _repeat(result),
    }
    return _titled(path, sections)


def describe_coefficients(result: Result, path: Path) -> str:
    """Say what a model adds up in the columns' own units, and what of it may be noise."""
    found = result.coefficients()
    last = len(found.terms) - 1
    largest = np.argsort(-np.abs(result.x[:, :-1]).max(axis=0), kind="stable")[:MAX_TERMS]
    numbers = np.vstack([found.values, found.errors]).T
    lines = [[found.terms[k], *(f"{v:.4g}" for v in numbers[k])] for k in sorted({*largest.tolist(), last})]
    notes = list(found.notes)
    if len(lines) <= last:
        notes.append(f"These are the {MAX_TERMS} features of {last:,} with the largest coefficients.")
    table = as_text(["", *found.rows, "standard error"], [lines])
    return "\n\n".join([str(path), table, "\n".join(map(as_paragraph, notes))])


def describe_checkpoint(checkpoint: Checkpoint, path: Path) -> str:
    """Progress of a run at its last checkpoint, without its sums, its key and its digest of the data."""
    done, rounds = checkpoint.rounds_done, checkpoint.experiment.rounds or 0
    history, labels = checkpoint.history, find("losses", checkpoint.experiment.loss).labels
    sections = {
        "Not finished": f"{done:,} of {rounds:,} rounds in {checkpoint.elapsed_seconds:.0f} seconds; "
        "the same command goes on from here",
        "Experiment": _pairs(checkpoint.experiment.settings().items()),
        "History": _history(history, labels) if len(history) else "nothing measured yet",
    }
    return _titled(path, sections)


def _titled(path: Path, sections: Mapping[str, str]) -> str:
    """Return a file's name, and all sections that say something."""
    said = [f"{title}\n{textwrap.indent(text, '  ')}" for title, text in sections.items() if text]
    return "\n\n".join([str(path), *said])


def describe_privacy(privacy: PrivacyStatement, accounts: Accounts | None = None) -> str:
    """Say in sentences what the messages of a run, or of its machines, reveal at most, and to whom."""
    mechanism, concerns = privacy.mechanism, privacy.concerns(accounts)
    if not privacy.is_noisy:
        return as_paragraph(" ".join(concern.full for concern in concerns))
    exactly = rounded_up(privacy.epsilon_exact)
    claim = (
        f"what is seen is (epsilon, delta)-private with epsilon = {exactly} at delta = {privacy.delta:g}, "
        f"{mechanism.words}"
    )
    if privacy.rho is not None:
        claim = (
            f"the Renyi divergence of what is seen is at most a rho^2/2 at every order a > 1, with rho = "
            f"{rounded_up(privacy.rho)}. At delta = {privacy.delta:g} this is epsilon = "
            f"{rounded_up(privacy.epsilon)} by the paper's lemma, and epsilon = {exactly} exactly."
        )
    together = f"what {mechanism.parts:,} of {mechanism.machines:,} machines draw together"
    paragraphs = [
        f"{privacy.who} learns at most this about any one sample: "
        f"when one sample of one machine is replaced ({privacy.adjacency}), {claim}",
        f"Increments were clipped to norm {mechanism.clip_norm:.6g} (bound S = {privacy.S:.6g}); each "
        f"coordinate of the noise has standard deviation {mechanism.sigma:.6g} in "
        f"{'each draw' if mechanism.parts == 1 else together}{mechanism.noise_words}, on a grid of "
        f"{mechanism.resolution:.3g}. "
        f"Of epsilon, {rounded_up(privacy.epsilon_sampler)} is for draws that are not quite exact.",
        KEY_GONE * privacy.has_lost_key,
        mechanism.price,
        trusted(privacy.server),
        *(f"WARNING: {concern.full}" for concern in concerns),
    ]
    machines = [] if accounts is None else [_machines(accounts)]
    return "\n".join([*map(as_paragraph, filter(None, paragraphs)), *machines])


def by_epsilon(accounts: Accounts) -> NDArray[np.int64]:
    """Return the numbers of all machines, those about whose samples most is told first."""
    return np.lexsort((-accounts.rounds, -np.nan_to_num(accounts.rho), -accounts.epsilon))


def _machines(accounts: Accounts) -> str:
    """Say how many machines there are, and what each spends about which most is told."""
    order, away = by_epsilon(accounts)[:MAX_ROWS], np.sum(accounts.rounds == 0)
    said = (
        "Machines differ, and this is about those of which most is told. There are "
        f"{len(accounts.rounds):,}, and {away:,} never take part. Below are those of which most is told:"
    )
    machines = [accounts.names[i] for i in order.tolist()]
    return f"{as_paragraph(said)}\n{_table(accounts, _ACCOUNTS, order, machine=machines)}"


def trusted(server: str) -> str:
    """Say who has to be trusted, if anybody has."""
    trusts = find("servers", server).trusts if server in names("servers") else ""
    return f"Who has to be trusted ({server} server): {trusts}." if trusts else ""


def in_brief(privacy: PrivacyStatement, accounts: Accounts | None = None) -> str:
    """Say in a line what a run guarantees, and why that may be less than it looks."""
    but = "; ".join(c.brief for c in privacy.concerns(accounts))
    if not privacy.is_noisy:
        return f"privacy: none ({but})"
    rho = "" if privacy.rho is None else f", rho = {rounded_up(privacy.rho)}"
    helped = "" if privacy.colluders is None else f" with c = {privacy.colluders:,}"
    return (
        f"privacy of {privacy.unit} ({privacy.adjacency}), {privacy.server} server{helped}: epsilon = "
        f"{rounded_up(privacy.epsilon_exact)} at delta = {privacy.delta:g}{rho}{'; but ' if but else ''}{but}"
    )


def in_numbers(rho: float | None, exactly: float, lemma: float, account: str) -> list[str]:
    """Return a claim's rho, epsilon exactly (by the mechanism's account) and by the lemma, for a table."""
    if rho is None:
        return ["none", f"{rounded_up(exactly)} ({account})", "–"]
    return [rounded_up(rho), rounded_up(exactly), rounded_up(lemma)]


def lists_tests(result: Result) -> bool:
    """Return whether a file holds test results of people whom nothing protects."""
    return result.tests_on_a_share and result.history.has_losses


def _experiment(result: Result) -> str:
    """Return settings, model and labels, and the loss, the score and all other measures of the output."""
    rows, features = result.x.shape
    facts = [
        *result.experiment.settings().items(),
        ("model", f"{rows} row{'s' if rows > 1 else ''} x {features:,} features (bias included)"),
    ]
    if result.label_range is not None:
        low, high = map(number_text, result.label_range)
        facts.append(("label", f"a number from {low} to {high}"))
    elif result.class_names is not None:
        more = ["..."] * (result.classes > MAX_CLASSES)
        facts.append(("classes", ", ".join([*result.class_names[:MAX_CLASSES], *more])))
    history, score = result.history, SCORES[result.labels]
    unit = " nats" * (result.unit == "nat")
    facts.append(("final test loss", _text(history.test_loss[-1], f"{{:.4f}}{unit}".format)))
    measures = {score.removeprefix("test_"): getattr(history, score)[-1], **result.metrics}
    known = metrics()
    for name, value in measures.items():
        style = _METRIC_FORMATS[known[name].unit] if name in known else "{:.4g}"
        facts.append((f"final test {metric_words(name)}", _text(value, style.format)))
    return _pairs(facts)


def metric_words(name: str) -> str:
    """Return the long name of a metric of a result file, with its unit; its name if it is not known here."""
    if (metric := metrics().get(name)) is None:
        return name.replace("_", " ")
    return metric.long_name + " (in the label's units)" * (metric.unit == "label")


def _by_class(result: Result) -> str:
    """Return how many samples of each class there are, how many of them are recognised, and what else not."""
    if result.confusion is None or result.classes > MAX_CLASSES:
        return ""
    names, lines = result.names_of_classes, []
    for k, taken in enumerate(result.confusion):
        there, wrong = taken.sum(), np.delete(taken, k)
        other, most = np.delete(names, k)[np.argmax(wrong)], wrong.max()
        accuracy = f"{taken[k] / there:.1%}" if there else "none"
        lines.append([names[k], f"{there:,}", accuracy, f"{other} ({most:,})" if most else ""])
    return as_text(["class", "samples", "accuracy", "most often taken for"], [lines])


def _history(history: History, labels: str) -> str:
    """Return the first, the last and some rows between them, evenly spread over the evaluations."""
    chosen = np.unique(np.linspace(0, len(history) - 1, 8).round().astype(int))
    left_out = {*SCORES.values()} - {SCORES[labels]}
    shown = {title: column for title, column in _HISTORY.items() if column[0] not in left_out}
    return _table(history, shown, chosen)


def _table(source: object, columns: Columns, at: NDArray[np.int64], **first: Sequence[str]) -> str:
    """Return some places of arrays as a table, behind a first column."""
    texts = first | {
        title: [_text(value, style) for value in getattr(source, name)[at].tolist()]
        for title, (name, style) in columns.items()
    }
    return as_text([*texts], [list(zip(*texts.values(), strict=True))])


def _text(value: float, style: Callable[[float], str]) -> str:
    return "none" if math.isnan(value) else style(value)


def _theory(theory: Theory | None, unit: str) -> str:
    """Return measured excess loss and bound side by side, and what the excess is measured from."""
    if theory is None:
        return ""
    applies = not math.isnan(theory.excess_loss_bound)
    bound = f"{theory.excess_loss_bound:.4g}" if applies else "none"
    if math.isnan(theory.minimum_loss):
        return as_paragraph(
            f"The theorem's bound on the excess loss{unit}: {bound}. The model is too large to "
            "search for the smallest loss in the ball, so the excess loss was not measured."
        )
    scope = "The theorem bounds the expected excess loss on fresh samples for every problem with the same "
    scope += "constants."
    if not applies:
        scope = (
            "The theorem says nothing of this run: it is about the paper's method with machines that are "
            "alike and all there, increments that are not clipped to less than S, and the learning rate of "
            "the theorem."
        )
    row = [f"excess loss{unit}", f"{theory.excess_loss:.4g}", bound]
    smallest = f"{theory.minimum_loss:.6f} (or up to {rounded_up(theory.minimum_gap)} less)"
    note = f"Measured from the smallest test loss in the ball, {smallest}. {scope}"
    return f"{as_text(['', 'measured', 'theorem: at most'], [[row]])}\n{as_paragraph(note)}"


def _diagnostics(diagnostics: Diagnostics | None, path: Path, asked_for: bool) -> str:
    if diagnostics is None:
        return "This file holds none." if asked_for else ""
    if not asked_for:
        return as_paragraph(
            "This file holds some, computed from the private data and not covered by the guarantee. To see "
            f"them: mu2mpi show --diagnostics {path}; to write a file without them: mu2mpi publish."
        )
    return as_paragraph(
        f"Largest increment norm {diagnostics.largest_increment_norm:.4g}; "
        f"{diagnostics.clipped_share:.3%} of the increments were clipped. These two numbers are computed "
        "from the private data and are not covered by the guarantee: do not publish them with it."
    )


def _timing(result: Result) -> str:
    phases = {phase: seconds for phase, seconds in result.timing.items() if len(seconds)}
    if not phases:
        return ""
    phases["all phases"] = np.sum([*phases.values()], axis=0)
    rows = [[phase, f"{np.mean(each):.3f}", f"{np.max(each):.3f}"] for phase, each in phases.items()]
    return as_text(["phase", "mean over ranks", "slowest rank"], [rows])


def _repeat(result: Result) -> str:
    text = "Save these lines as experiment.toml and run: mu2mpi run --config experiment.toml"
    if result.experiment.seed is None:
        text += " (without a seed the noise will differ)"
    return f"{as_paragraph(text)}\n\n{result.experiment.to_toml().strip()}"


def _pairs(facts: Collection[tuple[str, object]]) -> str:
    width = max((len(name) for name, _ in facts), default=0)
    return "\n".join(f"{name.ljust(width)}  {' '.join(number_text(value).split())}" for name, value in facts)
