"""Loss against the share of machines that participate in a round, for each method and its noise."""

from collections.abc import Sequence
from operator import attrgetter

from mu2mpi.analysis.figures._encoding import draw_loss_with_exponents, varying_settings_within_data
from mu2mpi.analysis.figures.figure import Figure, FigureOptions, Layout
from mu2mpi.analysis.setting_labels import selection_error
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.federation.participation.schedule import parse_participation
from mu2mpi.results.reader import RunSummary

# Settings that may change with the share
POOLED_SETTINGS = ("participation", "participation_seed", "rounds", "samples", "batch")
NOISE_SETTINGS = ("mechanism", "noise_correlation", "noise_buffers", "clip_norm")
METHOD_AND_NOISE_SETTINGS = ("method", "estimator", "query", *NOISE_SETTINGS)


@register
class ParticipationFigure(Figure):
    name = "participation"
    required_column = "test_loss"
    report_settings = ("participation",)

    def draw(self, runs: Sequence[RunSummary], options: FigureOptions, x_axis: str | None = None) -> Layout:
        """Draw excess losses, or test losses where those are unknown, with fitted exponents of the share."""
        if len({_participating_share(run) for run in runs}) < 2:
            advice = "Use runs such as those of jobs/participation.toml"
            raise InputError(f"all runs have the same --participation. {advice}")
        varying = [name for name in varying_settings_within_data(runs) if name not in POOLED_SETTINGS]
        panels = [name for name in varying if name not in METHOD_AND_NOISE_SETTINGS]
        lines = [name for name in varying if name in METHOD_AND_NOISE_SETTINGS]
        axis = _participating_share, "share of participating machines", "the share"
        get_row, channels = attrgetter("independent_settings"), (panels, lines, ())
        return draw_loss_with_exponents(runs, options, get_row, channels, *axis, _line_label)


def _participating_share(run: RunSummary) -> float:
    schedule, value = parse_participation(run.experiment.participation)
    share = schedule.expected_share(value, run.experiment.machines or 1)
    if share is None:
        problem = f"{run.path} has participation = {schedule.name}, whose share varies"
        raise selection_error(problem, "participation")
    return float(share)


def _line_label(run: RunSummary) -> str:
    method, exponent = run.experiment.chosen_method, run.experiment.noise_correlation
    if exponent:
        return f"{method.title}, noise_correlation = {exponent:g}"
    if method.estimator.is_cumulative:
        return f"{method.title}, noise {'cancelled' if exponent is None else 'accumulated'}"
    return str(method.title)
