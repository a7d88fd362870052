"""What a loss is to the rest of the package: kernels for one sample, and the constants of theory."""

import hashlib
import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mu2mpi.kernels import specialised
from mu2mpi.problem.linear import all_margins, loss, residual, sum_outer_products

Array = NDArray[np.float64]


class Constants(NamedTuple):
    """What theory asks of a loss: G, which no gradient's norm passes, and L, its smoothness."""

    G: float
    L: float


class Problem(ABC):
    """A convex loss of the margins x z of a linear model with one row of weights for each of K classes.

    `name` is what the user calls it. `residual` and `loss` are `numba.njit` of ``(margins, label)``: one
    turns margins, shape (K,), in place into the derivative r of the loss by them, so that the gradient is
    r z^T; the other returns the loss, and whether the model is right.
    """

    kind: ClassVar[str] = "problems"
    name: ClassVar[str]
    residual: Callable[..., Any]
    loss: Callable[..., Any]

    @abstractmethod
    def constants(self, square: float, radius: float, classes: int) -> Constants:
        """Return G and L, where no ||z||^2 passes the square, and no ||x|| the radius of the feasible set."""

    def roundings(self, classes: int) -> float | None:
        """Return by how many roundings of G a gradient may be off, but for margins; None if unknown."""
        return None

    def kernel(self, template: Callable[..., Any]) -> Any:
        """Return a kernel with this problem's `residual` and `loss` in place of those that it names."""
        return specialised(template, self._tag, residual=self.residual, loss=self.loss)

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

    def residual_at(self, margins: Array, label: int) -> Array:
        """Return the residual of one sample, shape (K,), without a kernel."""
        found = margins.copy()
        self.residual.py_func(found, label)  # type: ignore[attr-defined]
        return found

    def losses_and_residuals(self, margins: Array, labels: NDArray[np.int32]) -> tuple[Array, Array]:
        """Return the loss of each sample, shape (n,), and its residual, shape (n, K)."""
        losses, residuals = np.empty(len(labels)), margins.copy()
        self.kernel(fill_losses_and_residuals)(residuals, labels, losses)
        return losses, residuals

    def loss_and_gradient(self, x: Array, z: Array, labels: NDArray[np.int32]) -> tuple[float, Array]:
        """Return the summed loss of some samples z, shape (n, F), and its gradient, shape (K, F)."""
        losses, residuals = self.losses_and_residuals(all_margins(x, z), labels)
        return float(np.sum(losses)), sum_outer_products(residuals, z)

    def expected(self, x: Array, z: Array, weights: Array) -> tuple[float, Array]:
        """Return the sum of losses with weights for each sample and class, shape (n, K), and its gradient."""
        total, slopes, margins = 0.0, np.zeros(weights.shape), all_margins(x, z)
        for label, of_label in enumerate(weights.T):
            losses, residuals = self.losses_and_residuals(margins, np.full(len(z), label, np.int32))
            total += float(np.sum(of_label * losses))
            slopes += of_label[:, np.newaxis] * residuals
        return total, sum_outer_products(slopes, z)

    def probability_right(self, x: Array, z: Array, weights: Array) -> float:
        """Return the sum of weights of those samples and classes of which the model is right."""
        classes = all_margins(x, z).argmax(axis=1)
        return float(np.sum(weights[np.arange(len(z)), classes]))


def fill_losses_and_residuals(margins: Any, labels: Any, losses: Any) -> None:
    """Turn the margins of each sample into its residual, and write its loss."""
    for i in range(labels.size):
        losses[i], _ = loss(margins[i], labels[i])
        residual(margins[i], labels[i])
