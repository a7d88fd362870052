"""A figure in a notebook that grows while a run goes on."""

import io
import sys
from time import monotonic
from typing import TYPE_CHECKING, Any

from mu2mpi.core.errors import needed
from mu2mpi.results.observer import Evaluation, Observer, Start

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MIN_SECONDS, MAX_SHARE = 1.0, 0.05  # Seconds between drawings, and the share of the time that they may take


class LiveFigure(Observer):
    """Draws loss and score against rounds as they are measured, below the cell of a notebook.

    Each run gets a figure of its own. The last one is `figure`, also where there is no notebook to show it.

    Examples
    --------
    >>> live = mu2mpi.LiveFigure()
    >>> result = mu2mpi.run({"machines": 10, "server": "trusted"}, observers=[live])
    >>> len(live.figure.axes)
    2
    """

    figure: "Figure"

    def __init__(self) -> None:
        needed("matplotlib")

    def on_start(self, start: Start) -> None:
        """Begin a figure."""
        from matplotlib.figure import Figure

        self._done: list[Evaluation] = []
        self._handle: Any = None
        self._next = monotonic()
        self.figure = Figure(figsize=(7, 2.8), layout="constrained")
        self.figure.suptitle(f"{start.name}: {start.experiment.data}, {start.experiment.server} server")
        for panel in self.figure.subplots(1, 2):
            panel.set(xscale="log", xlim=(0.9, 1.1 * start.constants.rounds), xlabel="round t")
            panel.plot([], [], marker=".")

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Draw the figure again, unless that is too soon."""
        self._done.append(evaluation)
        if (began := monotonic()) >= self._next:
            self._draw()
            self._next = began + max(MIN_SECONDS, (monotonic() - began) / MAX_SHARE)

    def on_close(self) -> None:
        """Draw all points."""
        if self._done:
            self._draw()

    def _draw(self) -> None:
        done = self._done
        score, factor = ("accuracy (%)", 100.0) if done[-1].labels == "classes" else ("R²", 1.0)
        values = {"loss": [one.loss for one in done], score: [factor * one.score for one in done]}
        for panel, (label, measured) in zip(self.figure.axes, values.items(), strict=True):
            panel.lines[0].set_data([one.round for one in done], measured)
            panel.set_ylabel(f"test {label}")
            panel.relim()
            panel.autoscale_view(scalex=False)
        if "IPython" not in sys.modules or sys.modules["IPython"].get_ipython() is None:
            return
        shown, picture = needed("IPython.display"), io.BytesIO()
        self.figure.savefig(picture, format="png", dpi=150)
        image = shown.Image(picture.getvalue(), width=672)
        if self._handle is None:
            self._handle = shown.display(image, display_id=True)
        else:
            self._handle.update(image)
