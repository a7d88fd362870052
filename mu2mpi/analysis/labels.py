"""Labels of the user's own for settings and their values, in place of those of figures and tables."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from mu2mpi.analysis.groups import listed
from mu2mpi.analysis.settings import own_settings
from mu2mpi.analysis.words import number_text
from mu2mpi.config.options import option_fields
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary
from mu2mpi.suggestions import or_else
from mu2mpi.toml import read_toml

Labels = Mapping[str, str] | Path | str | Sequence[str]


def read_labels(given: Labels) -> dict[str, str]:
    """Return own labels by what they stand for, a setting (``rho``) or one of its values (``rho=4``).

    They are given as such a mapping, as texts (``rho=4:strong``), or as TOML files, in which a table is a
    setting with labels of its values. Raises an InputError if one names no setting.
    """
    if isinstance(given, Mapping):
        return _checked(given)
    found: dict[str, str] = {}
    for one in [given] if isinstance(given, Path | str) else given:
        if Path(one).suffix == ".toml":
            for key, value in read_toml(Path(one)).items():
                of_values = value.items() if isinstance(value, dict) else ()
                flat = {f"{key}={own}": label for own, label in of_values} or {key: value}
                found |= _checked(flat, f"{one}: ")
            continue
        # Values hold colons more often than labels do, as labels:1 and uniform:10.
        key, colon, label = str(one).rpartition(":")
        if not colon:
            raise InputError(f"{one!r} is no label such as rho=4:strong, and no TOML file of labels")
        found |= _checked({key: label})
    return found


def unmatched(given: Sequence[str], runs: Sequence[Summary]) -> list[str]:
    """Return what to say of labels whose value no run has; those of files may be for others."""
    said = []
    for key in read_labels([one for one in given if Path(one).suffix != ".toml"]):
        name, equals, value = key.partition("=")
        there = [(getattr(run.experiment, name), own_settings(run)[name]) for run in runs]
        if equals and value not in {number_text(v) for values in there for v in values}:
            said.append(f"no run has {name} = {value}; {name} is {listed(v for v, _ in there)}")
    return said


def _checked(labels: Mapping[str, str], where: str = "") -> dict[str, str]:
    """Return labels with their values as these are told otherwise: 4.0 is 4."""
    found = {}
    for key, label in labels.items():
        name, equals, value = key.strip().partition("=")
        if name not in option_fields():
            meant = or_else(name, option_fields(), "settings")
            raise InputError(f"{where}there is no setting {name!r} to label{meant}")
        if not isinstance(label, str):
            raise InputError(f"{where}the label of {key} is no text")
        with suppress(ValueError):
            value = number_text(float(value))
        found[f"{name}{equals}{value}"] = label.strip()
    return found
