"""What a loss is to the rest of the package: kernels for one sample, and the constants of theory."""

import hashlib
import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.kernels import specialised, why_not_compiled
from mu2mpi.losses.model.linear import all_margins, loss, residual, sum_outer_products

Array = NDArray[np.float64]
Labels = NDArray[np.int32] | Array  # classes from 0 on, or numbers in [-1, 1]


class Constants(NamedTuple):
    """What theory asks of a loss: the bound G on norms of gradients, and the smoothness L.

    But for those of margins, a gradient as computed is off by so many `roundings` of G; None if unknown.
    """

    G: float
    L: float
    roundings: float | None = None


class Practical(NamedTuple):
    """Constants of a loss for the practical preset, for samples of norm 1 (docs/guides/practical.md)."""

    clip: float | None = None  # clipping norm of gradients; by default half of G where no margin exceeds 1
    noise: float = 1.5  # noise std that margins may accumulate
    reach: float = 100.0  # largest margin in the ball


class Problem(ABC):
    """A convex loss of the margins x z of a linear model, and of a label: a class, or a number in [-1, 1].

    The model has a row of weights for each class, by default. `residual` and `loss` are `numba.njit` of
    ``(margins, label)``: one turns margins, shape (rows,), in place into the derivative r of the loss by
    them, so that the gradient is r z^T; the other returns the loss, and whether the model is right, or the
    squared error of its prediction of a number. `margin` says what the margin of a row is.
    """

    kind: ClassVar[str] = "losses"
    name: ClassVar[str]
    labels: ClassVar[Literal["classes", "numbers"]] = "classes"
    unit: ClassVar[str] = "1"
    practical: ClassVar[Practical] = Practical()
    margin: ClassVar[str] = "the margin"
    residual: ClassVar[Callable[..., Any]]
    loss: ClassVar[Callable[..., Any]]

    @abstractmethod
    def constants(self, square: float, radius: float, classes: int) -> Constants:
        """Return the constants where no ||z||^2 passes the square, and no ||x|| the radius of the ball."""

    def rows(self, classes: int) -> int:
        """Return the number of rows of the model: by default K for classes, and one for numbers."""
        return classes if self.labels == "classes" else 1

    def best(self, margins: Array) -> NDArray[np.int64]:
        """Return the class of each of some samples, shape (n,), that the model takes for the best."""
        found: NDArray[Any] = margins.argmax(axis=1) if margins.shape[1] > 1 else margins[:, 0] > 0
        return found.astype(np.int64, copy=False)

    def scores(self, margins: Array) -> Array:
        """Return a number for each sample and class, shape (n, K): by default its margin."""
        return np.hstack([-margins, margins]) if margins.shape[1] == 1 else margins

    def predictions(self, margins: Array) -> Array:
        """Return the numbers in [-1, 1], shape (n,), that are expected of samples by their margins."""
        return np.clip(margins[:, 0], -1.0, 1.0)

    def own_units(self, low: float, high: float) -> tuple[float, float]:
        """Return by what a margin is multiplied, and what is added, in the units of labels of this range."""
        return (high - low) / 2, (high + low) / 2

    def check_range(self, low: float, high: float) -> None:  # noqa: B027 - most take all
        """Raise InputError if numbers of this range, in their own units, are none for this loss."""

    def kernel(self, template: Callable[..., Any]) -> Any:
        """Return a kernel with this problem's `residual` and `loss` in place of those that it names."""
        return specialised(template, self._tag, residual=self.residual, loss=self.loss)

    def fault(self) -> str | None:
        """Say which of its functions numba cannot compile, and why; None if it can compile both."""
        label = numba.int32 if self.labels == "classes" else numba.float64
        for name in ("residual", "loss"):
            if why := why_not_compiled(getattr(self, name), numba.float64[::1], label):
                return f"numba cannot compile {name} of {type(self).__name__} (loss = {self.name}): {why}"
        return None

    @cached_property
    def _tag(self) -> str:
        """The name, and what tells this source from others: numba's cache looks at the kernel's file."""
        try:
            source = Path(inspect.getsourcefile(type(self)) or "").read_bytes()
        except (TypeError, OSError):
            # Of a notebook or a console, where no file says what has changed.
            return f"{self.name}-{os.getpid()}-{id(self)}"
        # Compiled code, too, imports the module that it was compiled in.
        told_apart = f"{type(self).__module__}\n".encode() + source
        return f"{self.name}-{hashlib.sha256(told_apart).hexdigest()[:16]}"

    def losses_and_residuals(self, margins: Array, labels: Labels) -> tuple[Array, Array]:
        """Return the loss of each sample, shape (n,), and its residual, shape (n, rows)."""
        losses, residuals = np.empty(len(labels)), margins.copy()
        self.kernel(fill_losses_and_residuals)(residuals, labels, losses)
        return losses, residuals

    def loss_and_gradient(self, x: Array, z: Array, labels: Labels) -> tuple[float, Array]:
        """Return the summed loss of some samples z, shape (n, F), and its gradient, shape (rows, F)."""
        losses, residuals = self.losses_and_residuals(all_margins(x, z), labels)
        return float(np.sum(losses)), sum_outer_products(residuals, z)

    def expected(self, x: Array, z: Array, weights: Array, values: Labels) -> tuple[float, Array]:
        """Return loss and gradient summed over K labels of each sample, with weights of shape (n, K)."""
        margins = all_margins(x, z)
        total, slopes = 0.0, np.zeros(margins.shape)
        for value, of_label in zip(values, weights.T, strict=True):
            losses, residuals = self.losses_and_residuals(margins, np.full(len(z), value, values.dtype))
            total += float(np.sum(of_label * losses))
            slopes += of_label[:, np.newaxis] * residuals
        return total, sum_outer_products(slopes, z)


def fill_losses_and_residuals(margins: Any, labels: Any, losses: Any) -> None:
    """Turn the margins of each sample into its residual, and write its loss."""
    for i in range(labels.size):
        losses[i], _ = loss(margins[i], labels[i])
        residual(margins[i], labels[i])
