"""Reads a result file: in full, or only what a sweep, a table or a figure needs."""

import math
import re
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, get_type_hints

import h5py
import numpy as np
from numpy.typing import NDArray

from mu2mpi.config.experiment import Experiment, following
from mu2mpi.config.experiment_options import option_fields
from mu2mpi.core.errors import InputError
from mu2mpi.core.files import check_readable
from mu2mpi.core.hdf5 import array_in, attributes_of, number_in, open_group, open_to_read, text_in
from mu2mpi.core.registry import find
from mu2mpi.data.source import PublicFacts
from mu2mpi.privacy.accounting.per_machine import Accounts
from mu2mpi.privacy.statement import PrivacyStatement
from mu2mpi.results.records import SCHEMA, SCORES, Diagnostics, History, Theory
from mu2mpi.results.result import Result

# Attributes that a summary holds; the epsilon of /privacy under another name, as `epsilon` is a setting
OF_PRIVACY = {"epsilon_paper": "epsilon", "epsilon_exact": "epsilon_exact", "sigma": "sigma"}
OF_THEORY = ("excess_loss", "excess_loss_bound", "minimum_loss", "first_slope", "last_slope")
# Columns of the history of which a summary holds the last entry
OF_HISTORY = ("test_loss", *SCORES.values(), "samples", "gradient_evaluations", "elapsed_seconds")


