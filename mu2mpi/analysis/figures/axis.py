"""What is across: privacy, or any setting, as numbers where it has them, and else as names."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mu2mpi.analysis.cells import by_settings
from mu2mpi.analysis.figures.style import Axes, Page
from mu2mpi.analysis.figures.ticks import plain_log_ticks
from mu2mpi.analysis.settings import is_settled, privacy_of, settings_of, varying
from mu2mpi.analysis.words import PRIVACY
from mu2mpi.results.reader import Summary

FOLLOWING = ("rounds", "machines", "samples", "batch")
"""Settings that often change with another, and make no lines where they do."""

COUNTED = ("seed", "data_seed", "participation_seed")

MOST_TICKS = 8


@dataclass(frozen=True)
class Axis:
    """A horizontal axis: the place of each run, what it says, and which settings make no lines beside it."""

    place: Callable[[Summary], float]
    """Infinite for privacy of a run without noise."""
    label: str
    ticks: list[float]
    names: list[str] | None
    """What is at the ticks, where these are no numbers."""
    apart: tuple[str, ...]
    is_counted: bool = False
    """Whether numbers only tell apart, as seeds do, and twice as much means nothing."""

    def scale(self, panel: Axes, page: Page) -> None:
        """Make a panel's axis logarithmic for numbers above 0, and else even."""
        if self.names is not None:
            panel.set_xticks(self.ticks, self.names)
            panel.set_xlim(-0.5, len(self.names) - 0.5)
        elif self.is_counted:
            panel.locator_params(axis="x", integer=True)
        elif not page.linear and self.ticks[0] > 0:
            panel.set_xscale("log")
            ticks = self.ticks
            plain_log_ticks(
                panel.xaxis, ticks if len(ticks) <= MOST_TICKS else ticks[:: len(ticks) // MOST_TICKS + 1]
            )


def usual_axis(runs: Sequence[Summary]) -> str:
    """Return privacy as it was set, or the first other number that varies where privacy does not."""
    privacy, vary = privacy_of(runs)[0], varying(runs)
    numbers = (name for name in vary if _are_numbers(_values(runs, name)))
    return privacy if {*PRIVACY} & {*vary} else next(numbers, privacy)


def axis_of(runs: Sequence[Summary], against: str, page: Page) -> Axis:
    """Return the axis of a setting."""
    name = page.words.name(against)
    if against in PRIVACY:
        place = _epsilon if against == "epsilon" else lambda run: run.experiment.rho
        exact = any(run.experiment.epsilon is None for run in runs) and against == "epsilon"
        deltas = ", ".join(f"{delta:g}" for delta in sorted({run.experiment.delta for run in runs}))
        said = f"{'exact ' * exact}{name} at δ = {deltas}" if against == "epsilon" else f"privacy {name}"
        ticks = sorted({x for run in runs if math.isfinite(x := place(run))})
        return Axis(place, f"{said}  (less private →)", ticks, None, (*PRIVACY, "delta"))
    values, apart = _values(runs, against), _apart(runs, against)
    label = f"{against.replace('_', ' ')} {name}" if len(name) == 1 else name
    if _are_numbers(values):
        return Axis(
            lambda run: float(settings_of(run)[against]),
            label,
            [*map(float, values)],
            None,
            apart,
            against in COUNTED,
        )
    names = [page.words.in_table(against, value) for value in values]
    ticks = [*map(float, range(len(values)))]
    return Axis(lambda run: ticks[values.index(settings_of(run)[against])], label, ticks, names, apart)


def _epsilon(run: Summary) -> float:
    """Return the epsilon that was asked for, or the exact one."""
    return run.figures["epsilon_exact"] if run.experiment.epsilon is None else run.experiment.epsilon


def _values(runs: Sequence[Summary], name: str) -> list[Any]:
    """Return which values a setting has, in the order of tables."""
    return [value for (value,) in by_settings(runs, [name])]


def _are_numbers(values: Iterable[Any]) -> bool:
    """Return whether all values have a place on an axis of numbers."""
    return all(
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        for value in values
    )


def _apart(runs: Sequence[Summary], against: str) -> tuple[str, ...]:
    """Return the settings that part no lines: what is across, and sizes that change with it alone."""
    names, apart = [name for name in varying(runs) if name != against], [against]
    rows = [settings_of(run) for run in runs]
    for name in FOLLOWING:
        if name in names:
            others = [other for other in names if other != name]
            if is_settled(name, [against, *others], rows):
                names.remove(name)
                apart.append(name)
    return tuple(apart)
