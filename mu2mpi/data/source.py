"""Sources of data: their options, their shape, and any rows of their training and test set on demand."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.options import Options
from mu2mpi.core.registry import OptionValue, find, names
from mu2mpi.core.suggestions import did_you_mean
from mu2mpi.data.formats.format import file_form, is_file
from mu2mpi.data.redaction import DataError, shown, telling

Which = Literal["training", "test"]
Labels: TypeAlias = "NDArray[Any]"

# What a rank needs it reads at once up to about the first size, such as all of MNIST; what is larger, in
# parts of about the second
WHOLE_BYTES, PART_BYTES = 48 << 20, 8 << 20
# Share by which stored features may exceed their bound, as numbers that were rounded to it do
FEATURE_SLACK = 1e-6
USER_FILE = "user-file"  # source of every --data that is a file by its suffix
COLUMN_AT_ONCE = 1 << 18  # labels or owners that are read in one go


@dataclass(frozen=True)
class Samples:
    """Raw features without the bias, as they are stored, and labels of n samples."""

    features: NDArray[np.generic]  # C-contiguous uint8, float32 or float64, shape (n, dimension)
    labels: Labels  # classes in 0 .. classes - 1, int32, or numbers in [-1, 1], float64; shape (n,)


class PublicFacts(NamedTuple):
    """What presets may know of the data: nothing that depends on a sample."""

    classes: int
    square: float  # bound on squared norms of features in [-1, 1], without the bias
    samples: int  # number of samples that all machines can use together
    # Of unequal machines: ratio of the noise of one to that of their average, and the number of equal
    # machines whose average of samples has the same variance
    shared: float | None = None
    effective: float | None = None


@dataclass(frozen=True)
class DataRequest:
    """Data to open, by the options of their source."""

    data: str  # value of --data
    options: Any  # of the type that the source declares
    scaling: str = "none"  # of samples: none, unit or box
    data_dir: Path | None = None  # by default MU2MPI_DATA_DIR, or else the user's cache
    verify: bool = True  # whether to compare checksums, where there are any


class Source(OptionValue, ABC):
    """A training set and a test set of which each rank reads only the rows that it needs.

    The class is a value of ``--data``, with its options; an object is what they open.
    """

    kind: ClassVar[str] = "sources"
    summary: ClassVar[str] = ""  # a few words for its place in the help
    options: ClassVar[type[Options]] = Options
    # Whether samples are the user's own data, perhaps people's: others may hold the same under another name
    is_user_data: ClassVar[bool] = False
    classes_are_numbers: ClassVar[bool] = True  # whether class c may serve a regression as the number c

    name: str  # what the user calls it, such as "mnist"
    classes: int  # K; of numbers, parts of their range that stand for classes
    dimension: int  # number of features without the bias
    training_samples: int
    test_samples: int
    scale: float  # takes a stored feature into [-1, 1], such as 1/255 for pixels
    limit: float | None = None  # bound on stored features where samples are scaled to norm 1
    remedy: str = "remove the sample or rescale the features by a public factor"
    square: float | None = None  # a public bound on ||z||^2 without the bias, where it is below `dimension`
    class_names: tuple[str, ...] | None = None  # where classes are not called by their numbers
    label_range: tuple[float, float] | None = None  # of labels that are numbers, in their own units
    feature_names: tuple[str, ...] | None = None  # where features are not called by their numbers
    columns: str | None = None  # the TOML that says what the columns of a table are
    files: tuple[Path, ...] = ()  # that hold the samples
    test_rows: NDArray[np.int64] | None = None  # of a file of which a share is the test set, unless too many
    has_owners: bool = False  # whether the data say which machine owns each training sample
    made_up: bool = False  # whether settings determine all samples
    # Whether machines draw samples as they need them, from distributions over `points` that are known
    draws_fresh: bool = False
    points: NDArray[np.float64]
    _reads_classes: bool = False  # though labels are to be numbers
    public: bool = True  # whether messages may name rows and what these hold

    @classmethod
    def check(cls, asked: Any, options: Any) -> None:
        """Raise InputError if other settings do not go with this source; the message says what would."""
        if asked.normalize == "box":
            raise InputError("normalize = box needs feature_bound, which files have; leave it out")

    @classmethod
    def fetch(cls, data_dir: Path | None) -> list[Path]:
        """Download what is missing, where that is possible; return the files."""
        return []

    @classmethod
    def open(cls, request: DataRequest) -> Self:
        """Open both sets, without any download; InputError if they are missing or damaged."""
        return cls(**dict(request.options))

    @property
    def feature_type(self) -> np.dtype[np.generic]:
        """The type of a feature as it is stored."""
        empty = np.empty(0, np.int64)
        return (self.points if self.draws_fresh else self.read("training", empty).features).dtype

    @property
    def sample_bytes(self) -> int:
        """Memory that a sample takes: its features as they are stored, label, scale and row number."""
        return self.dimension * self.feature_type.itemsize + 20

    def at_once(self, samples: int) -> int:
        """Return the number of samples to read at once where so many are needed: all, or those of a part."""
        each = self.sample_bytes
        return samples if samples * each <= WHOLE_BYTES else max(1, PART_BYTES // each)

    @abstractmethod
    def read(self, which: Which, rows: NDArray[np.int64]) -> Samples:
        """Return these rows of one of the two sets, in this order."""

    def draw(self, key: bytes, machine: int, machines: int, places: NDArray[np.int64]) -> Samples:
        """Return fresh samples of one of M machines; they depend on key, machine and places alone."""
        raise TypeError(f"{self.name} holds samples, and draws none")

    def probabilities(self) -> NDArray[np.float64]:
        """Return the probability of each point with each label, averaged over machines: shape (n, K)."""
        raise TypeError(f"{self.name} holds samples of distributions that are not known")

    def take_numbers(self) -> None:
        """Have labels be numbers from now on: where they are classes, class c is the number c."""
        if self.label_range is None:
            self.label_range, self._reads_classes = (0.0, float(self.classes - 1)), True

    @property
    def values(self) -> Labels:
        """What the label of each class is to a loss: its number, or that as a number in [-1, 1]."""
        if self.label_range is None:
            return np.arange(self.classes, dtype=np.int32)
        return 2 * np.arange(self.classes) / (self.classes - 1) - 1

    def labelled(self, samples: Samples) -> Samples:
        """Return samples whose labels, if they are classes, are as a loss takes them."""
        if not self._reads_classes:
            return samples
        return Samples(samples.features, self.values[samples.labels.astype(np.int64)])

    def training(self, rows: NDArray[np.int64]) -> Samples:
        """Return a copy of the given rows of the training set, in their order.

        InputError if a feature is not finite or leaves [-1, 1] after scaling, or a label is out of range.
        """
        return self._checked("training", rows)

    def test(self, rows: NDArray[np.int64]) -> Samples:
        """Return the given rows of the test set, as of `training`."""
        return self._checked("test", rows)

    def training_labels(self) -> NDArray[np.int32]:
        """Return the class of every training sample, or which part of their range a number is in."""
        blocks = row_blocks(self.training_samples, self.at_once(self.training_samples))
        return np.concatenate([classes_of(self.training(rows).labels, self.classes) for rows in blocks])

    def training_owners(self) -> NDArray[np.generic]:
        """Return the owner of every training sample, as whole numbers or as texts; InputError if unknown."""
        blocks = row_blocks(self.training_samples, COLUMN_AT_ONCE)
        return np.concatenate([self.read_owners(rows) for rows in blocks])

    def read_owners(self, rows: NDArray[np.int64]) -> NDArray[np.generic]:
        """Return the owners of these rows of the training set."""
        raise InputError(f"{self.name} names no owners of samples; choose another --partition")

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the training data and of what is declared of them, as confidential as they are.

        Its first use reads and checks all samples, but for those that the settings determine.
        """
        sizes = self.training_samples, self.dimension, self.classes
        facts = (*map(int, sizes), self.scale, self.limit, self.has_owners, self.class_names)
        declared = [fact for fact in (self.label_range, self.columns) if fact is not None]
        return digest_of(repr((*facts, *declared)), () if self.made_up else self._checked_parts())

    def _checked_parts(self) -> Iterator[tuple[NDArray[np.generic], ...]]:
        """Yield features, labels and perhaps owners of the training set in parts; check the test set."""
        sizes = self.test_samples, self.training_samples
        parts = math.ceil(max(sizes) / max(1, PART_BYTES // self.sample_bytes))
        for k in range(parts):
            # At the same pace, so that a file that holds both is read once from its beginning to its end.
            test, rows = (np.arange(size * k // parts, size * (k + 1) // parts) for size in sizes)
            self.test(test)
            samples = self.training(rows)
            owners = (self.read_owners(rows),) if self.has_owners else ()
            yield samples.features, samples.labels, *owners

    @cached_property
    def class_sizes(self) -> NDArray[np.int64]:
        """Number of training samples of each class, shape (classes,)."""
        return np.bincount(self.training_labels(), minlength=self.classes)

    @cached_property
    def owner_names(self) -> tuple[str, ...]:
        """What the owners are called, in the order of their names or numbers."""
        return tuple(map(str, np.unique(self.training_owners()).tolist()))

    @cached_property
    def owner_sizes(self) -> NDArray[np.int64]:
        """Number of training samples of each owner, in the order of their names or numbers."""
        sizes: NDArray[np.int64] = np.unique(self.training_owners(), return_counts=True)[1]
        return sizes

    def _checked(self, which: Which, rows: NDArray[np.int64]) -> Samples:
        size = self.training_samples if which == "training" else self.test_samples
        # A negative number would silently count from the end, and a generated source has no end.
        if rows.size and (rows.min() < 0 or rows.max() >= size):
            raise IndexError(f"rows {rows.min()} .. {rows.max()} are not among the {size} of this set")
        with telling(self.public):
            samples = self.read(which, rows)
            self._check_bound(which, rows, samples.features)
            lowest, most = (0, self.classes - 1) if samples.labels.dtype.kind == "i" else (-1, 1)
            bad = np.flatnonzero(~((samples.labels >= lowest) & (samples.labels <= most)))
            if bad.size:
                place, label = self._place(which, rows[bad[0]]), samples.labels[bad[0]]
                needs = f"labels must lie in {lowest} .. {most}"
                raise DataError(f"{self.name}: {needs}", f"{place} has the label {label}; {needs}")
        return self.labelled(samples)

    def _check_bound(self, which: Which, rows: NDArray[np.int64], features: NDArray[np.generic]) -> None:
        limit = 1 / self.scale if self.limit is None else self.limit
        if features.dtype == np.uint8 and limit >= 255:
            return
        highest = limit * (1 + FEATURE_SLACK)
        with np.errstate(invalid="ignore"):  # a signalling NaN cannot be converted without
            # If one is NaN, so are both of these.
            extremes = np.array([features.min(initial=0), features.max(initial=0)], np.float64)
            if np.all(np.abs(extremes) <= highest):
                return
            row, column = np.argwhere(~(np.abs(features.astype(np.float64)) <= highest))[0]
        place, value = self._place(which, rows[row]), features[row, column]
        where = f"column {shown(self.feature_names[column])}" if self.feature_names else f"feature {column}"
        bad, fix = ("too large", self.remedy) if np.isfinite(value) else ("not finite", "remove the sample")
        needs = f"features must be finite and at most {limit:g} in absolute value, so {fix}"
        raise DataError(
            f"{self.name} has a value in {where} that is {bad}; {needs}",
            f"{place} has the value {value} in {where}; {needs}",
        )

    def _place(self, which: Which, number: int) -> str:
        """Say in words where a sample is."""
        return f"{self.name}: {which} sample {number}"


def find_source(data: str) -> type[Source]:
    """Return the source that a value of ``--data`` names; InputError if there is none."""
    known = [name for name in names("sources") if name != USER_FILE]
    if data not in known and not is_file(data):
        raise InputError(f"should be one of: {', '.join(known)}, {file_form()}{did_you_mean(data, known)}")
    source: type[Source] = find("sources", data if data in known else USER_FILE)
    return source


def classes_of(labels: Labels, classes: int) -> NDArray[np.int32]:
    """Return labels that are classes, or of numbers in [-1, 1] in which of so many parts each is."""
    if labels.dtype.kind == "i":
        return labels.astype(np.int32, copy=False)
    # Where a part begins, a number may have been rounded to just below.
    return np.minimum((labels + 1) * (classes / 2) + 1e-9, classes - 1).astype(np.int32)


def row_blocks(samples: int, at_once: int) -> Iterator[NDArray[np.int64]]:
    """Yield the row numbers ``0 .. samples - 1``, so many at once."""
    for start in range(0, samples, at_once):
        yield np.arange(start, min(start + at_once, samples))


def digest_of(facts: str, parts: Iterable[tuple[NDArray[np.generic], ...]]) -> bytes:
    """SHA-256 of some facts and of columns, numbers or texts as objects, wherever the parts end."""
    columns: list[hashlib._Hash] = []
    for part in parts:
        # A width of 8 keeps the type apart from the first bytes that follow it.
        columns = columns or [hashlib.sha256(f"{column.dtype.str:8}".encode()) for column in part]
        for digest, column in zip(columns, part, strict=True):
            if column.dtype.kind == "O":
                digest.update("".join(f"{len(text)}:{text}" for text in column.tolist()).encode())
            else:
                digest.update(np.ascontiguousarray(column).reshape(-1).view(np.uint8).data)
    pieces = [hashlib.sha256(facts.encode()), *columns]
    return hashlib.sha256(b"".join(piece.digest() for piece in pieces)).digest()
