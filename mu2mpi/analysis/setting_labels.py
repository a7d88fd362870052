"""Settings of runs: comparison, grouping and selection, and their labels in tables and figures."""

import math
import re
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from numbers import Real
from pathlib import Path
from typing import Any, get_args

from mu2mpi.config.experiment import message_settings
from mu2mpi.config.experiment_options import method_option_names, option_fields, own_option_fields
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import known_names, lookup
from mu2mpi.core.suggestions import suggest_setting
from mu2mpi.federation.trust_mode import DEFAULT_COLLUDER_RATIO
from mu2mpi.results.reader import RunSummary

# Settings over which runs are averaged: the seed, and those without an effect on the model
AVERAGED_SETTINGS = ("seed", "evaluations")
PRIVACY_SETTINGS = ("epsilon", "rho")  # An experiment gives one of them, the other is computed
# Settings beside the options of methods that may differ from method to method
METHOD_SETTINGS = ("mechanism", "diameter", "normalize", "norm_bound", "l2", "clip_norm", "eta_scale")
COLLUDERS_SHARE = "colluders_share"  # Column with the colluders as a fraction of the machines
# Symbols of settings in the paper
SETTING_SYMBOLS = {
    "rho": "ρ", "epsilon": "ε", "delta": "δ", "machines": "M", "rounds": "T", "diameter": "D",
    "clip_norm": "C", "colluders": "c", "l2": "λ", "samples": "n", "colluders_share": "c/M",
}  # fmt: skip
# Labels of settings without a value
UNSET_PHRASES = {
    "partition": "as the file says", "participation": "all machines", "budgets": "one budget",
    "noise": "noise by machine", "l2": "no regulariser", "norm_bound": "norms as they are",
    "clip_norm": "C = S", "eta_scale": "the theorem's η", "tail": "last iterate",
    "noise_correlation": "the method's noise", "preset": "the theory's settings", "seed": "no seed",
}  # fmt: skip
MISSING = "–"  # Text of an empty table entry
GroupKey = tuple[Any, ...]  # Values of the settings by which runs are grouped
RowGetter = Callable[[RunSummary], Mapping[str, Any]]  # Columns of a run by name


def selection_error(problem: str, setting: str) -> InputError:
    """Return the error for incompatible runs, with advice to select some by a setting."""
    python = f"in Python: runs.select({setting}=...)"
    return InputError(f"{problem}. Select runs, for example with --where {setting}=... ({python})")


def varying_settings(runs: Sequence[RunSummary]) -> list[str]:
    """Names of settings in which runs differ, except `AVERAGED_SETTINGS` and sizes that others determine."""
    rows, fields = _unset_random_round_counts([run.independent_settings for run in runs]), option_fields()
    # None is a delta without an effect on the noise.
    values = {n: {row.get(n) for row in rows} - ({None} if n == "delta" else set()) for n in fields}
    differ = [name for name in fields if len(values[name]) > 1]
    sizes = ["rounds", *(n for n in method_option_names() if int in get_args(fields[n].annotation))]
    for name in reversed([name for name in sizes if name in differ]):
        others = [other for other in differ if other != name and other not in AVERAGED_SETTINGS]
        if others and is_determined_by(name, others, rows):
            differ.remove(name)
    return [name for name in differ if name not in AVERAGED_SETTINGS]


