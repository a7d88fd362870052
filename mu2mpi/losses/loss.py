"""Base class of losses: numba kernels of one sample's loss and residual, and Lipschitz constants."""

import hashlib
import inspect
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.arrays import FloatArray, IntArray
from mu2mpi.core.kernels import find_compilation_error, specialise_kernel
from mu2mpi.losses.model.linear import all_margins, loss, residual, sum_outer_products

Labels = NDArray[np.int32] | FloatArray  # classes from 0 on, or numbers in [-1, 1]


class LossConstants(NamedTuple):
    """Lipschitz constant G and smoothness L of a loss over the feasible ball of models."""

    G: float  # bound on the norm of a sample's gradient
    L: float  # Lipschitz constant of the gradient
    # For objective perturbation, of losses with the same constants for all radii
    gradient_roundoffs: float | None = None  # gradient's rounding error from exact margins, in 2^-53 G
    curvature: float | None = None  # largest trace of the Hessian
    residual_vertices: int = 0  # of a polytope that holds a label's residuals, not counting 0; 0: unknown
    loss_at_zero: float | None = None  # largest loss at margins 0, less the smallest loss of the label


class PracticalDefaults(NamedTuple):
    """Clipping norm, noise std and largest margin of the practical preset, per loss, at samples of norm 1."""

    clip_norm: float | None = None  # of gradients; default: half of G on models whose margins are at most 1
    margin_noise_std: float = 1.5  # largest noise std of a trained model's margins
    max_margin: float = 100.0  # largest margin of models in the feasible ball