@dataclass(frozen=True)
class Summary:
    """What a table or a data frame needs of one run, of the output x_T on the test set."""

    path: Path
    experiment: Experiment  # with machines and rounds filled in
    created: str  # ISO 8601, UTC
    test_loss: float
    test_accuracy: float  # a share in [0, 1]; NaN for numbers, as R^2 for classes
    # Other numbers: ``epsilon_paper``, ``epsilon_exact``, ``sigma``, those of `Theory`, ``ranks``, ``cores``
    # (not in every file), ``parameters`` (d), ``samples_used`` and ``gradient_evaluations`` of all machines,
    # ``elapsed_seconds``, mean seconds by phase over ranks, such as ``noise_seconds``, and metrics
    figures: dict[str, float] = field(default_factory=dict)
    test_r2: float = math.nan
    facts: PublicFacts | None = None  # what a preset could use of the data
    version: str = ""  # of the package

    @property
    def labels(self) -> str:
        """What the run learned: ``classes`` or ``numbers``."""
        return "classes" if math.isnan(self.test_r2) else "numbers"

    @property
    def phases(self) -> dict[str, float]:
        """Seconds by phase, such as ``noise``, as the mean over ranks; the file's version decides which."""
        times = {name: seconds for name, seconds in self.figures.items() if name.endswith("_seconds")}
        return {name.removesuffix("_seconds"): times[name] for name in times if name != "elapsed_seconds"}

    @cached_property
    def history(self) -> History:
        """The history in full, read when it is first asked for."""
        with _open(self.path) as file:
            return stored_history(file)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Settings by name, two ways to say the same as one; not to be changed."""
        return canonical(self.experiment)

    @cached_property
    def own_settings(self) -> dict[str, Any]:
        """Settings by name, or None where they follow from others; not to be changed."""
        experiment, settings = self.experiment, self.settings
        follows = following(experiment, self.facts)
        if experiment.epsilon is not None:
            follows["rho"] = settings["rho"]
        elif find("mechanisms", experiment.chosen_mechanism).spends == "rho" and experiment.budgets is None:
            follows["delta"] = settings["delta"]  # It changes nothing in the model.
        return {name: None if name in follows and follows[name] == v else v for name, v in settings.items()}

    @cached_property
    def row(self) -> dict[str, Any]:
        """Settings and measurements by name, as one row of a tidy table."""
        measured = {name: getattr(self, name) for name in ("test_loss", *SCORES.values())}
        settings = dict.fromkeys(option_fields()) | self.experiment.settings()
        return settings | measured | self.figures | {"created": self.created, "file": str(self.path)}


def canonical(experiment: Experiment) -> dict[str, Any]:
    """Return settings of an experiment, with a method chosen by its parts by name, and the iid partition."""
    settings = dict.fromkeys(option_fields()) | experiment.values()
    settings |= {"method": experiment.chosen_method.name, "estimator": None, "query": None}
    if settings["partition"] is None and not experiment.source.is_user_data:
        settings["partition"] = "iid"
    return settings


def read_result(path: Path | str) -> Result:
    """Read a result file in full; InputError if it is none, damaged, incomplete or of another schema.

    Examples
    --------
    >>> result = mu2mpi.read_result("a.h5")
    >>> result.experiment.machines, result.x.shape
    (4, (10, 65))
    """
    path = Path(path)
    with _open(path) as file:
        own = ("schema", "created", "status", "experiment")
        others = {name: value for name, value in attributes_of(file).items() if name not in own}
        model, names = attributes_of(file["model"]), _names(file, "model/feature_name")
        ends = model.get("label_range")
        return Result(
            experiment=stored_experiment(file, path),
            x=_matrix(file, "x"),
            w=_matrix(file, "w"),
            history=stored_history(file),
            privacy=stored_privacy(file, path),
            accounts=_accounts(file),
            theory=_record(Theory, file, "theory"),
            diagnostics=_record(Diagnostics, file, "diagnostics"),
            class_counts=_optional(file, "diagnostics/class_counts"),
            class_names=_names(file, "model/label"),
            metrics=_metrics(file),
            confusion=_optional(file, "metrics/confusion"),
            test_rows=_optional(file, "metrics/test_row"),
            label_range=None if ends is None else (float(ends[0]), float(ends[1])),
            feature_names=None if names is None else names[:-1],
            columns=model.get("columns"),
            scale=float(model["scale"]),
            facts=_facts(file),
            # Its list of dimensions, which no checksum guards, can make HDF5 loop for ever.
            unit=attributes_of(file["history/test_loss"], "units").get("units", "1"),
            timing=_timing(file),
            # Python's own integers rather than numpy's.
            environment={k: v if isinstance(v, str) else v.item() for k, v in others.items()},
            path=path,
        )


def read_experiment(path: Path) -> Experiment:
    """Read only which experiment a file holds; raises like `read_result`."""
    with _open(path) as file:
        return stored_experiment(file, path)


def read_summary(path: Path) -> Summary:
    """Read only what a table needs of a file; raises like `read_result`."""
    with _open(path) as file:
        experiment = stored_experiment(file, path)
        privacy, history = open_group(file, "privacy"), open_group(file, "history")
        figures = {name: number_in(privacy, stated) for name, stated in OF_PRIVACY.items()}
        if "theory" in file:
            theory = open_group(file, "theory")
            figures |= {name: number_in(theory, name) for name in OF_THEORY}
        if not h5py.h5a.exists(privacy, b"rho"):
            # The lemma speaks of a rho, so that the file repeats the epsilon of another account.
            figures["epsilon_paper"] = math.nan
        figures["ranks"] = int(number_in(file.id, "ranks"))
        if h5py.h5a.exists(file.id, b"cores"):
            figures["cores"] = int(number_in(file.id, "cores"))
        figures["parameters"] = file["model/x"].size
        there = [name for name in OF_HISTORY if name.encode() in history]
        last = {name: float(array_in(history, name, np.float64)[-1]) for name in there}
        figures["samples_used"] = int(last["samples"])
        figures["gradient_evaluations"] = int(last["gradient_evaluations"])
        figures["elapsed_seconds"] = last["elapsed_seconds"]
        timing = _timing(file).items()
        figures |= {f"{phase}_seconds": float(ranks.mean()) for phase, ranks in timing if ranks.size}
        figures |= _metrics(file)
        return Summary(
            path,
            experiment,
            text_in(file.id, "created"),
            last["test_loss"],
            figures=figures,
            # What nothing asks for is not read.
            facts=_facts(file) if experiment.by_preset() else None,
            version=text_in(file.id, "mu2mpi_version") if h5py.h5a.exists(file.id, b"mu2mpi_version") else "",
            **{name: last.get(name, math.nan) for name in SCORES.values()},
        )


@contextmanager
def open_own(path: Path, way_out: str = "copy it again or repeat the run") -> Iterator[h5py.File]:
    """Open an HDF5 file of ours, and turn whatever goes wrong, also in the block, into an InputError."""
    check_readable(path)
    try:
        # Our files are replaced and never changed in place, so that no lock of another program matters.
        with open_to_read(path, locking=False) as file:
            yield file
    except InputError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.strerror and error.filename:
            raise InputError(f"cannot read {path}: {error.strerror}") from None
        if not h5py.is_hdf5(path):
            raise InputError(f"{path} is not an HDF5 file, so not one of mu2mpi") from None
        # Where HDF5 meets damage decides which of half a dozen exceptions it raises.
        raise InputError(f"{path} is damaged or incomplete ({error}); {way_out}") from error


@contextmanager
def _open(path: Path) -> Iterator[h5py.File]:
    """Open a finished result of this schema."""
    with open_own(path) as file:
        if not h5py.h5a.exists(file.id, b"schema"):
            raise InputError(f"{path} is an HDF5 file but not a result of mu2mpi: it has no 'schema'")
        if (schema := text_in(file.id, "schema")) != SCHEMA:
            raise InputError(f"{path} has the schema {schema!r}; this version of mu2mpi reads {SCHEMA!r}")
        if (status := text_in(file.id, "status")) != "complete":
            raise InputError(f"{path} is not a finished run: its status is {status!r}")
        yield file


def stored_experiment(file: h5py.File, path: Path) -> Experiment:
    """Return the experiment that an open file holds; its machines and rounds are known."""
    try:
        experiment = Experiment.make(tomllib.loads(text_in(file.id, "experiment")), str(path))
    except InputError as error:
        if not h5py.h5a.exists(file.id, b"imported_files"):
            raise
        # Not imported by itself: the file may be somebody else's, and its import would run what it names.
        imports = re.sub(r" \(SHA-256 \w+\)", "", text_in(file.id, "imported_files"))
        raise InputError(f"{error}\n{path} was made with {imports}; give --import FILE for each") from None
    if experiment.machines is None or experiment.rounds is None:
        raise InputError(f"{path} is incomplete: its experiment lacks the number of machines or of rounds")
    return experiment


def stored_privacy(file: h5py.File, path: Path) -> PrivacyStatement:
    """Return the privacy statement that an open file holds."""
    try:
        return PrivacyStatement.from_attributes(attributes_of(file["privacy"]))
    except InputError as error:
        raise InputError(f"{path} cannot be used: {error}") from None


def _optional(file: h5py.File, name: str) -> NDArray[np.int64] | None:
    return array_in(file.id, name) if name in file else None


def _names(file: h5py.File, name: str) -> tuple[str, ...] | None:
    return tuple(file[name].asstr()[()]) if name in file else None


def _columns(file: h5py.File, group: str, kind: type, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Return columns of a group, of one length and of the types that the fields of a class have."""
    types = get_type_hints(kind)
    columns = {name: array_in(file.id, f"{group}/{name}") for name in names}
    length = len(next(iter(columns.values())))
    for name, values in columns.items():
        expected = np.int64 if types[name] == NDArray[np.int64] else np.float64
        if values.shape != (length,) or values.dtype != expected:
            raise ValueError(f"/{group}/{name} has the type {values.dtype} and the shape {values.shape}")
    return columns


