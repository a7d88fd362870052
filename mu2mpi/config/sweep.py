"""Every combination of settings of which some are lists, and the names of their results."""

import hashlib
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mu2mpi.config.experiment import Experiment
from mu2mpi.config.experiment_options import option_fields
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import default, find, names
from mu2mpi.core.suggestions import did_you_mean

MOST_RUNS = 100_000
LONGEST_NAME, LONGEST_VALUE = 160, 40  # bytes of a name, of the 255 that file systems take; letters
# Settings whose values, all of them different, say what they are.
SPEAKING = "data", "partition", "loss", "method", "estimator", "query", "server", "participation"


class Sweep:
    """Every combination of settings of which some are lists; the last list varies fastest.

    Each mapping of the list ``part`` is a sweep of its own that inherits the rest; overrides hold in every
    part. The ``methods`` to compare, or ``all``, have their presets and a trusted server. Raises InputError,
    whose messages begin with `where`, for invalid settings, or results of one name.
    """

    def __init__(
        self, settings: Mapping[str, Any], where: str = "", overrides: Mapping[str, Any] | None = None
    ) -> None:
        overrides, at = dict(overrides or {}), f"{where}: " if where else ""
        common = {name: value for name, value in settings.items() if name != "part"}
        methods = overrides.pop("methods", common.pop("methods", None))
        self.compares, self._reasons = methods is not None, dict[str, str]()
        if self.compares:
            # The first list varies slowest.
            common = {"method": None, "server": "trusted", **common}
            overrides["method"] = _named(methods, at)
        parts = settings.get("part", [{}])
        if not (isinstance(parts, list) and parts and all(isinstance(part, dict) for part in parts)):
            raise InputError(f"{at}parts of a sweep are tables that begin with [[part]]")
        varying = [name for name, value in common.items() if isinstance(value, list)]
        varying += [name for part in parts for name in part]
        self.swept = [name for name in dict.fromkeys(varying) if name not in overrides]
        if self.compares:
            self.swept.insert(0, "method")
        products = [self._product({**common, **part, **overrides}, where, at) for part in parts]
        self.experiments = list(dict.fromkeys(itertools.chain(*products)))
        self.check_left(len(self.experiments))
        self._check_names(at)

    def choose(self, index: int | None, part: tuple[int, int] = (0, 1)) -> list[tuple[int, Experiment]]:
        """Return experiments with their indices: the one with this index, or every n-th from the k-th."""
        numbered, count = list(enumerate(self.experiments)), len(self.experiments)
        if index is None:
            first, step = part
            return numbered[first::step]
        if not 0 <= index < count:
            raise InputError(f"the sweep has {count} runs, so --index must lie in 0 .. {count - 1}")
        return [numbered[index]]

    def file_name(self, experiment: Experiment) -> str:
        """Return the name of an experiment's result, made of the settings that the sweep varies."""
        return result_name(experiment, self.swept)

    @property
    def left_out(self) -> list[str]:
        """What cannot be run of methods that are compared, and why."""
        return [f"{what} is left out: {'; '.join(why.splitlines())}" for what, why in self._reasons.items()]

    def leave_out(self, settings: Mapping[str, Any], error: InputError) -> None:
        """Note why a method cannot do what is asked for; or raise the error, if methods are not compared."""
        if not self.compares:
            raise error
        told = [f"{name} = {settings[name]}" for name in self.swept if name in settings and name != "seed"]
        self._reasons[", ".join(told)] = str(error)

    def check_left(self, count: int) -> None:
        """Raise InputError if no method can do what is asked for: once, if it is the same for all of them."""
        if self._reasons and not count:
            same = set(self._reasons.values())
            raise InputError(same.pop() if len(same) == 1 else "\n".join(self.left_out))

    def _product(self, settings: Mapping[str, Any], where: str, at: str) -> list[Experiment]:
        """Return every combination of the lists among some settings."""
        experiments = []
        for combination in _combinations(settings, at):
            if self.compares and "preset" in find("methods", combination["method"]).presets:
                combination = {"preset": default("presets"), **combination}
            try:
                experiments.append(Experiment.make(combination, where))
            except InputError as error:
                self.leave_out(combination, error)
        if len(set(experiments)) < len(experiments):
            raise InputError(f"{at}two combinations of the lists are the same experiment")
        return experiments

    def _check_names(self, at: str) -> None:
        named: dict[str, Experiment] = {}
        for experiment in self.experiments:
            name = self.file_name(experiment)
            # Some file systems take names for the same that differ in upper and lower case.
            other = named.setdefault(name.casefold(), experiment)
            if other is not experiment:
                one, two = (
                    ", ".join(f"{name} = {getattr(each, name)!r}" for name in self.swept)
                    for each in (other, experiment)
                )
                raise InputError(
                    f"{at}the results of {one} and of {two} would both be called {name}; rename what the "
                    "settings name, or put them into sweeps of their own, each with its own --output"
                )