def _unset_random_round_counts(rows: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Return settings with rounds unset where random participation or partitions make them differ."""
    rows, groups = [dict(row) for row in rows], dict[GroupKey, list[dict[str, Any]]]()
    for row in rows:
        if row["participation"] or str(row["partition"]).startswith(("labels:", "dirichlet:")):
            other_values = tuple(v for n, v in row.items() if n not in (*AVERAGED_SETTINGS, "rounds"))
            groups.setdefault(other_values, []).append(row)
    for group in groups.values():
        rounds = [row["rounds"] or 0 for row in group]
        if max(rounds) <= 1.3 * min(rounds) and len({row["seed"] for row in group}) == len(group):
            for row in group:
                row["rounds"] = None
    return rows


def is_determined_by(name: str, others: Sequence[str], rows: Sequence[dict[str, Any]]) -> bool:
    """Return whether a setting has equal values in all rows with equal values of the other settings."""
    known: dict[GroupKey, Any] = {}
    return all(known.setdefault(tuple(map(row.get, others)), row.get(name)) == row.get(name) for row in rows)


def privacy_settings(runs: Sequence[RunSummary]) -> tuple[str, ...]:
    """Return the privacy settings that the runs were given: epsilon, rho, or both for mixed runs."""
    given = {"rho" if run.experiment.epsilon is None else "epsilon" for run in runs}
    return tuple(name for name in PRIVACY_SETTINGS if name in given)


def settings_of_methods(runs: Sequence[RunSummary], excluded: Collection[str] = ()) -> list[str]:
    """Return the settings, such as clipping norms, that follow from the method and others not `excluded`."""
    varying = [name for name in varying_settings(runs) if name not in excluded]
    per_method = {*own_option_fields("method"), *METHOD_SETTINGS}
    rows = [run.independent_settings for run in runs]
    given = ["method", *(name for name in varying if name not in per_method)]
    return [name for name in varying if name in per_method and is_determined_by(name, given, rows)]


def comparable_settings(runs: Sequence[RunSummary]) -> RowGetter:
    """Return a function from runs to independent settings, and colluders as a fraction of the machines.

    If the number of colluders is equal for all M, it stays a number.
    """
    given = [run for run in runs if run.experiment.colluders is not None]
    by_machines = group_by_settings(given, ["machines"])
    numbers = {frozenset(run.experiment.colluders for run in subset) for subset in by_machines.values()}

    def get_row(run: RunSummary) -> Mapping[str, Any]:
        number, machines = run.experiment.colluders, run.experiment.machines or 1
        if number is None or len(numbers) == 1:
            return run.independent_settings | {"colluders": number}
        # The default number of colluders is this fraction, rounded up.
        is_default = number == -(-machines // DEFAULT_COLLUDER_RATIO)
        share = Fraction(1, DEFAULT_COLLUDER_RATIO) if is_default else Fraction(number, machines)
        return run.independent_settings | {"colluders": share}

    return get_row


def format_share(share: Fraction) -> str:
    """Format colluders: a number such as "5", or a fraction of the machines such as "3M/4"."""
    numerator = share.numerator if share.numerator > 1 else ""
    return str(share) if share.denominator == 1 else f"{numerator}M/{share.denominator}"


def are_losses_in_nats(runs: Iterable[RunSummary]) -> bool:
    """Return whether the unit of the loss is the nat in all runs."""
    return all(lookup("losses", run.experiment.loss).unit == "nat" for run in runs)


@dataclass(frozen=True, eq=False)
class RunGroup:
    """Runs (at least one) with equal values of the settings by which they were grouped."""

    settings: dict[str, Any]
    runs: list[RunSummary]


def group_runs(runs: Iterable[RunSummary], names: Sequence[str], get_row: RowGetter) -> list[RunGroup]:
    """Group runs by columns of `get_row`, as `group_by_columns` does, with the common settings of each."""
    groups = group_by_columns(runs, names, get_row)
    return [RunGroup(dict(zip(names, key, strict=True)), subset) for key, subset in groups.items()]


def group_by_settings(runs: Iterable[RunSummary], names: Sequence[str]) -> dict[GroupKey, list[RunSummary]]:
    """Group runs by the values of settings (or `ranks`), and sort the groups as tables do."""

    def get_row(run: RunSummary) -> Mapping[str, Any]:
        colluders, machines = run.settings["colluders"], run.experiment.machines or 1
        share = None if colluders is None else Fraction(colluders, machines)
        is_rho_computed = {*PRIVACY_SETTINGS} <= {*names} and run.settings["epsilon"] is not None
        derived = {COLLUDERS_SHARE: share, **({"rho": None} if is_rho_computed else {})}
        return ChainMap(derived, run.settings, run.table_row)

    return group_by_columns(runs, names, get_row)


def group_by_columns(
    runs: Iterable[RunSummary], names: Sequence[str], get_row: RowGetter
) -> dict[GroupKey, list[RunSummary]]:
    """Group runs by named columns of their table rows, and sort the groups as tables do."""
    groups: dict[GroupKey, list[RunSummary]] = {}
    for run in runs:
        groups.setdefault(tuple(map(get_row(run).get, names)), []).append(run)
    return {key: groups[key] for key in sorted(groups, key=sort_key)}


def sort_key(values: GroupKey) -> list[tuple[int, Any]]:
    """Return the sort key of setting values: unset, then numbers, then text (trusted server last)."""
    return [
        (0, 0) if value is None else (1, value) if isinstance(value, Real) else (2, _text_sort_key(value))
        for value in values
    ]


def _text_sort_key(text: Any) -> tuple[bool, bool, Any]:
    """Return the sort key of a text setting: numbers in it by size, trust modes by the trust they need."""
    if text not in known_names("servers"):
        parts = re.split(r"([0-9]+)", str(text))  # Text and numbers alternate, as in uniform:20.
        return False, True, [int(part) if k % 2 else part for k, part in enumerate(parts)]
    trust_mode = lookup("servers", text)
    return trust_mode.is_central, trust_mode.protects_sum_only, [text]


def drop_repeated_runs(runs: Iterable[RunSummary], *key_columns: str) -> tuple[list[RunSummary], list[str]]:
    """Return runs without repeats (same model and `key_columns`), and a note on each; InputError if empty."""
    first: dict[GroupKey, RunSummary] = {}
    notes = []
    for run in runs:
        model_key = run.experiment.seed, message_settings(run.experiment)
        # Runs without a seed are distinct, except for copies of a file.
        copied = () if run.experiment.seed is not None else (run.created, str(run.test_loss))
        measured = tuple(map(run.table_row.get, key_columns))
        earlier = first.setdefault((model_key, measured, *copied), run)
        if earlier is not run:
            notes.append(f"{run.path} repeats the run of {earlier.path} and is counted once")
    if not first:
        raise InputError("no results were found. Check the paths and --where.")
    return list(first.values()), notes


def select_runs(runs: Sequence[RunSummary], conditions: Sequence[str]) -> list[RunSummary]:
    """Select runs by conditions such as ``rho=4,16,clip_norm=unset``; InputError if none is left."""
    for condition in conditions:
        name, equals, text = condition.partition("=")
        if not equals or name not in option_fields():
            hint = suggest_setting(name.strip(), option_fields())
            raise InputError(f"{condition!r} is not a condition such as rho=4{hint}")
        # A method is found by the name of the experiment and by the canonical name of its components.
        given = [getattr(run.experiment, name) for run in runs]
        candidates = [{v, run.settings[name] or v} for run, v in zip(runs, given, strict=True)]
        known = {value for values in candidates for value in values}
        # A single value may contain commas.
        is_single = any(_denotes_value(value, text) for value in known)
        if not is_single and (more := re.split(r",\s*(?=\w+=)", condition))[1:]:
            runs = select_runs(runs, more)
            continue
        texts = [text] if is_single else [part.strip() for part in text.split(",")]
        if missing := [t for t in texts if not any(_denotes_value(value, t) for value in known)]:
            raise InputError(f"no run has {name}={missing[0]}; {name} is {join_values(given)}")
        selected = {value for value in known if any(_denotes_value(value, t) for t in texts)}
        runs = [run for run, values in zip(runs, candidates, strict=True) if values & selected]
    return list(runs)


def join_values(values: Iterable[Any]) -> str:
    """Join the distinct values of a setting with commas: numbers, then names, then "unset"."""
    ordered = sorted({*values}, key=lambda v: (v is None, sort_key((v,))))
    return ", ".join(dict.fromkeys(map(format_value, ordered)))


def format_value(value: object) -> str:
    """Return the shortest text that distinguishes the value of a setting from all others."""
    if value is None:
        return "unset"
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() and value < 1e15 else str(value)


def _denotes_value(value: object, text: str) -> bool:
    """Return whether a text denotes the value of a setting; "4" denotes 4.0."""
    try:
        return text == format_value(value) or float(text) == value
    except ValueError:
        return False


@dataclass(frozen=True)
class Labels:
    """Labels of settings and values in figures and tables; InputError for a custom one of no setting."""

    custom: Mapping[str, str] = field(default_factory=dict)  # the user's, by ``rho`` or ``rho=4``

    def __post_init__(self) -> None:
        for name in (key.partition("=")[0] for key in self.custom):
            if name not in option_fields():
                raise InputError(f"there is no setting {name!r}{suggest_setting(name, option_fields())}")

    def name(self, setting: str) -> str:
        """Label of a setting, for an axis or a header, such as "ρ"."""
        return self.custom.get(setting, SETTING_SYMBOLS.get(setting, setting.replace("_", " ")))

    def settings(self, settings: Mapping[str, Any]) -> str:
        """Label of several settings with values, such as "M = 10, trusted server"."""
        # Unset settings have no label beside a preset, which chooses them.
        unset = UNSET_PHRASES if settings.get("preset") is None else ()
        labelled = [name for name, value in settings.items() if value is not None or name in unset]
        return ", ".join(self.setting(name, settings[name]) for name in labelled or settings)

    def setting(self, name: str, value: Any) -> str:
        """Label of a setting with its value, such as "M = 10" or "trusted server"."""
        text = self.value(name, value)
        if f"{name}={format_value(value)}" in self.custom:
            return text
        if value is None:
            return UNSET_PHRASES.get(name, f"{self.name(name)} unset")
        if name == "method" and value in known_names("methods"):
            return str(lookup("methods", value).title)
        if name in ("method", "data", "test", "partition", "loss"):
            return text
        if name in ("preset", "mechanism"):
            return f"{name} {text}"
        return f"{text} server" if name == "server" else f"{self.name(name)} = {text}"

    def value(self, name: str, value: Any) -> str:
        """Label of a setting's value without the setting's name, such as "10"."""
        if (label := self.custom.get(f"{name}={format_value(value)}")) is not None:
            return label
        if value == math.inf:
            return "∞"
        if isinstance(value, int):
            return f"{value:,}"
        if isinstance(value, Fraction) and name == "colluders":
            return format_share(value)
        is_path = name in ("data", "test", "schema", "budgets") and value is not None
        text = Path(str(value)).name if is_path else format_value(value)
        # A line break in a file name would end a row, or a comment of LaTeX.
        return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)

    def table_value(self, name: str, value: Any) -> str:
        """Label of a setting's value in a table column with the setting's name as header."""
        is_custom = f"{name}={format_value(value)}" in self.custom
        if value is None and name not in UNSET_PHRASES and not is_custom:
            return MISSING
        return self.setting(name, value) if value is None or name == "method" else self.value(name, value)
