"""Loss against the share of machines that takes part, for each method and its noise."""

from collections.abc import Sequence

from mu2mpi.analysis.figures._encoding import draw_exponents, varying_on_data
from mu2mpi.analysis.figures.figure import Figure, Page, Sheet
from mu2mpi.analysis.setting_labels import refusal
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.federation.participation.schedule import schedule_of
from mu2mpi.results.reader import Summary

# Settings that follow from the share, or may be others with each
POOLED = ("participation", "participation_seed", "rounds", "samples", "batch")
OF_LINES = ("method", "mechanism", "estimator", "query", "noise_correlation", "noise_buffers", "clip_norm")


@register
class ParticipationFigure(Figure):
    name = "participation"
    needs = "test_loss"

    def is_reported(self, runs: Sequence[Summary]) -> bool:
        return len({run.experiment.participation for run in runs}) > 1

    def draw(self, runs: Sequence[Summary], page: Page, against: str | None = None) -> Sheet:
        """Draw excess losses, or test losses where those are unknown, with fitted exponents of the share."""
        if len({_share(run) for run in runs}) < 2:
            which = "differ in --participation, such as those of jobs/participation.toml"
            raise InputError(f"participation is drawn of runs that {which}")
        names = [name for name in varying_on_data(runs) if name not in POOLED]
        panels = [name for name in names if name not in OF_LINES]
        lines = [name for name in names if name in OF_LINES]
        axis = _share, "share of machines there", "the share"
        parts = panels, lines, ()
        return draw_exponents(runs, page, lambda run: run.own_settings, parts, *axis, _line_name)


def _share(run: Summary) -> float:
    schedule, value = schedule_of(run.experiment.participation)
    share = schedule.expected_share(value, run.experiment.machines or 1)
    if share is None:
        raise refusal(f"{run.path} has participation = {schedule.name}, which has no share", "participation")
    return float(share)


def _line_name(run: Summary) -> str:
    method, power = run.experiment.chosen_method, run.experiment.noise_correlation
    if power:
        return f"{method.title}, noise_correlation = {power:g}"
    if method.estimator.lasts:
        return f"{method.title}, noise {'taken back' if power is None else 'added up'}"
    return str(method.title)
