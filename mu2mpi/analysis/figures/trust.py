"""Loss against the number of machines, a line for each trust mode and share of machines that may collude."""

from collections.abc import Sequence

from mu2mpi.analysis.cells import Key, sort_key
from mu2mpi.analysis.collusion import colluders_of, share_text
from mu2mpi.analysis.figures.curves import encoded
from mu2mpi.analysis.figures.lines import Across, by_panel, draw_lines
from mu2mpi.analysis.figures.style import Figure, Page
from mu2mpi.analysis.groups import Group, grouped
from mu2mpi.analysis.settings import own_settings, privacy_of, varying
from mu2mpi.errors import InputError
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
    privacy = privacy_of(runs)
    names = [*dict.fromkeys("method" if name in SWITCHES else name for name in (*privacy, *vary))]
    groups = _lines(runs, names)
    _check_points(groups, page)
    encoding = encoded(groups, page, panels=(), colours=("server",), styles=("share",))
    servers = list(dict.fromkeys(group.settings["server"] for group in groups))
    for group, _, look in encoding.groups:
        look["linewidth"] = WIDEST - NARROWER * servers.index(group.settings["server"])
    across = Across(lambda run: run.experiment.machines or 1, "machines M", "M")
    panels = by_panel(groups, names, page, always=privacy)
    return draw_lines(encoding, ("server", "share"), panels, across, _words, page)


def _lines(runs: Sequence[Summary], names: Sequence[str]) -> list[Group]:
    """Return the runs of each line of a panel, the panels of which differ in `names`."""
    colluders = colluders_of(runs)
    lines: dict[Key, Group] = {}
    for run in runs:
        own = own_settings(run)
        settings = {
            "server": run.experiment.server,
            "share": colluders(run),
            **{name: own[name] for name in names},
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


def _words(group: Group, page: Page) -> str:
    """Return what a line is called: the server, and how many machines may work together with it."""
    server, share = page.words.of({"server": group.settings["server"]}), group.settings["share"]
    return server if share is None else f"{server}, {page.words.name('colluders')} = {share_text(share)}"
