"""Description of a result file or checkpoint, as ``mu2mpi show`` prints it."""

import math
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mu2mpi.analysis.setting_labels import format_value
from mu2mpi.core.arrays import IntArray
from mu2mpi.core.registry import known_names, lookup
from mu2mpi.core.text import rounded_up, text_table, wrap_paragraph
from mu2mpi.losses.metrics.metric import all_metrics
from mu2mpi.privacy.accounting.per_machine_accounts import PerMachineAccounts
from mu2mpi.privacy.accounting.tradeoff import REPORTED_RATES
from mu2mpi.privacy.statement import RELATION_EPSILONS, PrivacyStatement
from mu2mpi.results.records import SCORE_COLUMNS, Checkpoint, Diagnostics, History, Theory, checkpoint_path
from mu2mpi.results.result import Result

MAX_LISTED_CLASSES = 20  # Classes listed
MAX_LISTED_MACHINES = 20  # Unequal machines listed
MAX_COEFFICIENTS = 100  # Coefficients listed
# Columns of a table by header: attribute with the array, and format of its numbers
ColumnFormats = Mapping[str, tuple[str, Callable[[float], str]]]
_ACCOUNT_COLUMNS: ColumnFormats = {
    "samples": ("samples", "{:,}".format), "rounds": ("rounds", "{:,}".format),
    "weight": ("weight", "{:.3g}".format), "sigma": ("sigma", "{:.4g}".format),
    "rho allowed": ("rho_budget", rounded_up), "rho": ("rho", rounded_up),
    "epsilon": ("epsilon", rounded_up),
}  # fmt: skip
_HISTORY_COLUMNS: ColumnFormats = {
    "round": ("round", "{:,}".format), "samples": ("samples", "{:,}".format),
    "test loss": ("test_loss", "{:.4f}".format), "R2": ("test_r2", "{:.4f}".format),
    "accuracy": ("test_accuracy", "{:.1%}".format), "rho spent": ("rho_spent", "{:.3g}".format),
    "seconds": ("elapsed_seconds", "{:.2f}".format),
}  # fmt: skip
_METRIC_FORMATS = {"%": "{:.1%}", "1": "{:.4f}", "label": "{:.6g}"}
PRIVATE_TEST_WARNING = (
    "Test loss and scores were computed without noise on a share of the data file, whose people nothing "
    "protects. Do not publish these numbers, or test on a public file (--test FILE)."
)
KEY_DISCARDED_NOTE = (
    "No result file has the secret noise key, and the checkpoint with it was removed at the end of the run. "
    "Without a backup or snapshot of the checkpoint, nobody can recompute the noise, including you."
)


def describe_result(result: Result, path: Path, diagnostics: bool = False) -> str:
    """Return the content of a result file as text for a terminal, optionally with the diagnostics."""
    privacy = [describe_privacy(result.privacy, result.accounts)]
    privacy += [wrap_paragraph(f"WARNING: {PRIVATE_TEST_WARNING}")] * has_private_test_results(result)
    if result.privacy.is_key_discarded and (checkpoint := checkpoint_path(path)).exists():
        # The run was killed between writing the result and removing the checkpoint.
        warning = f"WARNING: {checkpoint} is still there and may have the key of this noise. Remove it."
        privacy.append(wrap_paragraph(warning))
    sections = {
        "Experiment": _experiment_section(result),
        "Test samples by class": _accuracy_by_class(result),
        "History": _history_table(result.history, result.label_kind),
        "Privacy": "\n".join(privacy),
        "Theory": _theory_section(result.theory, " (nats)" * (result.loss_unit == "nat")),
        "Diagnostics": _diagnostics_section(result.diagnostics, path, diagnostics),
        "Time in seconds": _timing_table(result),
        "Cost": _cost_section(result.cost),
        "Where it ran": format_named_values(result.environment.items()),
        "To repeat it": _repeat_command(result),
    }
    return _join_sections(path, sections)


def describe_coefficients(result: Result, path: Path) -> str:
    """Return a table of a model's coefficients in the units of the data."""
    coefficients = result.coefficients()
    last = len(coefficients.terms) - 1
    largest = np.argsort(-np.abs(result.x[:, :-1]).max(axis=0), kind="stable")[:MAX_COEFFICIENTS]
    shown = sorted({*largest.tolist(), last})
    rows = [[coefficients.terms[k], *(f"{v:.4g}" for v in coefficients.values[:, k])] for k in shown]
    notes = list(coefficients.notes)
    if len(rows) <= last:
        notes.append(f"Shown are the {MAX_COEFFICIENTS} of {last:,} features with the largest coefficients.")
    table = text_table(["", *coefficients.row_names], [rows])
    return "\n\n".join([str(path), table, "\n".join(map(wrap_paragraph, notes))])


