"""Settings of runs: in which they differ, groups by them, and what figures and tables call them."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from fractions import Fraction
from numbers import Real
from pathlib import Path
from typing import Any, get_args

from mu2mpi.config.experiment import sent
from mu2mpi.config.experiment_options import method_options, option_fields
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import find, names
from mu2mpi.core.suggestions import or_else
from mu2mpi.core.toml import read_toml
from mu2mpi.federation.trust_mode import TENTH
from mu2mpi.results.reader import Summary

# Settings that may differ within a cell: the seed, and what changes nothing in the model
POOLED = ("seed", "evaluations")
PRIVACY = ("epsilon", "rho")  # Two ways to say one thing: where one is given, the other follows
# Colluders as a share of the machines, exactly: what is the same for each number of machines
SHARE = "colluders_share"
# The paper's letters for settings, where it has some
SYMBOLS = {
    "rho": "ρ", "epsilon": "ε", "delta": "δ", "machines": "M", "rounds": "T", "diameter": "D",
    "clip_norm": "C", "colluders": "c", "l2": "λ", "samples": "n", "colluders_share": "c/M",
}  # fmt: skip
# What it means where a setting is not set
UNSET = {
    "partition": "as the file says", "participation": "all machines", "budgets": "one budget",
    "noise": "noise by machine", "l2": "no regulariser", "norm_bound": "norms as they are",
    "clip_norm": "C = S", "eta_scale": "the theorem's η", "tail": "last iterate",
    "noise_correlation": "noise of its own", "preset": "the theory's settings", "seed": "no seed",
}  # fmt: skip
MISSING = "–"  # What stands in a table where there is nothing
Labels = Mapping[str, str] | Path | str | Sequence[str]
Key = tuple[Any, ...]


def refusal(problem: str, name: str) -> InputError:
    """Return the error for runs that do not fit together, with the setting by which to choose some."""
    return InputError(f"{problem}; choose some, for example with --where {name}=...")


def varying(runs: Sequence[Summary]) -> list[str]:
    """Return settings in which runs differ, but for the seed, what changes no model, and what follows."""
    rows, fields = _without_drawn_rounds([run.own_settings for run in runs]), option_fields()
    # A delta that changes nothing is None.
    values = {n: {row.get(n) for row in rows} - ({None} if n == "delta" else set()) for n in fields}
    differ = [name for name in fields if len(values[name]) > 1]
    sizes = ["rounds", *(n for n in method_options() if int in get_args(fields[n].annotation))]
    for name in reversed([name for name in sizes if name in differ]):
        others = [other for other in differ if other != name and other not in POOLED]
        if others and is_settled(name, others, rows):
            differ.remove(name)
    return [name for name in differ if name not in POOLED]


def _without_drawn_rounds(rows: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Return rows without rounds that a seed draws: of each seed others, and near each other."""
    rows, groups = [dict(row) for row in rows], dict[Key, list[dict[str, Any]]]()
    for row in rows:
        if row["participation"] or str(row["partition"]).startswith(("labels:", "dirichlet:")):
            others = tuple(value for name, value in row.items() if name not in (*POOLED, "rounds"))
            groups.setdefault(others, []).append(row)
    for group in groups.values():
        rounds = [row["rounds"] or 0 for row in group]
        if max(rounds) <= 1.3 * min(rounds) and len({row["seed"] for row in group}) == len(group):
            for row in group:
                row["rounds"] = None
    return rows


def is_settled(name: str, others: Sequence[str], rows: Sequence[dict[str, Any]]) -> bool:
    """Return whether rows that agree in other settings agree in this one."""
    known: dict[Key, Any] = {}
    return all(known.setdefault(tuple(map(row.get, others)), row.get(name)) == row.get(name) for row in rows)


def privacy_of(runs: Sequence[Summary]) -> tuple[str, ...]:
    """Return settings by which the privacy of runs was set: epsilon, rho, or some by each."""
    given = {"rho" if run.experiment.epsilon is None else "epsilon" for run in runs}
    return tuple(name for name in PRIVACY if name in given)


