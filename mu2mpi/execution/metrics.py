"""What an output is worth, beyond its loss: measures of classification and of regression that people know."""

import math

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.source import Labels, Source
from mu2mpi.problem.base import Problem

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_CONFUSED = 1000
"""Classes whose confusion matrix is worth its size in a file."""

ROUNDING = 1e-12
"""Variance of numbers in [-1, 1] that may be nothing but rounding errors."""


def explained_share(mean_squared_error: float, variance: float) -> float:
    """Return R^2: what share of a variance predictions explain; NaN if there is none to explain."""
    return 1 - mean_squared_error / variance if variance > ROUNDING else math.nan


def moments(labels: Labels) -> tuple[float, float]:
    """Return the sums of numbers and of their squares."""
    return float(np.sum(labels)), float(np.sum(labels**2))


def metrics_of(problem: Problem, source: Source, margins: Array, labels: Labels) -> dict[str, float]:
    """Return what `metrics_over` does, of samples that count alike."""
    if problem.labels == "numbers":
        targets = labels[:, np.newaxis].astype(np.float64)
        return number_metrics(problem, source, margins, targets, np.ones(targets.shape))
    weights = np.zeros((len(labels), source.classes))
    weights[np.arange(len(labels)), labels.astype(np.int64)] = 1.0
    return class_metrics(problem, margins, weights)


def confusion_of(problem: Problem, classes: int, margins: Array, labels: Labels) -> Integers | None:
    """Return how many samples of each class are taken for each, shape (K, K), but for very many classes.

    None where labels are numbers.
    """
    if problem.labels == "numbers" or classes > MOST_CONFUSED:
        return None
    pairs = labels.astype(np.int64) * classes + problem.best(margins)
    return np.bincount(pairs, minlength=classes**2).reshape(classes, classes).astype(np.int64)


def metrics_over(problem: Problem, source: Source, margins: Array, weights: Array) -> dict[str, float]:
    """Return measures by name of a distribution over samples and labels.

    Parameters
    ----------
    margins, weights : ndarray of float64, shape (n, rows) and (n, K)
        Margins of the samples; and the weight of each with each of K labels.
    """
    if problem.labels == "numbers":
        targets = np.broadcast_to(source.values.astype(np.float64), weights.shape)
        return number_metrics(problem, source, margins, targets, weights)
    return class_metrics(problem, margins, weights)


def class_metrics(problem: Problem, margins: Array, weights: Array) -> dict[str, float]:
    """Return accuracy, its mean over classes, and the area under the ROC, of more classes its mean over them.

    Classes that do not occur do not count.
    """
    right = weights[np.arange(len(weights)), problem.best(margins)]
    of_class, scores = weights.sum(axis=0), problem.scores(margins)
    there = np.flatnonzero(of_class)
    found = np.bincount(problem.best(margins), right, len(of_class))
    areas = [math.nan]
    if len(there) > 1:
        areas = [_area(scores[:, k], weights[:, k], weights.sum(axis=1) - weights[:, k]) for k in there]
    return {
        "accuracy": float(np.sum(right) / np.sum(of_class)),
        "balanced_accuracy": float(np.mean(found[there] / of_class[there])),
        "auc": float(np.mean(areas)),
    }


def _area(scores: Array, positive: Array, negative: Array) -> float:
    """Return the probability that a positive sample has a larger score than a negative one; a tie is half."""
    _, group = np.unique(scores, return_inverse=True)
    positives, negatives = np.bincount(group, positive), np.bincount(group, negative)
    below = np.cumsum(negatives) - negatives
    return float(np.sum(positives * (below + negatives / 2)) / (positives.sum() * negatives.sum()))


def number_metrics(
    problem: Problem, source: Source, margins: Array, targets: Array, weights: Array
) -> dict[str, float]:
    """Return the root mean squared error and the mean error, in the label's own units, and R^2."""
    low, high = source.label_range or (-1.0, 1.0)
    half = (high - low) / 2
    errors = problem.predictions(margins)[:, np.newaxis] - targets
    total = float(np.sum(weights))
    mean_squared = float(np.sum(weights * errors**2)) / total
    mean = float(np.sum(weights * targets)) / total
    return {
        "rmse": half * math.sqrt(mean_squared),
        "mae": half * float(np.sum(weights * np.abs(errors))) / total,
        "r2": explained_share(mean_squared, float(np.sum(weights * (targets - mean) ** 2)) / total),
    }
