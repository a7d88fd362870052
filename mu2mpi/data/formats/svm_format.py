"""File format LIBSVM of sparse samples, read into memory."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mu2mpi.core.errors import InputError, import_extra
from mu2mpi.core.lazy import np
from mu2mpi.core.registry import register
from mu2mpi.data.formats.format import MAX_FEATURES, TextFile, ValueType
from mu2mpi.data.redaction import DataError, describe_row


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
            except (ValueError, OverflowError):
                lines.seek(0)
                _reject_faulty_line(path, lines)
                raise
        if features.shape[1] > MAX_FEATURES or (features.nnz and features.indices.min() < 0):
            raise InputError(f"{path}: features must be numbered 1 to {MAX_FEATURES}")
        if features.shape[1] < dimension:
            features.resize((features.shape[0], dimension))
        if dimension == 0 and features.nnz == 0:
            raise InputError(f"{path} has no features")
        self._arrays = {"features": features, "labels": np.asarray(labels)}

    def arrays(self, wanted_arrays: Mapping[str, ValueType]) -> dict[str, Any]:
        return {name: self._arrays[name] for name in wanted_arrays}


def _reject_faulty_line(path: Path, lines: Iterable[str]) -> None:
    """Raise DataError about the first line with several labels, or with features in no ascending order."""
    for row, line in enumerate(lines):
        label, *pairs = line.partition("#")[0].split() or [""]
        names = (pair.partition(":")[0] for pair in pairs)
        numbers = [float(name) for name in names if name.isdecimal()]
        is_too_large = max(numbers, default=0) > MAX_FEATURES
        faults = {
            "several labels; keep one": "," in label,
            f"a feature number above {MAX_FEATURES}; renumber the features": is_too_large,
            "the same feature twice; keep one of its values": len(set(numbers)) < len(numbers),
            "features in another order than that of their numbers; sort them": numbers != sorted(numbers),
        }
        if fault := next((fault for fault, is_present in faults.items() if is_present), None):
            place = describe_row(row, has_header=False)
            raise DataError(f"{path}: a line has {fault}", f"{path}: {place} has {fault}")
