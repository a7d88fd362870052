"""Sweep: all combinations of settings that are lists, and file names of their results."""

import hashlib
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mu2mpi.config.experiment import Experiment
from mu2mpi.config.experiment_options import option_fields
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import default_name, known_names, lookup
from mu2mpi.core.suggestions import did_you_mean

MAX_RUNS = 100_000
MAX_NAME_BYTES = 160  # file systems allow 255, of which a checkpoint's suffix and a temporary name take some
MAX_VALUE_LETTERS = 40
# Settings whose values stand without the setting's name in a file name
UNPREFIXED_SETTINGS = "data", "partition", "loss", "method", "estimator", "query", "server", "participation"


class Sweep:
    """All combinations of settings that are lists; the last list varies fastest.

    Parameters
    ----------
    settings : mapping
        Settings by name, each a value or a list. Each mapping of the list ``part`` is a sweep of its own that
        inherits the other settings. ``methods`` lists methods to compare, or is "all": these have their
        presets and, by default, a trusted server.
    where : str
        Origin of the settings, such as a file name, with which error messages begin.
    overrides : mapping, optional
        Settings that replace those of every part.

    Raises
    ------
    InputError
        For invalid settings, and for two results of the same file name.
    """

    def __init__(
        self, settings: Mapping[str, Any], where: str = "", overrides: Mapping[str, Any] | None = None
    ) -> None:
        overrides, prefix = dict(overrides or {}), f"{where}: " if where else ""
        common = {name: value for name, value in settings.items() if name != "part"}
        methods = overrides.pop("methods", common.pop("methods", None))
        self.compares_methods, self._exclusion_reasons = methods is not None, dict[str, str]()
        if self.compares_methods:
            # The first list varies slowest.
            common = {"method": None, "server": "trusted", **common}
            overrides["method"] = _parse_methods(methods, prefix)
        parts = settings.get("part", [{}])
        if not (isinstance(parts, list) and parts and all(isinstance(part, dict) for part in parts)):
            raise InputError(
                f"{prefix}part is not a list of tables. Begin each part of the sweep with [[part]]"
            )
        varying = [name for name, value in common.items() if isinstance(value, list)]
        varying += [name for part in parts for name in part]
        self.swept = [name for name in dict.fromkeys(varying) if name not in overrides]
        if self.compares_methods:
            self.swept.insert(0, "method")
        products = [self._build_experiments({**common, **part, **overrides}, where, prefix) for part in parts]
        self.experiments = list(dict.fromkeys(itertools.chain(*products)))
        self.require_runs(len(self.experiments))
        self._check_distinct_names(prefix)

    def select(self, index: int | None, part: tuple[int, int] = (0, 1)) -> list[tuple[int, Experiment]]:
        """Return experiments with their indices: the one at `index`, or for `part` (k, n) every n-th."""
        numbered, count = list(enumerate(self.experiments)), len(self.experiments)
        if index is None:
            first, step = part
            return numbered[first::step]
        if not 0 <= index < count:
            raise InputError(f"--index must be between 0 and {count - 1} (the last run), got {index}")
        return [numbered[index]]

    def file_name(self, experiment: Experiment) -> str:
        """Return the file name of a result, made of the settings that the sweep varies."""
        return result_name(experiment, self.swept)

    @property
    def exclusions(self) -> list[str]:
        """One line per excluded combination of compared methods, with the reason."""
        return [
            f"{what} is left out: {'; '.join(why.splitlines())}"
            for what, why in self._exclusion_reasons.items()
        ]

    def exclude(self, settings: Mapping[str, Any], error: InputError) -> None:
        """Exclude settings that a compared method does not support; raise the error if none are compared."""
        if not self.compares_methods:
            raise error
        swept = [f"{name} = {settings[name]}" for name in self.swept if name in settings and name != "seed"]
        self._exclusion_reasons[", ".join(swept)] = str(error)

    def require_runs(self, count: int) -> None:
        """Raise InputError if all runs are excluded, with the reasons, or with a reason common to all."""
        if self._exclusion_reasons and not count:
            reasons = set(self._exclusion_reasons.values())
            raise InputError(reasons.pop() if len(reasons) == 1 else "\n".join(self.exclusions))

    def _build_experiments(self, settings: Mapping[str, Any], where: str, prefix: str) -> list[Experiment]:
        """Return the experiments of all combinations of the settings that are lists."""
        experiments = []
        for combination in _combinations(settings, prefix):
            if self.compares_methods and "preset" in lookup("methods", combination["method"]).presets:
                combination = {"preset": default_name("presets"), **combination}
            try:
                experiments.append(Experiment.from_settings(combination, where))
            except InputError as error:
                self.exclude(combination, error)
        if len(set(experiments)) < len(experiments):
            raise InputError(f"{prefix}two combinations of the lists are the same experiment. Remove one")
        return experiments

    def _check_distinct_names(self, prefix: str) -> None:
        named: dict[str, Experiment] = {}
        for experiment in self.experiments:
            name = self.file_name(experiment)
            # Some file systems do not distinguish upper and lower case.
            other = named.setdefault(name.casefold(), experiment)
            if other is not experiment:
                one, two = (
                    ", ".join(f"{name} = {getattr(each, name)!r}" for name in self.swept)
                    for each in (other, experiment)
                )
                raise InputError(
                    f"{prefix}the results of {one} and of {two} would both be called {name}. Rename the "
                    "values, or use two sweeps with different --output"
                )


