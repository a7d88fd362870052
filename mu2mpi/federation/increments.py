"""What samples add to the messages of their machines, in integers on the grid; compiled for a problem."""

import numpy as np

from mu2mpi.core.kernels import inline, reduction, round_to_integer
from mu2mpi.losses.model.ball import shrinkage, squared_norm
from mu2mpi.losses.model.linear import TILE, empty_batch, load_sample, model_margins, residual, two_margins

# Squared norms of c and z whose product is a number, and of which no square that counts underflowed
_LEAST, MOST = 2.0**-500, 2.0**500


@inline
def _add_outer_products(q, c, z):  # type: ignore[no-untyped-def]
    """Add the outer products c_i z_i^T of one sample or of a batch to q, each rounded on its own."""
    if z.shape[0] == 1:
        for k in range(q.shape[0]):
            row = q[k]
            for j in range(row.size):
                row[j] += round_to_integer(c[0, k] * z[0, j])
        return
    for first in range(0, q.shape[1], TILE):
        stop = min(first + TILE, q.shape[1])
        z0, z1, z2, z3 = z[0, first:stop], z[1, first:stop], z[2, first:stop], z[3, first:stop]
        for k in range(q.shape[0]):
            row, c0, c1, c2, c3 = q[k, first:stop], c[0, k], c[1, k], c[2, k], c[3, k]
            for j in range(row.size):
                pair = round_to_integer(c0 * z0[j]) + round_to_integer(c1 * z1[j])
                row[j] += pair + round_to_integer(c2 * z2[j]) + round_to_integer(c3 * z3[j])


@inline
def _clip(c, squared_z, bound, resolution):  # type: ignore[no-untyped-def]
    """Scale c so that c z^T keeps to a norm, or to 0; return the squared norm, and whether it was clipped."""
    squared_c = squared_norm(c)
    squared = squared_c * squared_z
    # Also where squares left the range of floating-point numbers, or c or z holds what is none.
    if not (_LEAST <= squared_c <= MOST and _LEAST <= squared_z <= MOST):
        c[:] = 0.0
        return squared, not squared <= 0.0
    factor = shrinkage(squared, bound)
    for k in range(c.size):
        c[k] *= factor / resolution
    return squared, factor < 1.0


@inline
def _add_clipped(q, c, z, count, bound, resolution):  # type: ignore[no-untyped-def]
    """Add clipped c_i z_i^T to q; return the largest squared norm before, and how many were clipped."""
    largest, clipped = 0.0, 0
    for i in range(count):
        squared_z = squared_norm(z[i, : q.shape[1]])
        squared, is_clipped = _clip(c[i], squared_z, bound, resolution)
        largest = max(largest, squared)
        clipped += is_clipped
        if not squared_z <= MOST:
            z[i] = 0.0
    for i in range(count, c.shape[0]):
        for k in range(c.shape[1]):
            c[i, k] = 0.0
    _add_outer_products(q, c, z)
    return largest, clipped


@reduction
def _row_products(x, y, row, scale, bias):  # type: ignore[no-untyped-def]
    """Return the inner products of x and y with a sample as stored, and its squared norm."""
    at_x, at_y, square = x[row.size] * bias, y[row.size] * bias, bias * bias
    for j in range(row.size):
        z = scale * np.float64(row[j])
        at_x += x[j] * z
        at_y += y[j] * z
        square += z * z
    return at_x, at_y, square


@reduction
def _row_product(x, row, scale, bias):  # type: ignore[no-untyped-def]
    """Return the inner product of x with a sample as stored, and its squared norm."""
    at_x, square = x[row.size] * bias, bias * bias
    for j in range(row.size):
        z = scale * np.float64(row[j])
        at_x += x[j] * z
        square += z * z
    return at_x, square


@inline
def _add_row(q, c, row, scale, bias):  # type: ignore[no-untyped-def]
    """Add c z of a sample as stored to q, rounded; nothing if c is 0, whatever z is."""
    if c == 0.0:
        return
    for j in range(row.size):
        q[j] += round_to_integer(c * (scale * np.float64(row[j])))
    q[row.size] += round_to_integer(c * bias)


