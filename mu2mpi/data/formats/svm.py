"""Samples in the format of LIBSVM, read whole and kept sparse, by scikit-learn."""

from pathlib import Path

import numpy as np

from mu2mpi.data.formats.table import MOST_FEATURES, ArrayTable, reading
from mu2mpi.errors import InputError

__all__ = ["read_svm"]


def read_svm(path: Path, dimension: int | None) -> ArrayTable:
    """Read lines such as ``1 3:0.5 7:1``; by default, there are as many features as occur."""
    try:
        from sklearn.datasets import load_svmlight_file
    except ImportError:
        raise InputError(
            f'{path} is read by scikit-learn, which is missing: pip install "mu2mpi[digits]"'
        ) from None
    with reading(path):
        features, labels = load_svmlight_file(path, n_features=dimension)
        if features.shape[1] > MOST_FEATURES or (features.nnz and features.indices.min() < 0):
            raise InputError(f"{path} numbers features beyond 1 .. {MOST_FEATURES}")
        if dimension is None and features.nnz == 0:
            raise InputError(f"{path} has no features")
        return ArrayTable(path, features, np.asarray(labels))
