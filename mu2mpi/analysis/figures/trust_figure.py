"""Loss against M, for each trust mode and share of machines that may work together with the server."""

from collections.abc import Sequence
from typing import Any

from mu2mpi.analysis.figures._encoding import draw_exponents, varying_on_data
from mu2mpi.analysis.figures.figure import Figure, Page, Sheet
from mu2mpi.analysis.setting_labels import by_rows, colluders_of, privacy_of, refusal, share_text, varying
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.results.reader import Summary

# Settings of lines and points, or that follow from these
POOLED = ("server", "colluders", "masks", "shuffle", "machines", "rounds", "samples", "batch")
METHOD = ("method", "estimator", "query")  # Settings that choose a method, of which a panel has the title


@register
class TrustFigure(Figure):
    name = "trust"
    needs = "test_loss"

    def is_reported(self, runs: Sequence[Summary]) -> bool:
        sizes = {run.experiment.machines for run in runs}
        return len(sizes) > 1 and any(run.experiment.colluders is not None for run in runs)

    def draw(self, runs: Sequence[Summary], page: Page, against: str | None = None) -> Sheet:
        """Draw losses against M, with fitted exponents; a panel for each data set and privacy."""
        if len({run.experiment.machines for run in runs}) < 2:
            raise InputError("trust needs runs that differ in --machines, as those of jobs/trust.toml")
        colluders, panels = colluders_of(runs), [*privacy_of(runs), *varying_on_data(runs)]
        panels = [*dict.fromkeys("method" if n in METHOD else n for n in panels if n not in POOLED)]

        def row_of(run: Summary) -> dict[str, Any]:
            title = {"method": run.experiment.chosen_method.title} if "method" in panels else {}
            return {**run.own_settings, **title, "server": run.experiment.server, "share": colluders(run)}

        def line_name(run: Summary) -> str:
            server, share = page.words.of({"server": run.experiment.server}), colluders(run)
            if share is None:
                return server
            return f"{server}, {page.words.name('colluders')} = {share_text(share)}"

        for point in by_rows(runs, [*panels, "server", "share", "machines"], row_of).values():
            if differ := [name for name in varying(point) if name not in point[0].experiment.trust.unsent]:
                at = f"{line_name(point[0])}, and M = {point[0].experiment.machines}"
                raise refusal(f"runs of {at} differ in {', '.join(differ)}", differ[0])
        parts = panels, ["server"], ["share"]
        return draw_exponents(
            runs, page, row_of, parts, lambda run: run.experiment.machines or 1, "machines M", "M", line_name
        )
