"""A figure in a notebook that grows while a run goes on."""

import importlib
import io
import sys
from time import monotonic
from typing import TYPE_CHECKING, Any

from mu2mpi.analysis.figures.curves import SCORES
from mu2mpi.extra import needed
from mu2mpi.results.observer import Evaluation, Observer, Start

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEAST_SECONDS, SHARE = 1.0, 0.05
"""From one drawing to the next, and which share of the time they may take: a run may be short."""


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

        self._rounds = start.schedule.rounds
        self._done: list[Evaluation] = []
        self._handle: Any = None
        self._next = monotonic()
        self.figure = Figure(figsize=(7, 2.8), layout="constrained")
        title = f"{start.name}: {start.experiment.data}, {start.experiment.server} server"
        self.figure.suptitle(title, fontsize=10)

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Draw the figure again, unless that is too soon."""
        self._done.append(evaluation)
        if monotonic() >= self._next:
            self._draw()

    def on_close(self) -> None:
        """Draw all points."""
        if self._done:
            self._draw()

    def _draw(self) -> None:
        began, labels = monotonic(), self._done[-1].labels
        axes = self.figure.axes or self.figure.subplots(1, 2).tolist()
        rounds = [done.round for done in self._done]
        _, label, factor = SCORES[labels]
        shown = (
            ("test loss", [done.loss for done in self._done]),
            (label, [factor * done.score for done in self._done]),
        )
        for panel, (label, values) in zip(axes, shown, strict=True):
            panel.clear()
            panel.plot(rounds, values, marker=".")
            panel.set(xscale="log", xlim=(0.9, 1.1 * self._rounds), xlabel="round t", ylabel=label)
        self._show()
        self._next = began + max(LEAST_SECONDS, (monotonic() - began) / SHARE)

    def _show(self) -> None:
        """Put the figure in the place of the one before it, where there is something to show it."""
        if "IPython" not in sys.modules or sys.modules["IPython"].get_ipython() is None:
            return
        shown = importlib.import_module("IPython.display")
        picture = io.BytesIO()
        self.figure.savefig(picture, format="png", dpi=150)
        image = shown.Image(picture.getvalue(), width=672)
        if self._handle is None:
            self._handle = shown.display(image, display_id=True)
        else:
            self._handle.update(image)