def _named(methods: Any, at: str) -> list[str]:
    """Return the names of methods that are to be compared."""
    known = names("methods")
    wanted = methods.split(",") if isinstance(methods, str) else methods
    wanted = known if wanted == ["all"] else wanted
    unknown = [str(name) for name in wanted if name not in known] if isinstance(wanted, list) else [""]
    if unknown or not wanted:
        meant = did_you_mean("".join(unknown[:1]), known)
        some = meant or f"; it should be all, or some of {', '.join(known)}"
        raise InputError(f"{at}methods = {methods!r} has what is no method{some}")
    return list(dict.fromkeys(wanted))


def _combinations(settings: Mapping[str, Any], at: str) -> Iterator[dict[str, Any]]:
    """Yield every combination of the lists among some settings."""
    lists = {name: value if isinstance(value, list) else [value] for name, value in settings.items()}
    for name, values in lists.items():
        if not values or len({repr(value) for value in values}) < len(values):
            raise InputError(f"{at}the list of {name} is empty or repeats a value: {values}")
        if any(isinstance(value, list | dict) for value in values):
            raise InputError(
                f"{at}{name} holds a list in a list, or a table; a sweep takes one list, as {name} = [a, b], "
                "and [[part]] tables for combinations"
            )
    if (count := math.prod(map(len, lists.values()))) > MOST_RUNS:
        raise InputError(f"{at}its lists have {count:,} combinations, and {MOST_RUNS:,} are the most")
    for combined in itertools.product(*lists.values()):
        yield dict(zip(lists, combined, strict=True))


def result_name(experiment: Experiment, swept: Sequence[str] = ()) -> str:
    """Return a file name such as ``trusted_rho-4_seed-1.h5``, by default of what was given."""
    given = (
        "epsilon" if name == "rho" and experiment.epsilon is not None else name
        for name in swept or _telling(experiment)
    )
    settings = [(name, value) for name in given if (value := getattr(experiment, name)) is not None]
    if swept:
        parts = [_plain(v) if isinstance(v, str) else _number(name, v) for name, v in settings]
    else:
        parts = [_short(name, value) for name, value in settings]
        if any(map(_is_cut, *zip(*settings, strict=True))):
            parts.append(hashlib.sha256(repr(settings).encode()).hexdigest()[:8])
    name = "_".join(filter(None, parts)) or "run"
    if len(name.encode()) > LONGEST_NAME:
        # Letters may have several bytes, of which a part is none.
        start = name.encode()[:LONGEST_NAME].decode(errors="ignore")
        name = f"{start}_{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return f"{name}.h5"


def _telling(experiment: Experiment) -> Iterator[str]:
    """Yield the settings that name a result where no sweep says which ones vary: those that were given."""
    defaults = experiment.defaults
    first = ["data", "loss", "method", "mechanism", *type(experiment.options).model_fields]
    always = ["data", "server", "machines", "rho", "seed"]
    yield from (name for name in first if name in always or getattr(experiment, name) != defaults[name])
    yield from always[1:-1]
    others = (name for name in option_fields() if name not in (*first, *always, "epsilon"))
    yield from (name for name in others if name in defaults and getattr(experiment, name) != defaults[name])
    yield always[-1]


def _plain(text: str) -> str:
    return re.sub(r"[^\w.+-]+", "-", text).strip("-.")


def _number(name: str, value: object) -> str:
    return f"{name.replace('_', '-')}-{repr(value).removesuffix('.0')}"


def _short(name: str, value: object) -> str:
    """Return a setting in a name: files without their folders, and values that speak for themselves alone."""
    if not isinstance(value, str):
        return name.replace("_", "-") if value is True else _number(name, value)
    kind, colon, path = value.rpartition(":")
    text = _plain(f"{kind}{colon}{path.rpartition('/')[2]}")[:LONGEST_VALUE]
    return text if name in SPEAKING else f"{name.replace('_', '-')}-{text}"


def _is_cut(name: str, value: object) -> bool:
    """Return whether another value of a setting may have the same part in a name."""
    if not isinstance(value, str):
        return False
    joins = "_" in value and name != "data"
    return joins or len(value) > LONGEST_VALUE or _plain(value) != value.replace(":", "-")
