"""Loss against the share of machines that takes part in a round, a line for each method and its noise."""

from collections.abc import Sequence

from mu2mpi.analysis.cells import sort_key
from mu2mpi.analysis.figures.curves import encoded, key_of
from mu2mpi.analysis.figures.lines import Across, by_panel, draw_lines
from mu2mpi.analysis.figures.style import Figure, Page
from mu2mpi.analysis.groups import Group, grouped
from mu2mpi.analysis.settings import varying
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary

APART = ("participation", "participation_seed", "rounds", "samples", "batch")
"""Settings that follow from the share, or may be others with each."""

OWN = ("method", "mechanism", "estimator", "query", "noise_correlation", "noise_buffers", "clip_norm")
"""Settings in which lines may differ."""


def draw(runs: Sequence[Summary], page: Page) -> Figure:
    """Draw excess losses where they are known, and else test losses, with fitted exponents of the share."""
    shares = {id(run): _share(run) for run in runs}
    if len(set(shares.values())) < 2:
        raise InputError(
            "participation is drawn of runs that differ in --participation all, uniform:m or bernoulli:p, "
            "such as those of jobs/participation.toml"
        )
    names = [name for name in varying(runs) if name not in APART]
    own = [name for name in names if name in OWN]
    groups = sorted(grouped(runs, names), key=lambda group: sort_key(key_of(group, own)))
    encoding = encoded(groups, page, panels=(), colours=own, styles=())
    across = Across(_share, "share of machines there", "the share")
    panels = by_panel(groups, [name for name in names if name not in own], page)
    return draw_lines(encoding, own, panels, across, _words, page)


def _share(run: Summary) -> float:
    """Return which share of the machines is expected in a round."""
    kind, _, value = (run.experiment.participation or "all").partition(":")
    match kind:
        case "all":
            return 1.0
        case "uniform":
            return int(value) / (run.experiment.machines or 1)
        case "bernoulli":
            return float(value)
    raise InputError(f"{run.path} has participation = {kind}, which has no share; choose others with --where")


def _words(group: Group, page: Page) -> str:
    """Return what a line is called: the method, and what becomes of its noise."""
    run = group.runs[0]
    method, power = run.experiment.chosen_method, run.experiment.noise_correlation
    if power:
        return f"{method.title}, noise_correlation = {power:g}"
    if method.estimator.lasts:
        return f"{method.title}, noise {'taken back' if power is None else 'added up'}"
    return method.title