def describe_checkpoint(checkpoint: Checkpoint, path: Path) -> str:
    """Return the progress of a run at its last checkpoint, without its sums, noise key and data digest."""
    done, rounds = checkpoint.rounds_done, checkpoint.experiment.rounds or 0
    history, label_kind = checkpoint.history, lookup("losses", checkpoint.experiment.loss).label_kind
    sections = {
        "Not finished": f"{done:,} of {rounds:,} rounds in {checkpoint.elapsed_seconds:.0f} seconds; "
        "the same command resumes the run",
        "Experiment": format_named_values(checkpoint.experiment.settings().items()),
        "History": _history_table(history, label_kind) if len(history) else "no evaluation yet",
    }
    return _join_sections(path, sections)


def _join_sections(path: Path, sections: Mapping[str, str]) -> str:
    blocks = (f"{title}\n{textwrap.indent(text, '  ')}" for title, text in sections.items() if text)
    return "\n\n".join([str(path), *blocks])


def describe_privacy(privacy: PrivacyStatement, accounts: PerMachineAccounts | None = None) -> str:
    """Return the privacy guarantee of a run in sentences: adversary, parameters, noise and concerns."""
    mechanism, concerns = privacy.mechanism, privacy.concerns(accounts)
    if not privacy.is_noisy:
        return wrap_paragraph(" ".join(concern.full for concern in concerns))
    exact, accounting = rounded_up(privacy.epsilon_exact), (privacy.selection or mechanism).accounting_note
    claim = f"(epsilon, delta)-DP: epsilon = {exact} at delta = {privacy.delta:g}, {accounting}"
    if privacy.rho is not None:
        claim = (
            f"a Renyi divergence of at most a rho^2/2 at every order a > 1, with rho = "
            f"{rounded_up(privacy.rho)}. At delta = {privacy.delta:g} this is epsilon = "
            f"{rounded_up(privacy.epsilon)} by the paper's lemma, and epsilon = {exact} exactly."
        )
    noise_sum = f"the sum of the noise of {mechanism.noise_shares:,} of {mechanism.machines:,} machines"
    paragraphs = [
        f"{privacy.adversary} learns at most this about any {privacy.privacy_unit} (neighbours = "
        f"{privacy.neighbours}): {claim}",
        relation_comparison(privacy),
        describe_tradeoff(privacy.comparisons),
        f"Increments were clipped to norm {mechanism.clip_norm:.6g} (bound S = {privacy.S:.6g}); each "
        f"coordinate of the noise has standard deviation {mechanism.sigma:.6g} in "
        f"{'each draw' if mechanism.noise_shares == 1 else noise_sum}{mechanism.noise_description}, "
        f"on a grid of {mechanism.grid_spacing:.3g}. "
        f"Of epsilon, {rounded_up(privacy.epsilon_sampler)} covers the error of the noise sampler.",
        KEY_DISCARDED_NOTE * privacy.is_key_discarded,
        mechanism.communication_note,
        trust_statement(privacy.server),
        *(f"WARNING: {concern.full}" for concern in concerns),
    ]
    machines = [] if accounts is None else [_accounts_table(accounts)]
    return "\n".join([*map(wrap_paragraph, filter(None, paragraphs)), *machines])


def relation_comparison(privacy: PrivacyStatement) -> str:
    """Return a sentence with epsilon for both neighbouring relations; empty if a file does not state them."""
    if not privacy.comparisons:
        return ""
    claims = (
        f"{rounded_up(privacy.comparisons[field])} for {name}{' (calibrated)' * (name == privacy.neighbours)}"
        for name, field in RELATION_EPSILONS.items()
    )
    return f"Epsilon of this noise by neighbours: {', '.join(claims)}."


def describe_tradeoff(claims: Mapping[str, float]) -> str:
    """Return a sentence on mu and the rates of any membership test; empty without these claims."""
    if not claims:
        return ""
    percentages = {name: f"{rounded_up(100 * claim)}%" for name, claim in claims.items()}
    rates = ", ".join(f"{percentages[name]} at {100 * fpr:g}%" for name, fpr in REPORTED_RATES.items())
    return (
        f"mu = {rounded_up(claims['mu'])}. The largest true-positive rates of a membership test, by its "
        f"false-positive rate, are {rates}. If half of those tested are members, it is right in at "
        f"most {percentages['attack_accuracy']} of all cases."
    )


