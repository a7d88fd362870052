"""Sparse features in the format of LIBSVM, which are read whole by scikit-learn and kept sparse."""

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mu2mpi.data.formats.columns import File, Kind
from mu2mpi.data.formats.table import MOST_FEATURES, Table
from mu2mpi.data.telling import reading
from mu2mpi.errors import InputError


class Svm(File):
    """Lines such as ``1 3:0.5 7:1``, with as many features as occur, or as `dimension` if these are more."""

    names = ["features", "labels"]  # noqa: RUF012
    first = 1

    def __init__(self, path: Path, dimension: int = 0) -> None:
        super().__init__(path)
        try:
            from sklearn.datasets import load_svmlight_file
        except ImportError:
            raise InputError(
                f'{path} is read by scikit-learn, which is missing: pip install "mu2mpi[digits]"'
            ) from None
        packed = path.suffix.lower() == ".gz"
        with reading(path), (gzip.open if packed else open)(path, "rb") as lines:
            features, labels = load_svmlight_file(lines)
        if features.shape[1] > MOST_FEATURES or (features.nnz and features.indices.min() < 0):
            raise InputError(f"{path} numbers features beyond 1 .. {MOST_FEATURES}")
        if features.shape[1] < dimension:
            features.resize((features.shape[0], dimension))
        if dimension == 0 and features.nnz == 0:
            raise InputError(f"{path} has no features")
        self._arrays = {"features": features, "labels": np.asarray(labels)}

    def arrays(self, wanted: Mapping[str, Kind]) -> dict[str, Any]:
        """Return the matrix of features, and the labels."""
        return {name: self._arrays[name] for name in wanted}

    def table(self, features: str | None, labels: str | None) -> Table:
        """Return samples; nothing in the file has a name."""
        if features is not None or labels is not None:
            raise InputError(
                f"{self.path} has no names of features and labels; leave out --features and --labels"
            )
        return super().table(None, None)
