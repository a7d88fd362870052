"""Data source CIFAR-10: colour images of 32 x 32 pixels, from the files of its binary version.

Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
"""

from __future__ import annotations

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.registry import register
from mu2mpi.data.source import Samples, SplitName
from mu2mpi.data.sources._image_files import ArrayFile, ImageFiles

CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@register
class Cifar10(ImageFiles):
    """CIFAR-10 data set, 50,000 training and 10,000 test images as uint8, memory-mapped."""

    name, title, folder_name = "cifar10", "CIFAR-10", "cifar-10-batches-bin"
    summary = "60,000 colour images of 32 x 32 pixels, from the files of its binary version"
    homepage = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
    # Rows of a label and the pixels of three colours; the authors publish no other checksum than MD5.
    array_files = tuple(
        ArrayFile(f"{batch}.bin", (10_000, 1 + 3 * 32 * 32), md5, "MD5")
        for batch, md5 in (
            ("data_batch_1", "5dd7e06a14cb22eb9f671a540d1b7c25"),
            ("data_batch_2", "5ea93a67294ea407fff1d09f752e9692"),
            ("data_batch_3", "942cd6a4bcdd0dd3c604fbe906cb4421"),
            ("data_batch_4", "ae636b3ba5c66a11e91e8cb52e771fcb"),
            ("data_batch_5", "53f37980c15c3d472c316c40844f3f0d"),
            ("test_batch", "803d5f7f4d78ea53de84dbe85f74fb6d"),
        )
    )
    class_names = CLASS_NAMES

    def set_up(self, *arrays: NDArray[np.uint8]) -> None:
        *self._training, self._test = arrays
        self.training_samples, self.test_samples = sum(map(len, self._training)), len(self._test)
        self.dimension = self._test.shape[1] - 1

    def read(self, split: SplitName, rows: IntArray) -> Samples:
        records = np.empty((len(rows), 1 + self.dimension), np.uint8)
        first = 0
        for batch in self._training if split == "training" else [self._test]:
            selected = (rows >= first) & (rows < first + len(batch))
            records[selected] = batch[rows[selected] - first]
            first += len(batch)
        return Samples(np.ascontiguousarray(records[:, 1:]), records[:, 0].astype(np.int32))