def sort_by_epsilon(accounts: PerMachineAccounts) -> IntArray:
    """Return the indices of all machines in order of decreasing epsilon."""
    return np.lexsort((-accounts.rounds, -np.nan_to_num(accounts.rho), -accounts.epsilon))


def _accounts_table(accounts: PerMachineAccounts) -> str:
    """Return a sentence on unequal machines, and a table of the machines with the largest epsilon."""
    order, absent = sort_by_epsilon(accounts)[:MAX_LISTED_MACHINES], np.sum(accounts.rounds == 0)
    text = (
        f"Machines differ: of {len(accounts.rounds):,} machines, {absent:,} never take part. The guarantee "
        "above is that of the machine with the largest epsilon. The machines with the largest epsilon are:"
    )
    machines = [accounts.machine_names[i] for i in order.tolist()]
    return f"{wrap_paragraph(text)}\n{_format_columns(accounts, _ACCOUNT_COLUMNS, order, machine=machines)}"


def trust_statement(server: str) -> str:
    """Return a sentence on who has to be trusted in a trust mode; empty if nobody has to be."""
    trusts = lookup("servers", server).trusted_parties if server in known_names("servers") else ""
    return f"Who has to be trusted ({server} server): {trusts}." if trusts else ""


def privacy_summary(privacy: PrivacyStatement, accounts: PerMachineAccounts | None = None) -> str:
    """Return the privacy guarantee of a run in one line, with its concerns in brief."""
    concerns = "; ".join(c.brief for c in privacy.concerns(accounts))
    if not privacy.is_noisy:
        return f"privacy: none ({concerns})"
    rho = "" if privacy.rho is None else f", rho = {rounded_up(privacy.rho)}"
    colluders = "" if privacy.colluders is None else f" with c = {privacy.colluders:,}"
    return (
        f"privacy of {privacy.privacy_unit} ({privacy.neighbours}), {privacy.server} server{colluders}: "
        f"epsilon = {rounded_up(privacy.epsilon_exact)} at delta = {privacy.delta:g}{rho}"
        f"{'; but ' if concerns else ''}{concerns}"
    )


def has_private_test_results(result: Result) -> bool:
    """Return whether a run computed test results without noise on a share of its data file."""
    return result.has_unprotected_test_set and result.history.has_losses


def _experiment_section(result: Result) -> str:
    rows, features = result.x.shape
    named_values = [
        *result.experiment.settings().items(),
        ("model", f"{rows} row{'s' if rows > 1 else ''} x {features:,} features (bias included)"),
    ]
    if result.label_range is not None:
        low, high = map(format_value, result.label_range)
        named_values.append(("label", f"a number from {low} to {high}"))
    elif result.class_names is not None:
        ellipsis = ["..."] * (result.class_count > MAX_LISTED_CLASSES)
        named_values.append(("classes", ", ".join([*result.class_names[:MAX_LISTED_CLASSES], *ellipsis])))
    history, score = result.history, SCORE_COLUMNS[result.label_kind]
    unit = " nats" * (result.loss_unit == "nat")
    named_values.append(("final test loss", _format_number(history.test_loss[-1], f"{{:.4f}}{unit}".format)))
    metric_values = {score.removeprefix("test_"): getattr(history, score)[-1], **result.metrics}
    for name, value in metric_values.items():
        label, style = name.replace("_", " "), "{:.4g}"
        if metric := all_metrics().get(name):
            label = metric.long_name + " (in the label's units)" * (metric.unit == "label")
            style = _METRIC_FORMATS[metric.unit]
        named_values.append((f"final test {label}", _format_number(value, style.format)))
    return format_named_values(named_values)


def _accuracy_by_class(result: Result) -> str:
    """Return a table by class: test samples, accuracy and most frequent wrong prediction."""
    if result.confusion is None or result.class_count > MAX_LISTED_CLASSES:
        return ""
    classes, rows = result.class_labels, []
    for k, predicted in enumerate(result.confusion):
        samples, wrong = predicted.sum(), np.delete(predicted, k)
        mistake, largest = np.delete(classes, k)[np.argmax(wrong)], wrong.max()
        accuracy = f"{predicted[k] / samples:.1%}" if samples else "none"
        rows.append([classes[k], f"{samples:,}", accuracy, f"{mistake} ({largest:,})" if largest else ""])
    return text_table(["class", "samples", "accuracy", "most often mistaken for"], [rows])


