"""File format LIBSVM of sparse samples, read into memory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mu2mpi.core.errors import InputError, import_extra
from mu2mpi.core.lazy import np
from mu2mpi.core.registry import register
from mu2mpi.data.formats.format import MAX_FEATURES, TextFile, ValueType
from mu2mpi.data.redaction import DataError


@register
class SvmFile(TextFile):
    """LIBSVM file: a label and pairs feature:value per line; it has at least `dimension` features."""

    name, suffixes = "svm", (".svm", ".libsvm", ".svm.gz", ".libsvm.gz")
    array_names = ["features", "labels"]  # noqa: RUF012

    def __init__(self, path: Path, dimension: int = 0) -> None:
        super().__init__(path)
        sklearn_datasets = import_extra("sklearn.datasets", "digits")
        with self.text() as lines:
            try:
                features, labels = sklearn_datasets.load_svmlight_file(lines.buffer)
            except (ValueError, OverflowError) as error:
                fault = f"{path}: each line needs one label, and features in the order of their numbers"
                raise DataError(fault, f"{fault}: {error}") from None
        if features.shape[1] > MAX_FEATURES or (features.nnz and features.indices.min() < 0):
            raise InputError(f"{path}: features must be numbered 1 to {MAX_FEATURES}")
        if features.shape[1] < dimension:
            features.resize((features.shape[0], dimension))
        if dimension == 0 and features.nnz == 0:
            raise InputError(f"{path} has no features")
        self._arrays = {"features": features, "labels": np.asarray(labels)}

    def arrays(self, wanted_arrays: Mapping[str, ValueType]) -> dict[str, Any]:
        return {name: self._arrays[name] for name in wanted_arrays}
