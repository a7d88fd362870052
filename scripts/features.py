"""Write features of images that need no training into HDF5 files, for training and for testing.

    pip install "mu2mpi[features]"
    python scripts/features.py FOLDER                              mnist.h5 and mnist-test.h5
    python scripts/features.py FOLDER --data fashion-mnist         or digits, or cifar10

    mpirun -n 2 mu2mpi run --data FOLDER/mnist.h5 --test FOLDER/mnist-test.h5 --preset practical ...

What becomes of an image depends on that image alone, and nothing is learned from any data: a model of
features is as private as one of pixels. An image of 28 x 28 pixels is set upright, by its own moments, and
becomes the logarithm of its wavelet scattering (Bruna and Mallat, 2013) of two scales and four orientations,
which is 25 numbers at each of 7 x 7 places. All images have much of that in common, and noise is spent on
what all have in common as well: so orientations are told from their mean over orientations, and that from
its mean over places. The digits of scikit-learn, other data to choose settings with, are enlarged to 20 x 20
pixels with a margin of 4, as in MNIST. Each colour of CIFAR-10 is an image that is not set upright.

The files of a data set are those of `mu2mpi run --data`; MNIST takes two minutes.
"""

import argparse
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from mu2mpi.config.experiment import Experiment
from mu2mpi.data.source import DataSource, SplitName
from mu2mpi.execution.plan import open_source

Array = NDArray[np.floating[Any]]

SIZE, SCALES, ORIENTATIONS = 28, 2, 4
COMMON = 0.3
"""Norm of each part of what orientations have in common, where a scale's contrasts of orientation have 1."""

FLOOR = 0.01
"""In units of which scattering is, with 1 added, before the logarithm: it is zero where there is no ink."""

AT_ONCE = 500
"""Images that are transformed together."""

ENLARGED, MARGIN = 20, 4
"""Pixels a side of a digit, and around it."""


def main() -> None:
    """Write the two files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where both files are written")
    names = "mnist", "fashion-mnist", "cifar10", "digits"
    parser.add_argument("--data", choices=names, default="mnist", help="[default: mnist]")
    arguments = parser.parse_args()
    source = open_source(Experiment(data=arguments.data))
    arguments.folder.mkdir(parents=True, exist_ok=True)
    write(arguments.folder / f"{source.name}.h5", source, "training", np.arange(source.training_samples))
    write(arguments.folder / f"{source.name}-test.h5", source, "test", np.arange(source.test_samples))


def write(path: Path, source: DataSource, which: SplitName, rows: NDArray[np.int64]) -> None:
    """Write the features and labels of these rows of one set: each row lies in one piece."""
    with h5py.File(path, "w") as file:
        file["labels"] = np.concatenate([labels for _, labels in read(source, which, rows)])
        first = 0
        for images, labels in read(source, which, rows):
            found = features(images)
            stored = file.require_dataset("features", (len(rows), found.shape[1]), np.float32)
            stored[first : first + len(labels)] = found
            first += len(labels)
    print(f"{path}: {len(rows):,} samples of {found.shape[1]:,} features")


def read(
    source: DataSource, which: SplitName, rows: NDArray[np.int64]
) -> Iterator[tuple[Array, NDArray[np.int32]]]:
    """Yield images in [0, 1], shape (n, colours, side, side), and their labels, in parts."""
    for start in range(0, len(rows), AT_ONCE):
        samples = source.read(which, rows[start : start + AT_ONCE])
        colours = 1 if math.isqrt(source.dimension) ** 2 == source.dimension else 3
        side = math.isqrt(source.dimension // colours)
        images = samples.features.reshape(-1, colours, side, side) * np.float32(source.feature_scale)
        yield images if side >= SIZE else enlarged(images), samples.labels


def enlarged(images: Array) -> Array:
    """Return small images in the middle of ones of the usual size."""
    from scipy.ndimage import zoom

    factor = ENLARGED / images.shape[-1]
    larger = zoom(images, (1, 1, factor, factor), order=1)
    return np.pad(larger, ((0, 0), (0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN)))


def features(images: Array) -> Array:
    """Return the features of images of shape (n, colours, side, side), shape (n, features)."""
    # kymatio.numpy also imports transforms of volumes, which newer versions of SciPy cannot.
    from kymatio.scattering2d.frontend.numpy_frontend import ScatteringNumPy2D

    if images.shape[1] == 1:
        images = np.stack([upright(image[0]) for image in images])[:, np.newaxis]
    scattering = ScatteringNumPy2D(J=SCALES, shape=images.shape[2:], L=ORIENTATIONS)
    colours = [contrasts(scattering(images[:, k].astype(np.float32))) for k in range(images.shape[1])]
    return np.concatenate(colours, axis=1)


def upright(image: Array) -> Array:
    """Return an image whose ink has its center in the middle, and leans to neither side.

    Two moments say how far it is to be moved and slanted, as for LeCun et al., 1998.
    """
    from scipy.ndimage import affine_transform

    if not image.any():
        return image
    middle = (SIZE - 1) / 2
    weights, places = image.reshape(-1).astype(np.float64), np.indices(image.shape).reshape(2, -1)
    center = np.average(places, axis=1, weights=weights)
    down, right = places - center[:, None]
    height = weights @ down**2
    slant = np.array([[1, 0], [weights @ (down * right) / height if height > 0 else 0, 1]])
    return affine_transform(image, slant, center - slant @ np.full(2, middle), order=1)


def contrasts(scattered: Array) -> Array:
    """Return what tells orientations and places apart, given the scattering of each sample.

    Channels are the image averaged, then both scales with their orientations, and pairs of orientations.
    """
    n, singles = len(scattered), 1 + SCALES * ORIENTATIONS
    channels = np.log1p(np.maximum(scattered, 0) / FLOOR).reshape(n, scattered.shape[1], -1)
    places = channels.shape[2]
    scales = channels[:, 1:singles].reshape(n, SCALES, ORIENTATIONS, places)
    orders = [scales[:, j] for j in range(SCALES)] + [channels[:, singles:]]
    means = [order.mean(axis=1) for order in orders]
    parts = [unit(order - mean[:, None]) for order, mean in zip(orders, means, strict=True)]
    averages = [channels[:, 0], np.stack(means[:SCALES], axis=1), means[SCALES]]
    parts += [COMMON * unit(average - average.mean(axis=-1, keepdims=True)) for average in averages]
    return np.concatenate(parts, axis=1).astype(np.float32)


def unit(part: Array) -> Array:
    """Return this part of each sample, as a row of norm 1; or zeros, where it is zero."""
    rows = part.reshape(len(part), -1)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)


if __name__ == "__main__":
    main()