def colluders_of(runs: Sequence[Summary]) -> Callable[[Summary], Fraction | None]:
    """Return what tells the colluders of a run, if any: a number where each M has the same, else a share."""
    by_machines = by_settings([run for run in runs if run.experiment.colluders is not None], ["machines"])
    numbers = {frozenset(run.experiment.colluders for run in members) for members in by_machines.values()}
    is_number = len(numbers) == 1

    def colluders(run: Summary) -> Fraction | None:
        number, machines = run.experiment.colluders, run.experiment.machines or 1
        if number is None or is_number:
            return None if number is None else Fraction(number)
        # The default is a tenth, rounded up.
        return Fraction(1, TENTH) if number == -(-machines // TENTH) else Fraction(number, machines)

    return colluders


def share_text(share: Fraction) -> str:
    """Return a number, or a share of M such as "3M/4"."""
    if share.denominator == 1:
        return str(share)
    return f"{share.numerator if share.numerator > 1 else ''}M/{share.denominator}"


def in_nats(runs: Iterable[Summary]) -> bool:
    """Return whether the losses of all runs are in nats, and none is in a unit of its own."""
    return all(find("losses", run.experiment.loss).unit == "nat" for run in runs)


@dataclass(frozen=True, eq=False)
class Group:
    """Runs, at least one, and the settings that they share, by which they were grouped."""

    settings: dict[str, Any]
    runs: list[Summary]


def grouped(runs: Iterable[Summary], names: Sequence[str]) -> list[Group]:
    """Group runs by settings, or other columns of their rows; a setting that follows in a run is None."""
    groups = by_rows(runs, names, lambda run: {**run.row, **run.own_settings})
    return [Group(dict(zip(names, key, strict=True)), of) for key, of in groups.items()]


def by_settings(runs: Iterable[Summary], names: Sequence[str]) -> dict[Key, list[Summary]]:
    """Group runs by the values of settings (or `ranks`), in the order in which tables show them."""

    def row_of(run: Summary) -> dict[str, Any]:
        colluders, machines = run.experiment.colluders, run.experiment.machines or 1
        share = None if colluders is None else Fraction(colluders, machines)
        row = {**run.row, **run.settings, SHARE: share}
        follows = {*PRIVACY} <= {*names} and row["epsilon"] is not None
        return row | ({"rho": None} if follows else {})

    return by_rows(runs, names, row_of)


def by_rows(
    runs: Iterable[Summary], names: Sequence[str], row_of: Callable[[Summary], Mapping[str, Any]]
) -> dict[Key, list[Summary]]:
    """Group runs by what their rows have under these names, in the order in which tables show them."""
    groups: dict[Key, list[Summary]] = {}
    for run in runs:
        groups.setdefault(tuple(map(row_of(run).get, names)), []).append(run)
    return {key: groups[key] for key in sorted(groups, key=sort_key)}


def sort_key(key: Key) -> list[tuple[int, Any]]:
    """Return a sort key as tables show keys: unset first, numbers in order, the trusted server last."""
    return [
        (0, 0) if value is None else (1, value) if isinstance(value, Real) else (2, _place(value))
        for value in key
    ]


def _place(text: Any) -> tuple[bool, bool, Any]:
    """Return a sort key of text: a server without noise for sums first, a central one last."""
    if text not in names("servers"):
        return False, True, text
    trust = find("servers", text)
    return trust.is_central, trust.hides_sums, text


def without_repeats(runs: Iterable[Summary], *columns: str) -> tuple[list[Summary], list[str]]:
    """Return each run once, and notes on repeats, which agree in these columns; InputError without runs."""
    first: dict[Key, Summary] = {}
    notes = []
    for run in runs:
        trained = run.experiment.seed, sent(run.experiment)
        # Without a seed every run is a new one, and only a copy of its file agrees in all of these.
        copied = () if run.experiment.seed is not None else (run.created, str(run.test_loss))
        measured = tuple(map(run.row.get, columns))
        earlier = first.setdefault((trained, measured, *copied), run)
        if earlier is not run:
            notes.append(f"{run.path} repeats the run of {earlier.path} and is not counted again")
    if not first:
        raise InputError("there are no results")
    return list(first.values()), notes


def chosen(runs: Sequence[Summary], conditions: Sequence[str]) -> list[Summary]:
    """Return the runs that fulfil conditions such as ``rho=4,16`` or ``clip_norm=unset``, at least one."""
    for condition in conditions:
        name, equals, text = condition.partition("=")
        if not equals or name not in option_fields():
            meant = or_else(name.strip(), option_fields(), "settings")
            raise InputError(f"{condition!r} is no condition such as rho=4{meant}")
        # A method that is known by a name of its own may also have been chosen by its parts.
        given = [getattr(run.experiment, name) for run in runs]
        there = [{v, run.settings[name] or v} for run, v in zip(runs, given, strict=True)]
        known = {value for values in there for value in values}
        # A value may have commas of its own.
        is_one = any(_is(value, text) for value in known)
        texts = [text] if is_one else [part.strip() for part in text.split(",")]
        if missing := [one for one in texts if not any(_is(value, one) for value in known)]:
            raise InputError(f"no run has {name}={missing[0]}; {name} is {listed(given)}")
        matches = {value for value in known if any(_is(value, one) for one in texts)}
        runs = [run for run, values in zip(runs, there, strict=True) if values & matches]
    return list(runs)


def listed(values: Iterable[Any]) -> str:
    """Return values in words, each once: numbers in their order, then names, and what is unset last."""
    ordered = sorted({*values}, key=lambda v: (v is None, sort_key((v,))))
    return ", ".join(dict.fromkeys(map(number_text, ordered)))


def number_text(value: object) -> str:
    """Return a setting as short as it can be without merging two that differ."""
    if value is None:
        return "unset"
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() and value < 1e15 else str(value)


def _is(value: object, text: str) -> bool:
    """Return whether a text means a value: 4 is the same as 4.0."""
    try:
        return text == number_text(value) or float(text) == value
    except ValueError:
        return False


@dataclass(frozen=True)
class Words:
    """Names of settings and values in figures and tables, with the user's labels by ``rho`` or ``rho=4``."""

    labels: Mapping[str, str] = field(default_factory=dict)

    def name(self, setting: str) -> str:
        """Name of a setting on an axis or in a header."""
        return self.labels.get(setting, SYMBOLS.get(setting, setting.replace("_", " ")))

    def of(self, settings: Mapping[str, Any]) -> str:
        """Return several settings for a legend, such as "M = 10, trusted server"."""
        # What a preset chose is not told, and is not unset either.
        told = UNSET if settings.get("preset") is None else ()
        said = [name for name, value in settings.items() if value is not None or name in told]
        return ", ".join(self.pair(name, settings[name]) for name in said or settings)

    def pair(self, name: str, value: Any) -> str:
        """Return a setting with its value."""
        text = self.value(name, value)
        if f"{name}={number_text(value)}" in self.labels:
            return text
        if value is None:
            return UNSET.get(name, f"{self.name(name)} unset")
        if name == "method" and value in names("methods"):
            return str(find("methods", value).title)
        if name in ("method", "data", "test", "partition", "loss"):
            return text
        if name in ("preset", "mechanism"):
            return f"{name} {text}"
        return f"{text} server" if name == "server" else f"{self.name(name)} = {text}"

    def value(self, name: str, value: Any) -> str:
        """Return the value of a setting, as short as it can be without merging two that differ."""
        if (own := self.labels.get(f"{name}={number_text(value)}")) is not None:
            return own
        if name in ("data", "test", "schema", "budgets") and value is not None:
            return Path(str(value)).name
        if value == math.inf:
            return "∞"
        return f"{value:,}" if isinstance(value, int) else number_text(value)

    def in_table(self, name: str, value: Any) -> str:
        """Return the value of a setting below its name: what speaks for itself without it."""
        own = f"{name}={number_text(value)}" in self.labels
        if value is None and name not in UNSET and not own:
            return MISSING
        speaks = value is None or name == "method"
        return self.pair(name, value) if speaks else self.value(name, value)


def read_labels(given: Labels) -> dict[str, str]:
    """Return own labels by what they stand for, a setting (``rho``) or one of its values (``rho=4``).

    They are given as such a mapping, as texts (``rho=4:strong``), or as TOML files with tables of values.
    """
    pairs: list[tuple[str, Any, str]] = []
    if isinstance(given, Mapping):
        pairs, given = [(key, label, "") for key, label in given.items()], ()
    for one in [given] if isinstance(given, Path | str) else given:
        if Path(one).suffix == ".toml":
            for key, value in read_toml(Path(one)).items():
                of_values = value.items() if isinstance(value, dict) else ()
                flat = {f"{key}={own}": label for own, label in of_values} or {key: value}
                pairs += [(*pair, f"{one}: ") for pair in flat.items()]
            continue
        # Values hold colons more often than labels do, as labels:1 and uniform:10.
        key, colon, label = str(one).rpartition(":")
        if not colon:
            raise InputError(f"{one!r} is no label such as rho=4:strong, and no TOML file of labels")
        pairs.append((key, label, ""))
    found = {}
    for key, label, where in pairs:
        name, equals, value = key.strip().partition("=")
        if name not in option_fields():
            meant = or_else(name, option_fields(), "settings")
            raise InputError(f"{where}there is no setting {name!r}{meant}")
        if not isinstance(label, str):
            raise InputError(f"{where}the label of {key} is no text")
        # A value is told as it is otherwise: 4.0 is 4.
        with suppress(ValueError):
            value = number_text(float(value))
        found[f"{name}{equals}{value}"] = label.strip()
    return found


def unmatched(given: Sequence[str], runs: Sequence[Summary]) -> list[str]:
    """Warnings about labels of values that no run has; those in files may be for other runs."""
    said = []
    for key in read_labels([one for one in given if Path(one).suffix != ".toml"]):
        name, equals, value = key.partition("=")
        there = [(getattr(run.experiment, name), run.own_settings[name]) for run in runs]
        if equals and value not in {number_text(v) for values in there for v in values}:
            said.append(f"no run has {name} = {value}; {name} is {listed(v for v, _ in there)}")
    return said


def rounded_up(value: float, rounding: str = ROUND_CEILING) -> str:
    """Return four significant digits, rounded up: a guarantee must not look stronger than it is."""
    return f"{float(Context(prec=4, rounding=rounding).create_decimal(repr(value))):.10g}"


def rounded_down(value: float) -> str:
    """Return four significant digits, rounded down: a demand must not look weaker than it is."""
    return rounded_up(value, ROUND_FLOOR)
