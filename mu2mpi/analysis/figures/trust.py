"""Loss against the number of machines, a line for each trust mode and share of machines that may collude."""

from collections.abc import Sequence
from fractions import Fraction

from mu2mpi.analysis.cells import Key, sort_key
from mu2mpi.analysis.figures.curves import encoded
from mu2mpi.analysis.figures.lines import Across, by_panel, draw_lines
from mu2mpi.analysis.figures.style import Figure, Page
from mu2mpi.analysis.groups import Group, grouped
from mu2mpi.analysis.settings import varying
from mu2mpi.errors import InputError
from mu2mpi.federation.servers.base import TENTH
from mu2mpi.results.reader import Summary

APART = ("server", "colluders", "masks", "shuffle", "machines", "rounds", "samples", "batch")
"""Settings that lines and points are for, or that follow from these."""

SWITCHES = ("method", "estimator", "query")
"""Settings that choose a method, of which a panel has the title."""

WIDEST, NARROWER = 2.6, 0.5
"""Widths of lines, which become narrower from server to server: those that lie on others cover none."""


def draw(runs: Sequence[Summary], page: Page) -> Figure:
    """Draw losses against M, with fitted exponents; a panel for each data set and rho."""
    if len({run.experiment.machines for run in runs}) < 2:
        raise InputError("trust is drawn of runs that differ in --machines, such as those of jobs/trust.toml")
    vary = [name for name in varying(runs) if name not in APART]
    names = [*dict.fromkeys("method" if name in SWITCHES else name for name in ("rho", *vary))]
    groups = _lines(runs, names)
    _check_points(groups, page)
    encoding = encoded(groups, page, panels=(), colours=("server",), styles=("share",))
    servers = list(dict.fromkeys(group.settings["server"] for group in groups))
    for group, _, look in encoding.groups:
        look["linewidth"] = WIDEST - NARROWER * servers.index(group.settings["server"])
    across = Across(lambda run: run.experiment.machines or 1, "machines M", "M")
    panels = by_panel(groups, names, page, always=("rho",))
    return draw_lines(encoding, ("server", "share"), panels, across, _words, page)


def _lines(runs: Sequence[Summary], names: Sequence[str]) -> list[Group]:
    """Return the runs of each line of a panel, the panels of which differ in `names`."""
    numbers: dict[int | None, set[int]] = {}
    for run in runs:
        if run.experiment.colluders is not None:
            numbers.setdefault(run.experiment.machines, set()).add(run.experiment.colluders)
    is_number = len({frozenset(each) for each in numbers.values()}) == 1
    lines: dict[Key, Group] = {}
    for run in runs:
        share = Fraction(run.experiment.colluders or 0) if is_number else _share(run)
        settings = {
            "server": run.experiment.server,
            "share": share,
            **{name: run.row[name] for name in names},
        }
        if "method" in names:
            settings["method"] = run.experiment.chosen_method.title
        lines.setdefault(tuple(settings.values()), Group(settings, [])).runs.append(run)
    return [lines[key] for key in sorted(lines, key=sort_key)]


def _check_points(lines: Sequence[Group], page: Page) -> None:
    """Raise an InputError where runs of one line and M differ in more than their seeds."""
    for line in lines:
        for point in grouped(line.runs, ["machines"]):
            unsent = point.runs[0].experiment.trust.unsent
            if names := [name for name in varying(point.runs) if name not in unsent]:
                raise InputError(
                    f"runs of {_words(line, page)}, and M = {point.settings['machines']} differ in "
                    f"{', '.join(names)}; choose some with --where {names[0]}=..."
                )


def _share(run: Summary) -> Fraction:
    """Return which share of the machines may work together with the server; the default is rounded up."""
    asked, machines = run.experiment, run.experiment.machines or 1
    number, usual = asked.colluders or 0, -(-machines // TENTH)
    return Fraction(1, TENTH) if number == usual else Fraction(number, machines)


def _words(group: Group, page: Page) -> str:
    """Return what a line is called: the server, and how many machines may work together with it."""
    server, share = page.words.of({"server": group.settings["server"]}), group.settings["share"]
    if group.runs[0].experiment.colluders is None:
        return server
    if share.denominator == 1:
        return f"{server}, c = {share}"
    return f"{server}, c = {share.numerator if share.numerator > 1 else ''}M/{share.denominator}"