def _parse_methods(methods: Any, prefix: str) -> list[str]:
    """Parse the names of the methods to compare; InputError for unknown ones."""
    known = known_names("methods")
    wanted = methods.split(",") if isinstance(methods, str) else methods
    wanted = known if wanted == ["all"] else wanted
    unknown = [str(name) for name in wanted if name not in known] if isinstance(wanted, list) else [""]
    if unknown or not wanted:
        meant = did_you_mean("".join(unknown[:1]), known)
        hint = meant or f"; it should be all, or some of {', '.join(known)}"
        raise InputError(f"{prefix}methods = {methods!r} has an unknown method{hint}")
    return list(dict.fromkeys(wanted))


def _combinations(settings: Mapping[str, Any], prefix: str) -> Iterator[dict[str, Any]]:
    """Yield all combinations of the settings that are lists, as settings by name."""
    lists = {name: value if isinstance(value, list) else [value] for name, value in settings.items()}
    for name, values in lists.items():
        if not values or len({repr(value) for value in values}) < len(values):
            raise InputError(f"{prefix}the list of {name} is empty or repeats a value: {values}")
        if any(isinstance(value, list | dict) for value in values):
            raise InputError(
                f"{prefix}{name} contains a list in a list, or a table. Use one list, as {name} = [a, b], "
                "and [[part]] tables for combinations"
            )
    if (count := math.prod(map(len, lists.values()))) > MAX_RUNS:
        raise InputError(
            f"{prefix}a sweep must have at most {MAX_RUNS:,} combinations, got {count:,}. Shorten its lists"
        )
    for combined in itertools.product(*lists.values()):
        yield dict(zip(lists, combined, strict=True))


def result_name(experiment: Experiment, swept: Sequence[str] = ()) -> str:
    """Return a file name such as ``trusted_rho-4_seed-1.h5``, made of swept or else of explicit settings."""
    given = (
        "epsilon" if name == "rho" and experiment.epsilon is not None else name
        for name in swept or _naming_settings(experiment)
    )
    settings = [(name, value) for name in given if (value := getattr(experiment, name)) is not None]
    if swept:
        parts = [_slug(v) if isinstance(v, str) else _format_number(name, v) for name, v in settings]
    else:
        parts = [_format_setting(name, value) for name, value in settings]
        if any(map(_is_ambiguous, *zip(*settings, strict=True))):
            parts.append(hashlib.sha256(repr(settings).encode()).hexdigest()[:8])
    name = "_".join(filter(None, parts)) or "run"
    if len(name.encode()) > MAX_NAME_BYTES:
        # Cutting bytes may split a letter, whose rest is dropped.
        start = name.encode()[:MAX_NAME_BYTES].decode(errors="ignore")
        name = f"{start}_{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return f"{name}.h5"


def _naming_settings(experiment: Experiment) -> Iterator[str]:
    """Yield the settings of a file name outside of a sweep: the main ones, and all others than defaults."""
    defaults = experiment.defaults
    first = ["data", "loss", "method", "mechanism", *type(experiment.options).model_fields]
    always = ["data", "server", "machines", "rho", "seed"]
    yield from (name for name in first if name in always or getattr(experiment, name) != defaults[name])
    yield from always[1:-1]
    others = (name for name in option_fields() if name not in (*first, *always, "epsilon"))
    yield from (name for name in others if name in defaults and getattr(experiment, name) != defaults[name])
    yield always[-1]


def _slug(text: str) -> str:
    return re.sub(r"[^\w.+-]+", "-", text).strip("-.")


def _format_number(name: str, value: object) -> str:
    return f"{name.replace('_', '-')}-{repr(value).removesuffix('.0')}"


def _format_setting(name: str, value: object) -> str:
    """Format a setting for a file name: files without folders, and values of UNPREFIXED_SETTINGS alone."""
    if not isinstance(value, str):
        return name.replace("_", "-") if value is True else _format_number(name, value)
    kind, colon, path = value.rpartition(":")
    text = _slug(f"{kind}{colon}{path.rpartition('/')[2]}")[:MAX_VALUE_LETTERS]
    return text if name in UNPREFIXED_SETTINGS else f"{name.replace('_', '-')}-{text}"


def _is_ambiguous(name: str, value: object) -> bool:
    """Return whether another value of the setting could have the same text in a file name."""
    if not isinstance(value, str):
        return False
    joins = "_" in value and name != "data"
    return joins or len(value) > MAX_VALUE_LETTERS or _slug(value) != value.replace(":", "-")