def _history_table(history: History, label_kind: str) -> str:
    """Return a table of up to eight evaluations of a run, evenly spaced from the first to the last."""
    rows = np.unique(np.linspace(0, len(history) - 1, 8).round().astype(int))
    omitted = {*SCORE_COLUMNS.values()} - {SCORE_COLUMNS[label_kind]}
    columns = {title: column for title, column in _HISTORY_COLUMNS.items() if column[0] not in omitted}
    return _format_columns(history, columns, rows)


def _format_columns(record: object, columns: ColumnFormats, rows: IntArray, **leading: Sequence[str]) -> str:
    """Return some rows of the arrays in a record as a table, after the text columns in `leading`."""
    texts = leading | {
        title: [_format_number(value, style) for value in getattr(record, name)[rows].tolist()]
        for title, (name, style) in columns.items()
    }
    return text_table([*texts], [list(zip(*texts.values(), strict=True))])


def _format_number(value: float, style: Callable[[float], str]) -> str:
    return "none" if math.isnan(value) else style(value)


def _theory_section(theory: Theory | None, loss_unit: str) -> str:
    if theory is None:
        return ""
    applies = not math.isnan(theory.excess_loss_bound)
    bound = f"{theory.excess_loss_bound:.4g}" if applies else "none"
    if math.isnan(theory.minimum_loss):
        return wrap_paragraph(
            f"The theorem's bound on the excess loss{loss_unit}: {bound}. The model is too large to "
            "search for the smallest loss in the ball, so the excess loss was not measured."
        )
    scope = (
        "The theorem bounds the expected excess loss on fresh samples for all problems with its constants."
    )
    if not applies:
        scope = (
            "The theorem does not apply to this run: it requires the paper's method, equal machines with "
            "full participation, a clipping norm of at least S and the theorem's learning rate."
        )
    row = [f"excess loss{loss_unit}", f"{theory.excess_loss:.4g}", bound]
    smallest = f"{theory.minimum_loss:.6f} (or up to {rounded_up(theory.minimum_gap)} less)"
    note = f"Measured from the smallest test loss in the ball, {smallest}. {scope}"
    return f"{text_table(['', 'measured', 'theorem: at most'], [[row]])}\n{wrap_paragraph(note)}"


def _diagnostics_section(diagnostics: Diagnostics | None, path: Path, is_requested: bool) -> str:
    if diagnostics is None:
        return "This file has none." if is_requested else ""
    if not is_requested:
        return wrap_paragraph(
            "This file has diagnostics, computed from the private data and not covered by the guarantee. To "
            f"see them: mu2mpi show --diagnostics {path}; to write a file without them: mu2mpi publish."
        )
    return wrap_paragraph(
        f"Largest increment norm {diagnostics.largest_increment_norm:.4g}; "
        f"{diagnostics.clipped_share:.3%} of the increments were clipped. These two numbers are computed "
        "from the private data and are not covered by the guarantee: do not publish them with it."
    )


def _timing_table(result: Result) -> str:
    phases = {phase: seconds for phase, seconds in result.timing.items() if len(seconds)}
    if not phases:
        return ""
    phases["all phases"] = np.sum([*phases.values()], axis=0)
    rows = [[phase, f"{np.mean(each):.3f}", f"{np.max(each):.3f}"] for phase, each in phases.items()]
    return text_table(["phase", "mean over ranks", "slowest rank"], [rows])


def _cost_section(cost: Mapping[str, Any]) -> str:
    if not cost:
        return ""
    low, high = (f"{end(cost['peak_memory']) / 1e6:,.0f}" for end in (min, max))
    memory = f"{low} to {high} MB" if low != high else f"{high} MB"
    resources = [("core hours", f"{cost['core_seconds'] / 3600:.3g}"), ("peak memory of a rank", memory)]
    job = [(name, value) for name, value in cost.items() if isinstance(value, str)]
    return format_named_values([*resources, *job])


def _repeat_command(result: Result) -> str:
    text = "Save these lines as experiment.toml and run: mu2mpi run --config experiment.toml"
    if result.privacy.selection is not None:
        text += " (a single run with all of epsilon, without the selection)"
    elif result.experiment.seed is None:
        text += " (without a seed the noise will differ)"
    return f"{wrap_paragraph(text)}\n\n{result.experiment.to_toml().strip()}"


def format_named_values(pairs: Collection[tuple[str, object]]) -> str:
    """Format pairs of a name and a value as lines with aligned values."""
    width = max((len(name) for name, _ in pairs), default=0)
    return "\n".join(f"{name.ljust(width)}  {' '.join(format_value(value).split())}" for name, value in pairs)
