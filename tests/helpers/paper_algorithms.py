"""Algorithms 1 and 2 of the paper in plain NumPy, with which tests compare the package."""

from collections.abc import Callable, Sequence
from typing import Any


def algorithm_1(
    samples: Sequence[Sequence[Any]], gradient: Callable[..., Any], noise: Callable[[int, int], Any],
    project: Callable[..., Any], eta: float, x_1: Any,
) -> Any:  # fmt: skip
    """Return the model x_T of Algorithm 1 (untrusted server): every machine adds noise to its messages.

    ``samples[t - 1][i]`` is z_{t,i}, ``noise(t, i)`` is Y_{t,i}, and ``project`` projects on K.
    """
    T, M = len(samples), len(samples[0])
    w, x, x_previous, d = x_1, x_1, x_1, [0.0] * M
    for t in range(1, T + 1):
        alpha, beta, q = t, 1 / t, 0.0
        for i in range(M):
            z = samples[t - 1][i]
            g, g_previous = gradient(x, z), gradient(x_previous, z)
            d[i] = g + (1 - beta) * (d[i] - g_previous)
            q += (alpha * d[i] + noise(t, i)) / M
        w = project(w - eta * q)
        weight = 2 / (t + 2)  # alpha_{t+1} / alpha_{1:t+1}
        x_previous, x = x, (1 - weight) * x + weight * w
    return x_previous


def algorithm_2(
    samples: Sequence[Sequence[Any]], gradient: Callable[..., Any], noise: Callable[[int], Any],
    project: Callable[..., Any], eta: float, x_1: Any,
) -> Any:  # fmt: skip
    """Return the model x_T of Algorithm 2 (trusted server): the server adds noise to averaged messages."""
    T, M = len(samples), len(samples[0])
    w, x, x_previous, d = x_1, x_1, x_1, [0.0] * M
    for t in range(1, T + 1):
        alpha, beta, q = t, 1 / t, 0.0
        for i in range(M):
            z = samples[t - 1][i]
            g, g_previous = gradient(x, z), gradient(x_previous, z)
            d[i] = g + (1 - beta) * (d[i] - g_previous)
            q += alpha * d[i] / M
        w = project(w - eta * (q + noise(t)))
        weight = 2 / (t + 2)  # alpha_{t+1} / alpha_{1:t+1}
        x_previous, x = x, (1 - weight) * x + weight * w
    return x_previous