def _accounts(file: h5py.File) -> Accounts | None:
    if (group := "privacy/machines") not in file:
        return None
    columns = _columns(file, group, Accounts, Accounts.columns())
    owners, present = _names(file, f"{group}/owner"), _optional(file, f"{group}/present")
    if owners is not None and len(owners) != len(columns["samples"]):
        raise ValueError(f"/{group} has {len(owners)} owners of {len(columns['samples'])} machines")
    if present is not None and (present.ndim != 2 or present.dtype != np.uint8):
        raise ValueError(f"/{group}/present has the type {present.dtype} and the shape {present.shape}")
    return Accounts(**columns, owners=owners, present=None if present is None else present.astype(bool))


def _facts(file: h5py.File) -> PublicFacts | None:
    model = open_group(file, "model")
    there = [name for name in PublicFacts._fields if h5py.h5a.exists(model, name.encode())]
    if "square" not in there:
        return None
    classes, square, samples, *averages = (number_in(model, name) for name in there)
    return PublicFacts(int(classes), square, int(samples), *averages)


def _metrics(file: h5py.File) -> dict[str, float]:
    """Return the measures of the output by name; none of a file that was published without."""
    if "metrics" not in file:
        return {}
    metrics = open_group(file, "metrics")
    return {name: number_in(metrics, name) for name in file["metrics"].attrs}


def _matrix(file: h5py.File, name: str) -> NDArray[np.float64]:
    matrix = array_in(file.id, f"model/{name}")
    shape = file["model/row"].shape + file["model/feature"].shape
    if matrix.shape != shape or matrix.dtype != np.float64:
        raise ValueError(f"/model/{name} has the type {matrix.dtype} and shape {matrix.shape}")
    return matrix


def _timing(file: h5py.File) -> dict[str, NDArray[np.float64]]:
    """Return the seconds by phase and rank; none of a file that was published without."""
    if "timing" not in file:
        return {}
    timing = open_group(file, "timing")
    return {name.decode(): array_in(timing, name.decode(), np.float64) for name in timing if name != b"rank"}


def stored_history(file: h5py.File) -> History:
    """Return the history that an open file holds, of which all columns have one length."""
    # Earlier versions did not say on how many test samples they measured.
    absent: dict[str, Any] = {**dict.fromkeys(SCORES.values(), np.nan), "test_samples": 0}
    absent = {name: unknown for name, unknown in absent.items() if f"history/{name}" not in file}
    columns = _columns(file, "history", History, [n for n in History.columns() if n not in absent])
    return History(**columns, **{n: np.full(len(columns["round"]), of) for n, of in absent.items()})


def _record(kind: type[Any], file: h5py.File, group: str) -> Any:
    """Rebuild a dataclass of numbers from the attributes of a group, if it is there."""
    if group not in file:
        return None
    attributes = open_group(file, group)
    return kind(**{entry.name: number_in(attributes, entry.name) for entry in fields(kind)})