def add_increments(  # type: ignore[no-untyped-def]
    q, x, x_previous, features, labels, scales, bias, first, end, t, bound, resolution, batch
):
    """Add the increments s_{t,i} of some machines, clipped and rounded to the grid, to the sum of q_{t,i}.

    An increment is c z^T with c = r + (t - 1)(r - r~), of norm ||c|| ||z|| <= S (Lemmas 4.1 and 4.2). Samples
    are those of `HostedSamples` from number `first` on and before `end`. The batch decides in which order
    sums are taken: it must be the same on any number of ranks. Returned are the largest squared norm before
    clipping, and how many were clipped.
    """
    classes, width = x.shape
    z = empty_batch(batch, width)
    at_x, at_x_previous = np.empty((batch, classes)), np.empty((batch, classes))
    largest, clipped = 0.0, 0
    for start in range(first, end, batch):
        count = min(batch, end - start)
        for i in range(count):
            load_sample(features[start + i], scales[start + i], bias, z[i])
        two_margins(x, x_previous, z, at_x, at_x_previous)
        for i in range(count):
            r, r_previous = at_x[i], at_x_previous[i]
            residual(r, labels[start + i])
            residual(r_previous, labels[start + i])
            for k in range(classes):
                r[k] += (t - 1.0) * (r[k] - r_previous[k])
        squared, number = _add_clipped(q, at_x, z, count, bound, resolution)
        largest = max(largest, squared)
        clipped += number
    return largest, clipped


def add_gradients(  # type: ignore[no-untyped-def]
    q, x, x_previous, features, labels, scales, bias, first, end, t, bound, resolution, batch
):
    """Make q the sum of the clipped, rounded gradients at x_t of some samples; else as `add_increments`."""
    q[:] = 0
    classes, width = x.shape
    z = empty_batch(batch, width)
    margins, of_rest = np.empty((batch, classes)), np.empty((batch, (classes + 1) // 2))
    largest, clipped = 0.0, 0
    for start in range(first, end, batch):
        count = min(batch, end - start)
        for i in range(count):
            load_sample(features[start + i], scales[start + i], bias, z[i])
        model_margins(x, z, margins, of_rest)
        for i in range(count):
            residual(margins[i], labels[start + i])
        squared, number = _add_clipped(q, margins, z, count, bound, resolution)
        largest = max(largest, squared)
        clipped += number
    return largest, clipped


# A model of one row shares no read of a sample with other rows, so that samples are not copied first.


def add_increments_to_row(  # type: ignore[no-untyped-def]
    q, x, x_previous, features, labels, scales, bias, first, end, t, bound, resolution, batch
):
    """Do what `add_increments` does for a model of one row; the batch does not matter."""
    margins = np.empty((2, 1))
    largest, clipped = 0.0, 0
    for i in range(first, end):
        r, r_previous = margins[0], margins[1]
        r[0], r_previous[0], square = _row_products(x[0], x_previous[0], features[i], scales[i], bias)
        residual(r, labels[i])
        residual(r_previous, labels[i])
        r[0] += (t - 1.0) * (r[0] - r_previous[0])
        squared, is_clipped = _clip(r, square, bound, resolution)
        largest = max(largest, squared)
        clipped += is_clipped
        _add_row(q[0], r[0], features[i], scales[i], bias)
    return largest, clipped


def add_gradients_to_row(  # type: ignore[no-untyped-def]
    q, x, x_previous, features, labels, scales, bias, first, end, t, bound, resolution, batch
):
    """Do what `add_gradients` does for a model of one row; the batch does not matter."""
    q[0] = 0
    r = np.empty(1)
    largest, clipped = 0.0, 0
    for i in range(first, end):
        r[0], square = _row_product(x[0], features[i], scales[i], bias)
        residual(r, labels[i])
        squared, is_clipped = _clip(r, square, bound, resolution)
        largest = max(largest, squared)
        clipped += is_clipped
        _add_row(q[0], r[0], features[i], scales[i], bias)
    return largest, clipped
