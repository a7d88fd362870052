"""Sweep: all combinations of settings that are lists, and file names of their results."""

import hashlib
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mu2mpi.config.experiment import Experiment
from mu2mpi.config.experiment_options import option_fields, own_option_fields
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import default_name, known_names
from mu2mpi.core.suggestions import suggest_or_list

MAX_SWEEP_RUNS = 100_000
MAX_FILE_NAME_BYTES = 160  # file systems allow 255, minus the suffixes of checkpoints and temporary files
MAX_SLUG_LETTERS = 40
PAIRED_SETTINGS = "method", "mechanism", "server"  # a sweep leaves out combinations that never go together
# Settings whose values stand without the setting's name in a file name
VALUE_ONLY_SETTINGS = "data", "partition", "loss", "method", "estimator", "query", "server", "participation"


class Sweep:
    """All combinations of settings that are lists; the last list varies fastest.

    Each mapping in the list ``part`` is a separate sweep that inherits the other settings. ``methods`` lists
    methods to compare, or is "all": each uses its preset and, by default, a trusted server. `overrides`
    replace the settings of every part. Errors begin with the name of `settings_file`, if any; InputError for
    invalid settings, and for two results of the same file name.
    """

    def __init__(
        self, settings: Mapping[str, Any], settings_file: str = "", overrides: Mapping[str, Any] | None = None
    ) -> None:
        self._settings_file, self._error_prefix = settings_file, f"{settings_file}: " if settings_file else ""
        overrides = dict(overrides or {})
        common = {name: value for name, value in settings.items() if name != "part"}
        methods = overrides.pop("methods", common.pop("methods", None))
        # Messages about combinations that are left out: one line per combination, with the reason
        self.compares_methods, self.exclusions = methods is not None, list[str]()
        if self.compares_methods:
            # The first list varies slowest.
            common = {"method": None, "server": "trusted", **common}
            overrides["method"] = _parse_methods(methods, self._error_prefix)
        parts = settings.get("part", [{}])
        if not (isinstance(parts, list) and parts and all(isinstance(part, dict) for part in parts)):
            message = "part is not a list of tables. Begin each part of the sweep with [[part]]"
            raise InputError(self._error_prefix + message)
        varying = [name for name, value in common.items() if isinstance(value, list)]
        varying += [name for part in parts for name in part]
        self.swept_names = [name for name in dict.fromkeys(varying) if name not in overrides]
        if self.compares_methods:
            self.swept_names.insert(0, "method")
        merged_parts = ({**common, **part, **overrides} for part in parts)
        products = map(self._build_experiments, merged_parts)
        self.experiments = list(dict.fromkeys(itertools.chain(*products)))
        self.require_remaining_runs(len(self.experiments), self.exclusions)
        self._check_distinct_file_names()

    def select_runs(self, index: int | None, part: tuple[int, int] = (0, 1)) -> list[tuple[int, Experiment]]:
        """Return pairs (index, experiment): the one at `index`, or for part=(k, n) every n-th from k on."""
        numbered = list(enumerate(self.experiments))
        if index is None:
            first, step = part
            return numbered[first::step]
        if not 0 <= index < len(numbered):
            raise InputError(f"--index must be between 0 and {len(numbered) - 1} (the last run), got {index}")
        return [numbered[index]]

    def file_name(self, experiment: Experiment) -> str:
        """Return the file name of an experiment's result, made of the settings that the sweep varies."""
        return result_name(experiment, self.swept_names)

    def exclude(self, settings: Mapping[str, Any], error: InputError) -> None:
        """Leave out the combination of method, mechanism and server in some settings, because of an error."""
        reason = "; ".join(line.removeprefix(self._error_prefix) for line in str(error).splitlines())
        pairs = (f"{name} = {settings[name]}" for name in self._paired_names if name in settings)
        line = f"{', '.join(pairs)} is left out: {reason}"
        if line not in self.exclusions:
            self.exclusions.append(line)

    def _can_exclude(self, settings: Mapping[str, Any]) -> bool:
        """Whether refused settings may be left out: their method, mechanism and server never go together."""
        pair = {n: settings[n] for n in ("preset", *PAIRED_SETTINGS) if settings.get(n) is not None}
        preset = {name: value for name, value in pair.items() if name == "preset"}
        return bool(self._paired_names) and _is_valid(preset) and not _is_valid(pair)

    @property
    def _paired_names(self) -> list[str]:
        return [name for name in PAIRED_SETTINGS if name in self.swept_names]

    @staticmethod
    def require_remaining_runs(count: int, reasons: Sequence[str]) -> None:
        """Raise InputError with the reasons, if any, why a sweep has no runs left (`count` is 0)."""
        if reasons and not count:
            raise InputError("\n".join(dict.fromkeys(reasons)))

    def _build_experiments(self, settings: Mapping[str, Any]) -> list[Experiment]:
        experiments = []
        for combination in _setting_combinations(settings, self._error_prefix):
            if self.compares_methods and combination["method"] in own_option_fields("method")["preset"]:
                combination = {"preset": default_name("presets"), **combination}
            try:
                experiments.append(Experiment.from_settings(combination, self._settings_file))
            except InputError as error:
                # Methods that are compared need not have all options.
                if not (self.compares_methods or self._can_exclude(combination)):
                    raise
                self.exclude(combination, error)
        if len(set(experiments)) < len(experiments):
            message = "two combinations of the lists are the same experiment. Remove one"
            raise InputError(self._error_prefix + message)
        return experiments

    def _check_distinct_file_names(self) -> None:
        owners: dict[str, Experiment] = {}
        for experiment in self.experiments:
            file_name = self.file_name(experiment)
            # Some file systems do not distinguish upper and lower case.
            owner = owners.setdefault(file_name.casefold(), experiment)
            if owner is not experiment:
                pairs = ([f"{n} = {getattr(e, n)!r}" for n in self.swept_names] for e in (owner, experiment))
                first, second = map(", ".join, pairs)
                raise InputError(
                    f"{self._error_prefix}the results of {first} and of {second} would both be called "
                    f"{file_name}. Rename the values, or use two sweeps with different --output"
                )