class Loss(ABC):
    """Convex loss of a label and the margins x z of a linear model x, shape (rows, F), on a sample z."""

    component_kind: ClassVar[str] = "losses"
    name: ClassVar[str]  # value of the option --loss
    label_kind: ClassVar[Literal["classes", "numbers"]] = "classes"  # 0 to K - 1, or numbers in [-1, 1]
    unit: ClassVar[str] = "1"  # unit of the loss
    practical_defaults: ClassVar[PracticalDefaults] = PracticalDefaults()
    margin_meaning: ClassVar[str] = "the margin"  # meaning of a margin, in descriptions of results
    # numba.njit of (margins, label): replaces a sample's margins by the derivative r; its gradient is r z^T.
    residual_kernel: ClassVar[Callable[..., Any]]
    # numba.njit of (margins, label): returns loss and score (class is correct, or squared error) of a sample.
    loss_kernel: ClassVar[Callable[..., Any]]

    @abstractmethod
    def constants(self, max_squared_norm: float, radius: float, classes: int) -> LossConstants:
        """Return the Lipschitz constants for samples of bounded norm and models in a ball about 0."""

    def curvature_at_zero(self, classes: int) -> float:
        """Return the curvature by margins of the loss's quadratic surrogate at 0: by default its largest."""
        return self.constants(1.0, 0.0, classes).L

    def zero_residual_bound(self, rows: int) -> float:
        """Return the largest norm of a residual at margins of 0, over classes or the ends of labels."""
        is_class = self.label_kind == "classes"
        labels = np.arange(max(2, rows), dtype=np.int32) if is_class else np.array([-1.0, 1.0])
        _, residuals = self.losses_and_residuals(np.zeros((len(labels), rows)), labels)
        return math.sqrt(np.sum(residuals**2, axis=1).max())

    def model_rows(self, classes: int) -> int:
        """Return the number of rows of the weight matrix: by default 1 per class, or 1 for numeric labels."""
        return classes if self.label_kind == "classes" else 1

    def predict_classes(self, margins: FloatArray) -> IntArray:
        """Return the predicted class of each sample, shape (n,), from margins of shape (n, rows)."""
        predicted: NDArray[Any] = margins.argmax(axis=1) if margins.shape[1] > 1 else margins[:, 0] > 0
        return predicted.astype(np.int64, copy=False)

    def class_scores(self, margins: FloatArray) -> FloatArray:
        """Return the score of each sample and class, shape (n, K): a margin, or a probability if defined."""
        return np.hstack([-margins, margins]) if margins.shape[1] == 1 else margins

    def predict_numbers(self, margins: FloatArray) -> FloatArray:
        """Return the predicted numeric label in [-1, 1] of each sample, shape (n,)."""
        return np.clip(margins[:, 0], -1.0, 1.0)

    def margin_to_label_units(self, label_low: float, label_high: float) -> tuple[float, float]:
        """Return the factor and offset that convert a margin to the units of labels."""
        return (label_high - label_low) / 2, (label_high + label_low) / 2

    def check_label_range(self, low: float, high: float) -> None:  # noqa: B027 - most losses accept any
        """Raise InputError if the loss does not support numeric labels in the unscaled range [low, high]."""

    def compile_kernel(self, template: Callable[..., Any], **constants: float) -> Any:
        """Compile a kernel template with this loss's kernels for `residual` and `loss`, and constants."""
        kernels = {"residual": self.residual_kernel, "loss": self.loss_kernel}
        cache_tag = "-".join([self._kernel_cache_tag, *map(str, constants.values())])
        return specialise_kernel(template, cache_tag, **kernels, **constants)

    def compilation_error(self) -> str | None:
        """Return the error message of the loss kernel that numba cannot compile, or None if both compile."""
        label_type = numba.int32 if self.label_kind == "classes" else numba.float64
        for kernel in ("residual_kernel", "loss_kernel"):
            if error := find_compilation_error(getattr(self, kernel), numba.float64[::1], label_type):
                return f"numba cannot compile {kernel} of {type(self).__name__} (--loss {self.name}): {error}"
        return None

    @cached_property
    def _kernel_cache_tag(self) -> str:
        """Name and source digest of a loss in numba's cache, which only checks the template's file."""
        try:
            source = Path(inspect.getsourcefile(type(self)) or "").read_bytes()
        except (TypeError, OSError):
            # A class of a notebook or console has no file to digest.
            return f"{self.name}-{os.getpid()}-{id(self)}"
        # Cached code imports the module that it was compiled in, so equal sources need different tags.
        tagged_source = f"{type(self).__module__}\n".encode() + source
        return f"{self.name}-{hashlib.sha256(tagged_source).hexdigest()[:16]}"

    def losses_and_residuals(self, margins: FloatArray, labels: Labels) -> tuple[FloatArray, FloatArray]:
        """Return the loss of each sample, shape (n,), and its derivatives by the margins, shape (n, rows)."""
        losses, residuals = np.empty(len(labels)), margins.copy()
        self.compile_kernel(fill_losses_and_residuals)(residuals, labels, losses)
        return losses, residuals

    def loss_and_gradient(self, x: FloatArray, z: FloatArray, labels: Labels) -> tuple[float, FloatArray]:
        """Return the loss of a model x summed over samples z, shape (n, F), and its gradient, shaped as x."""
        losses, residuals = self.losses_and_residuals(all_margins(x, z), labels)
        return float(np.sum(losses)), sum_outer_products(residuals, z)

    def expected_loss_and_gradient(
        self, x: FloatArray, z: FloatArray, weights: FloatArray, label_values: Labels
    ) -> tuple[float, FloatArray]:
        """Return the loss of a model x summed over samples and K labels, weights (n, K), and gradient."""
        margins = all_margins(x, z)
        loss_sum, weighted_residuals = 0.0, np.zeros(margins.shape)
        for value, label_weights in zip(label_values, weights.T, strict=True):
            losses, residuals = self.losses_and_residuals(margins, np.full(len(z), value, label_values.dtype))
            loss_sum += float(np.sum(label_weights * losses))
            weighted_residuals += label_weights[:, np.newaxis] * residuals
        return loss_sum, sum_outer_products(weighted_residuals, z)


def fill_losses_and_residuals(margins: Any, labels: Any, losses: Any) -> None:
    """Write each sample's loss to `losses`, and replace its margins by its residual (kernel template)."""
    for i in range(labels.size):
        losses[i], _ = loss(margins[i], labels[i])
        residual(margins[i], labels[i])
