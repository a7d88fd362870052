"""Base class of losses: numba kernels for one sample, and constants of the theory."""

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

from mu2mpi.core.kernels import compilation_error, specialise_kernel
from mu2mpi.losses.model.linear import all_margins, loss, residual, sum_outer_products

Array = NDArray[np.float64]
Labels = NDArray[np.int32] | Array  # classes from 0 on, or numbers in [-1, 1]


class LossConstants(NamedTuple):
    """Lipschitz and smoothness constants of a loss on the ball K."""

    G: float  # bound on the norm of a sample's gradient
    L: float  # Lipschitz constant of the gradient
    gradient_roundoffs: float | None = None  # rounding error given the margins, in 2^-53 G; None: unknown


class PracticalDefaults(NamedTuple):
    """Settings of a loss for the practical preset, for samples of norm 1 (docs/guides/practical.md)."""

    clip_norm: float | None = None  # of gradients; default: half of G on models whose margins are at most 1
    noise_std: float = 1.5  # noise std that a margin may accumulate
    max_margin: float = 100.0  # largest margin in the ball


class Loss(ABC):
    """Convex loss of the margins m = x z of a linear model x, shape (rows, F), and of a label."""

    kind: ClassVar[str] = "losses"
    name: ClassVar[str]  # value of the option --loss
    label_kind: ClassVar[Literal["classes", "numbers"]] = "classes"  # from 0 on, or in [-1, 1]
    unit: ClassVar[str] = "1"  # unit of the loss
    practical_defaults: ClassVar[PracticalDefaults] = PracticalDefaults()
    margin_meaning: ClassVar[str] = "the margin"  # what the margin of a row stands for
    # numba.njit of (margins, label): replaces a sample's margins by the derivative r; its gradient is r z^T.
    residual_kernel: ClassVar[Callable[..., Any]]
    # numba.njit of (margins, label): returns loss and score (is the class right, or the squared error).
    loss_kernel: ClassVar[Callable[..., Any]]

    @abstractmethod
    def constants(self, max_squared_norm: float, radius: float, classes: int) -> LossConstants:
        """Return G and L for samples with ||z||^2 <= max_squared_norm and models with ||x|| <= radius."""

    def model_rows(self, classes: int) -> int:
        """Return the number of rows of the model: by default one per class, or one for numbers."""
        return classes if self.label_kind == "classes" else 1

    def predict_classes(self, margins: Array) -> NDArray[np.int64]:
        """Return the predicted class of each sample, shape (n,), from margins of shape (n, rows)."""
        best: NDArray[Any] = margins.argmax(axis=1) if margins.shape[1] > 1 else margins[:, 0] > 0
        return best.astype(np.int64, copy=False)

    def scores(self, margins: Array) -> Array:
        """Return the score of each class, shape (n, K): its margin, or its probability if defined."""
        return np.hstack([-margins, margins]) if margins.shape[1] == 1 else margins

    def predict_numbers(self, margins: Array) -> Array:
        """Return the predicted number in [-1, 1] of each sample, shape (n,)."""
        return np.clip(margins[:, 0], -1.0, 1.0)

    def margin_to_label_units(self, low: float, high: float) -> tuple[float, float]:
        """Return factor and offset that convert a margin to the units of labels in [low, high]."""
        return (high - low) / 2, (high + low) / 2

    def check_label_range(self, low: float, high: float) -> None:  # noqa: B027 - most losses accept any
        """Raise InputError if the loss does not apply to labels in [low, high], in their own units."""

    def compile_kernel(self, template: Callable[..., Any]) -> Any:
        """Compile a template that calls `residual` and `loss` (`model.linear`) with this loss's kernels."""
        return specialise_kernel(
            template, self._cache_tag, residual=self.residual_kernel, loss=self.loss_kernel
        )

    def compilation_error(self) -> str | None:
        """Return a message that names the kernel that numba cannot compile, or None if it compiles both."""
        label = numba.int32 if self.label_kind == "classes" else numba.float64
        for name in ("residual_kernel", "loss_kernel"):
            if error := compilation_error(getattr(self, name), numba.float64[::1], label):
                return f"numba cannot compile {name} of {type(self).__name__} (--loss {self.name}): {error}"
        return None

    @cached_property
    def _cache_tag(self) -> str:
        """Name and digest of the loss's source: numba's cache checks only the template's file."""
        try:
            source = Path(inspect.getsourcefile(type(self)) or "").read_bytes()
        except (TypeError, OSError):
            # A class of a notebook or console has no file to digest.
            return f"{self.name}-{os.getpid()}-{id(self)}"
        # Cached code imports the module that it was compiled in, so equal sources need different tags.
        tagged_source = f"{type(self).__module__}\n".encode() + source
        return f"{self.name}-{hashlib.sha256(tagged_source).hexdigest()[:16]}"

    def losses_and_residuals(self, margins: Array, labels: Labels) -> tuple[Array, Array]:
        """Return the loss of each sample, shape (n,), and its residual, shape (n, rows)."""
        losses, residuals = np.empty(len(labels)), margins.copy()
        self.compile_kernel(fill_losses_and_residuals)(residuals, labels, losses)
        return losses, residuals

    def loss_and_gradient(self, x: Array, z: Array, labels: Labels) -> tuple[float, Array]:
        """Return the loss summed over samples z, shape (n, F), and its gradient, shape (rows, F)."""
        losses, residuals = self.losses_and_residuals(all_margins(x, z), labels)
        return float(np.sum(losses)), sum_outer_products(residuals, z)

    def expected_loss_and_gradient(
        self, x: Array, z: Array, weights: Array, label_values: Labels
    ) -> tuple[float, Array]:
        """Return loss and gradient summed over samples and K label values, with weights of shape (n, K)."""
        margins = all_margins(x, z)
        total, weighted_residuals = 0.0, np.zeros(margins.shape)
        for value, label_weights in zip(label_values, weights.T, strict=True):
            losses, residuals = self.losses_and_residuals(margins, np.full(len(z), value, label_values.dtype))
            total += float(np.sum(label_weights * losses))
            weighted_residuals += label_weights[:, np.newaxis] * residuals
        return total, sum_outer_products(weighted_residuals, z)


def fill_losses_and_residuals(margins: Any, labels: Any, losses: Any) -> None:
    """Write each sample's loss, and replace its margins by its residual; a template of a kernel."""
    for i in range(labels.size):
        losses[i], _ = loss(margins[i], labels[i])
        residual(margins[i], labels[i])