def _is_valid(settings: Mapping[str, Any]) -> bool:
    try:
        Experiment(**settings)
    except InputError:
        return False
    return True


def _parse_methods(methods: Any, error_prefix: str) -> list[str]:
    """Parse the methods to compare ("all", or names in a list or with commas); InputError if unknown."""
    known = known_names("methods")
    names = methods.split(",") if isinstance(methods, str) else methods
    names = known if names == ["all"] else names
    unknown = [str(name) for name in names if name not in known] if isinstance(names, list) else [""]
    if unknown or not names:
        hint = suggest_or_list("".join(unknown[:1]), ["all", *known], "choices")
        raise InputError(f"{error_prefix}methods = {methods!r} has an unknown method{hint}")
    return list(dict.fromkeys(names))


def _setting_combinations(settings: Mapping[str, Any], error_prefix: str) -> Iterator[dict[str, Any]]:
    lists = {name: value if isinstance(value, list) else [value] for name, value in settings.items()}
    for name, values in lists.items():
        if not values or len({repr(value) for value in values}) < len(values):
            raise InputError(f"{error_prefix}the list of {name} is empty or repeats a value: {values}")
        if any(isinstance(value, list | dict) for value in values):
            raise InputError(
                f"{error_prefix}{name} contains a list in a list, or a table. Use one list, as "
                f"{name} = [a, b], and [[part]] tables for combinations"
            )
    if (count := math.prod(map(len, lists.values()))) > MAX_SWEEP_RUNS:
        limit = f"at most {MAX_SWEEP_RUNS:,} combinations"
        raise InputError(f"{error_prefix}a sweep must have {limit}, got {count:,}. Shorten its lists")
    for combination in itertools.product(*lists.values()):
        yield dict(zip(lists, combination, strict=True))


def result_name(experiment: Experiment, swept_names: Sequence[str] = ()) -> str:
    """Return a result's file name from swept, or else main, settings, such as ``trusted_rho-4_seed-1.h5``."""
    budget = "rho" if experiment.epsilon is None else "epsilon"
    names = (budget if name == "rho" else name for name in swept_names or _file_name_settings(experiment))
    settings = [(name, value) for name in names if (value := getattr(experiment, name)) is not None]
    if swept_names:
        texts = [_slug(v) if isinstance(v, str) else _format_number(name, v) for name, v in settings]
    else:
        texts = [_format_setting(name, value) for name, value in settings]
        if any(map(_is_ambiguous_in_file_name, *zip(*settings, strict=True))):
            texts.append(hashlib.sha256(repr(settings).encode()).hexdigest()[:8])
    name = "_".join(filter(None, texts)) or "run"
    if len(name.encode()) > MAX_FILE_NAME_BYTES:
        # Cutting bytes may split a letter, whose rest is dropped.
        start = name.encode()[:MAX_FILE_NAME_BYTES].decode(errors="ignore")
        name = f"{start}_{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return f"{name}.h5"


def _file_name_settings(experiment: Experiment) -> Iterator[str]:
    """Yield names of settings for a file name outside of a sweep: main and non-default settings."""
    defaults = experiment.defaults
    first = ["data", "loss", "method", "mechanism", *type(experiment.method_options).model_fields]
    always = ["data", "server", "machines", "rho", "seed"]
    yield from (name for name in first if name in always or getattr(experiment, name) != defaults[name])
    yield from always[1:-1]
    remaining = (name for name in option_fields() if name not in (*first, *always, "epsilon"))
    yield from (n for n in remaining if n in defaults and getattr(experiment, n) != defaults[n])
    yield always[-1]


def _slug(text: str) -> str:
    return re.sub(r"[^\w.+-]+", "-", text).strip("-.")


def _format_number(name: str, value: object) -> str:
    return f"{name.replace('_', '-')}-{repr(value).removesuffix('.0')}"


def _format_setting(name: str, value: object) -> str:
    """Format a setting for a file name, as NAME-VALUE or VALUE alone; paths lose their folders."""
    if not isinstance(value, str):
        return name.replace("_", "-") if value is True else _format_number(name, value)
    form, colon, path = value.rpartition(":")
    text = _slug(f"{form}{colon}{path.rpartition('/')[2]}")[:MAX_SLUG_LETTERS]
    return text if name in VALUE_ONLY_SETTINGS else f"{name.replace('_', '-')}-{text}"


def _is_ambiguous_in_file_name(name: str, value: object) -> bool:
    """Return whether another value of the setting could have the same text in a file name."""
    if not isinstance(value, str):
        return False
    has_separator = "_" in value and name != "data"
    return has_separator or len(value) > MAX_SLUG_LETTERS or _slug(value) != value.replace(":", "-")
