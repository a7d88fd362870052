"""Base class of data sources: attributes of a data set, and validated access to its samples."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

from mu2mpi.core.arrays import FloatArray, IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.options import Options
from mu2mpi.core.registry import OptionValue, known_names, lookup
from mu2mpi.core.suggestions import should_be_one_of
from mu2mpi.data.formats.format import describe_suffixes, is_data_file
from mu2mpi.data.redaction import DataError, redacted_errors, safe_text

if TYPE_CHECKING:
    from mu2mpi.data.memory import MemoryData

SplitName = Literal["training", "test"]
Labels: TypeAlias = "NDArray[Any]"

MAX_IN_MEMORY_SAMPLE_BYTES = 48 << 20  # samples of a rank up to this size, such as MNIST, are read at once
SAMPLE_CHUNK_BYTES = 8 << 20  # approximate size of the chunks in which larger data are read
FEATURE_BOUND_RTOL = 1e-6  # relative tolerance of the bound on features, for rounded values
USER_FILE_SOURCE = "user-file"  # name of the source of every --data that is a file
COLUMN_CHUNK_ROWS = 1 << 18  # labels or owners read at a time


@dataclass(frozen=True)
class Samples:
    """Stored features (unscaled, without the bias feature) and labels of n samples."""

    features: NDArray[np.generic]  # C-contiguous uint8, float32 or float64, shape (n, dimension)
    labels: Labels  # classes in 0 .. classes - 1, int32, or numbers in [-1, 1], float64; shape (n,)


class PublicFacts(NamedTuple):
    """Public properties of a data set that presets may use; none depends on the content of a sample."""

    classes: int
    max_squared_norm: float  # bound on squared norms of features scaled to [-1, 1], without the bias
    samples: int  # number of samples that all machines can use together
    # Of unequal machines: noise std of one machine / noise std of the averaged message, and the number of
    # equal machines whose sample average has the same variance
    noise_reduction: float | None = None
    effective_machines: float | None = None


@dataclass(frozen=True)
class DataRequest:
    """Arguments of `DataSource.open`: data set, its options, scaling, and data folder."""

    data: str  # value of --data
    options: Any  # instance of the source's `options` class
    scaling: str = "none"  # of samples: none, unit or box
    data_dir: Path | None = None  # by default MU2MPI_DATA_DIR, or else the user's cache
    verify_checksums: bool = True  # whether to compare checksums of files that have one
    memory: MemoryData | None = None  # data sets that a Python program passes


class DataSource(OptionValue, ABC):
    """Base class of data sources, the values of ``--data``; an instance is an opened data set."""

    component_kind: ClassVar[str] = "sources"
    summary: ClassVar[str] = ""  # a few words for the help of --data
    options: ClassVar[type[Options]] = Options
    # Whether samples are the user's own, possibly personal data: other files may hold the same samples
    is_user_data: ClassVar[bool] = False
    supports_classes_as_numbers: ClassVar[bool] = True  # whether a regression may take class c as number c

    name: str  # as users write it, such as "mnist"
    classes: int  # K; for numeric labels, number of bins of their range that stand for classes
    dimension: int  # number of features without the bias
    training_samples: int
    test_samples: int
    feature_scale: float  # factor from stored features to [-1, 1], such as 1/255 for pixels
    max_abs_feature: float | None = None  # bound on |stored feature|; by default 1 / feature_scale
    range_advice: str = "remove the sample or rescale the features by a public factor"
    max_squared_norm: float | None = None  # public bound on ||z||^2 without the bias, if below `dimension`
    class_names: tuple[str, ...] | None = None  # unless classes are called by their numbers
    label_range: tuple[float, float] | None = None  # of numeric labels, in their own units
    feature_names: tuple[str, ...] | None = None  # unless features are called by their numbers
    schema_toml: str | None = None  # schema of a table
    files: tuple[Path, ...] = ()  # files of the samples
    test_rows: IntArray | None = None  # rows of the file held out for testing, unless too many
    has_owners: bool = False  # whether the data name the owner of each training sample
    is_generated: bool = False  # whether the options determine all samples
    has_known_distribution: bool = False  # whether machines draw fresh samples instead of reading rows
    support: FloatArray  # points of the known distributions, shape (n, dimension)
    _uses_classes_as_numbers: bool = False  # whether labels are classes used as numbers
    is_public: bool = True  # whether error messages may name rows and values

    @classmethod
    def check_experiment(cls, experiment: Any, options: Any) -> None:
        """Raise InputError if other settings of an experiment are incompatible with this data source."""
        if experiment.normalize == "box":
            raise InputError("normalize = box needs feature_bound, an option of files. Leave it out.")

    @classmethod
    def fetch(cls, data_dir: Path | None) -> list[Path]:
        """Download missing files of the data set, if any are needed; return the paths of all its files."""
        return []

    @classmethod
    def open(cls, request: DataRequest) -> Self:
        """Open the training and test sets without download; InputError if files are missing or damaged."""
        return cls(**dict(request.options))

    @property
    def feature_dtype(self) -> np.dtype[np.generic]:
        """Dtype of the stored features of a sample."""
        empty = np.empty(0, np.int64)
        return (self.support if self.has_known_distribution else self.read("training", empty).features).dtype

    @property
    def sample_bytes(self) -> int:
        """Bytes of memory per sample: stored features, label, scale and row number."""
        return self.dimension * self.feature_dtype.itemsize + 20

    def chunk_size(self, samples: int) -> int:
        """Return the number of samples read at once: all up to MAX_IN_MEMORY_SAMPLE_BYTES, else a chunk."""
        sample_bytes = self.sample_bytes
        is_small = samples * sample_bytes <= MAX_IN_MEMORY_SAMPLE_BYTES
        return samples if is_small else max(1, SAMPLE_CHUNK_BYTES // sample_bytes)

    @abstractmethod
    def read(self, split: SplitName, rows: IntArray) -> Samples:
        """Read samples of the training or test set by row numbers, in any order, without validation."""

    def generate_samples(self, key: bytes, machine: int, machines: int, sample_numbers: IntArray) -> Samples:
        """Draw fresh samples of one machine, by their numbers, from its known distribution and a key."""
        raise TypeError(f"{self.name} is a fixed data set without a known distribution")

    def joint_probabilities(self) -> FloatArray:
        """Joint probabilities of `support` points and classes, averaged over machines: shape (n, classes)."""
        raise TypeError(f"{self.name} is a fixed data set without a known distribution")

    def use_classes_as_numbers(self) -> None:
        """Switch from classes to numeric labels for regression: class c becomes the number c."""
        if self.label_range is None:
            self.label_range, self._uses_classes_as_numbers = (0.0, float(self.classes - 1)), True

    @property
    def label_values(self) -> Labels:
        """Label that losses use for each class, shape (classes,): its number, possibly scaled to [-1, 1]."""
        if self.label_range is None:
            return np.arange(self.classes, dtype=np.int32)
        return 2 * np.arange(self.classes) / (self.classes - 1) - 1

    def encode_labels(self, samples: Samples) -> Samples:
        """Convert the labels of samples from classes to numbers in [-1, 1] after `use_classes_as_numbers`."""
        if not self._uses_classes_as_numbers:
            return samples
        return Samples(samples.features, self.label_values[samples.labels.astype(np.int64)])

    def read_training(self, rows: IntArray) -> Samples:
        """Read and validate training samples by row numbers; InputError if a value is out of range."""
        return self._read_checked("training", rows)

    def read_test(self, rows: IntArray) -> Samples:
        """Read and validate test samples by row numbers; InputError if a value is out of range."""
        return self._read_checked("test", rows)

    def training_labels(self) -> NDArray[np.int32]:
        """Class of every training sample, or the bin of its numeric label: shape (training_samples,)."""
        chunks = row_chunks(self.training_samples, self.chunk_size(self.training_samples))
        return np.concatenate([labels_to_classes(self.read_training(r).labels, self.classes) for r in chunks])

    def training_owners(self) -> NDArray[np.generic]:
        """Owner of every training sample, as int64 or text; InputError if the data set has no owners."""
        return np.concatenate([self.read_owners(rows) for rows in row_chunks(self.training_samples)])

    def read_owners(self, rows: IntArray) -> NDArray[np.generic]:
        """Owners of training samples by row numbers; InputError if the data set has no owners."""
        raise InputError(f"{self.name} names no owners of samples. Give another --partition.")

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 digest of the training data (private); the first access reads and validates all samples."""
        sizes = self.training_samples, self.dimension, self.classes
        facts = *map(int, sizes), self.feature_scale, self.max_abs_feature, self.has_owners, self.class_names
        declared = [fact for fact in (self.label_range, self.schema_toml) if fact is not None]
        chunks = () if self.is_generated else self._checked_chunks()
        return column_digest(repr((*facts, *declared)), chunks)

    def _checked_chunks(self) -> Iterator[tuple[NDArray[np.generic], ...]]:
        """Yield validated chunks of training features, labels and any owners; also validate the test set."""
        sizes = self.test_samples, self.training_samples
        chunks = math.ceil(max(sizes) / max(1, SAMPLE_CHUNK_BYTES // self.sample_bytes))
        for k in range(chunks):
            test_rows, rows = (np.arange(size * k // chunks, size * (k + 1) // chunks) for size in sizes)
            self.read_test(test_rows)
            samples = self.read_training(rows)
            owners = (self.read_owners(rows),) if self.has_owners else ()
            yield samples.features, samples.labels, *owners

    @cached_property
    def class_sizes(self) -> IntArray:
        """Number of training samples of each class, shape (classes,)."""
        return np.bincount(self.training_labels(), minlength=self.classes)

    @cached_property
    def owner_names(self) -> tuple[str, ...]:
        """Names of the owners of training samples, sorted."""
        return tuple(map(str, np.unique(self.training_owners()).tolist()))

    @cached_property
    def owner_sizes(self) -> IntArray:
        """Number of training samples of each owner, in the order of `owner_names`."""
        sizes: IntArray = np.unique(self.training_owners(), return_counts=True)[1]
        return sizes

    def _read_checked(self, split: SplitName, rows: IntArray) -> Samples:
        size = self.training_samples if split == "training" else self.test_samples
        if rows.size and (rows.min() < 0 or rows.max() >= size):
            raise IndexError(f"rows {rows.min()} .. {rows.max()} are not among the {size} of this set")
        with redacted_errors(self.is_public):
            samples = self.read(split, rows)
            self._check_features(split, rows, samples.features)
            low, high = (0, self.classes - 1) if samples.labels.dtype.kind == "i" else (-1, 1)
            bad = np.flatnonzero(~((samples.labels >= low) & (samples.labels <= high)))
            if bad.size:
                sample, label = self._describe_sample(split, rows[bad[0]]), samples.labels[bad[0]]
                rule = f"labels must lie in {low} .. {high}"
                raise DataError(f"{self.name}: {rule}", f"{sample} has the label {label}; {rule}")
        return self.encode_labels(samples)

    def _check_features(self, split: SplitName, rows: IntArray, features: NDArray[Any]) -> None:
        limit = 1 / self.feature_scale if self.max_abs_feature is None else self.max_abs_feature
        max_absolute = limit * (1 + FEATURE_BOUND_RTOL)
        with np.errstate(invalid="ignore"):  # A signalling NaN warns; any NaN makes both extremes NaN.
            extremes = np.array([features.min(initial=0), features.max(initial=0)], np.float64)
            if np.all(np.abs(extremes) <= max_absolute):
                return
            row, column = np.argwhere(~(np.abs(features.astype(np.float64)) <= max_absolute))[0]
        sample, value = self._describe_sample(split, rows[row]), features[row, column]
        names, is_finite = self.feature_names, np.isfinite(value)
        location = f"column {safe_text(names[column])}" if names else f"feature {column}"
        bad, advice = ("too large", self.range_advice) if is_finite else ("not finite", "remove the sample")
        requirement = f"features must be finite and at most {limit:g} in absolute value, so {advice}"
        raise DataError(
            f"{self.name} has a value in {location} that is {bad}; {requirement}",
            f"{sample} has the value {value} in {location}; {requirement}",
        )

    def _describe_sample(self, split: SplitName, number: int) -> str:
        """Text that identifies a training or test sample in error messages about public data."""
        return f"{self.name}: {split} sample {number}"


def find_source(name: str) -> type[DataSource]:
    """DataSource class for a value of ``--data`` (source name or file); InputError if there is none."""
    known = [known_name for known_name in known_names("sources") if known_name != USER_FILE_SOURCE]
    if name not in known and not is_data_file(name):
        raise InputError(should_be_one_of(name, [*known, describe_suffixes()]))
    source: type[DataSource] = lookup("sources", name if name in known else USER_FILE_SOURCE)
    return source


def labels_to_classes(labels: Labels, classes: int) -> NDArray[np.int32]:
    """Class of each label; numeric labels in [-1, 1] are binned into `classes` equal intervals."""
    if labels.dtype.kind == "i":
        return labels.astype(np.int32, copy=False)
    # A number at the lower edge of a bin may have been rounded down.
    return np.minimum((labels + 1) * (classes / 2) + 1e-9, classes - 1).astype(np.int32)


def row_chunks(samples: int, chunk_size: int = COLUMN_CHUNK_ROWS) -> Iterator[IntArray]:
    """Yield the row numbers ``0 .. samples - 1`` in arrays of at most `chunk_size`."""
    for start in range(0, samples, chunk_size):
        yield np.arange(start, min(start + chunk_size, samples))


def column_digest(header: str, chunks: Iterable[tuple[NDArray[np.generic], ...]]) -> bytes:
    """SHA-256 digest of a header and of columns in chunks, independent of the chunk boundaries."""
    digests: list[hashlib._Hash] = []
    for chunk in chunks:
        digests = digests or [hashlib.sha256(f"{column.dtype.str:8}".encode()) for column in chunk]
        for digest, column in zip(digests, chunk, strict=True):
            if column.dtype.kind == "O":
                digest.update("".join(f"{len(text)}:{text}" for text in column.tolist()).encode())
            else:
                digest.update(np.ascontiguousarray(column).reshape(-1).view(np.uint8).data)
    digests.insert(0, hashlib.sha256(header.encode()))
    return hashlib.sha256(b"".join(digest.digest() for digest in digests)).digest()
