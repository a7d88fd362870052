"""Data source MNIST: 28 x 28 images of handwritten digits, read from a folder or downloaded."""

from __future__ import annotations

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.registry import register
from mu2mpi.data.source import Samples, SplitName
from mu2mpi.data.sources._image_files import IdxFile, ImageFiles


def idx_files(
    train_images: str, train_labels: str, test_images: str, test_labels: str
) -> tuple[IdxFile, ...]:
    """Return MNIST's four files, given the SHA-256 checksums of their decompressed content."""
    # Not of the archives, since mirrors recompress the files now and then.
    return (
        IdxFile("train-images-idx3-ubyte", (60_000, 28, 28), train_images),
        IdxFile("train-labels-idx1-ubyte", (60_000,), train_labels),
        IdxFile("t10k-images-idx3-ubyte", (10_000, 28, 28), test_images),
        IdxFile("t10k-labels-idx1-ubyte", (10_000,), test_labels),
    )


@register
class Mnist(ImageFiles):
    """MNIST data set, 60,000 training and 10,000 test images as uint8, memory-mapped from validated files."""

    name, title = "mnist", "MNIST"
    summary = "70,000 images of 28 x 28 pixels, downloaded by `mu2mpi data mnist`"
    array_files = idx_files(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    )
    mirrors = (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    )

    def set_up(self, *arrays: NDArray[np.uint8]) -> None:
        images, labels, test_images, test_labels = arrays
        self.training_samples, self.test_samples = len(labels), len(test_labels)
        self.dimension = images[0].size
        self._training, self._test = (images, labels), (test_images, test_labels)

    def read(self, split: SplitName, rows: IntArray) -> Samples:
        images, labels = self._training if split == "training" else self._test
        return Samples(images[rows].reshape(len(rows), self.dimension), labels[rows].astype(np.int32))
