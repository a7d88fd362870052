"""Read HDF5 result files: in full, or only a summary for tables and figures."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import h5py
import numpy as np
from numpy.typing import NDArray

from mu2mpi.config.experiment import Experiment, preset_and_server_settings
from mu2mpi.config.experiment_options import option_fields
from mu2mpi.core.arrays import FloatArray, IntArray
from mu2mpi.core.hdf5 import open_group, read_array, read_attributes, read_number, read_text
from mu2mpi.core.registry import lookup
from mu2mpi.data.source import PublicFacts
from mu2mpi.federation.timer import TIMED_PHASES
from mu2mpi.privacy.accounting.per_machine_accounts import PerMachineAccounts
from mu2mpi.privacy.statement import COMPARISONS, RELATION_EPSILONS, PrivacyStatement
from mu2mpi.results import records
from mu2mpi.results.opening import open_result, stored_experiment, stored_privacy
from mu2mpi.results.records import SCORE_COLUMNS, Diagnostics, History, Theory
from mu2mpi.results.result import Result

# Measurements of a summary that are attributes of /privacy: their names, and those of the attributes
PRIVACY_ATTRIBUTES = {
    "epsilon_paper": "epsilon", "epsilon_exact": "epsilon_exact", "sigma": "sigma", "mu": "mu",
    "tpr": "tpr_at_fpr_0.01", "attack_accuracy": "attack_accuracy",
} | {name: name for name in RELATION_EPSILONS.values()}  # fmt: skip
# Measurements of a summary that are attributes of /theory
THEORY_ATTRIBUTES = (
    "excess_loss", "excess_loss_bound", "minimum_loss", "initial_gradient_norm", "final_gradient_norm",
)  # fmt: skip
# Columns of the history whose last entry is read for a summary, as is that of the score
FINAL_COLUMNS = ("test_loss", "samples", "gradient_evaluations", "elapsed_seconds")


class RunContents(NamedTuple):
    """Contents of a result file that comparisons and privacy reports need besides the summary."""

    path: Path
    experiment: Experiment
    privacy: PrivacyStatement
    environment: dict[str, Any]
    model_digest: bytes  # as by `records.model_digest`


@dataclass(frozen=True)
class RunSummary:
    """Settings and final measurements of one run, for tables and figures."""

    path: Path
    experiment: Experiment  # with machines and rounds filled in
    created: str  # ISO 8601, UTC
    test_loss: float  # mean loss of the output x_T on the test set
    test_accuracy: float  # of the output, in [0, 1]; NaN for regression
    # Other numbers by name: ``epsilon_paper``, ``epsilon_exact``, ``sigma``, fields of `Theory`, ``ranks``,
    # ``parameters`` (d), ``samples_used`` and ``gradient_evaluations`` (sums over machines),
    # ``elapsed_seconds``, mean seconds over ranks such as ``noise_seconds``, ``core_hours``, ``peak_memory``
    # (bytes of the rank with most), and metrics. Not in old files: ``cores``, ``epsilon_replace``,
    # ``epsilon_zero_out``, ``mu``, ``tpr``, ``attack_accuracy``
    measurements: dict[str, float] = field(default_factory=dict)
    test_r2: float = math.nan  # of the output; NaN for classification
    public_facts: PublicFacts | None = None  # public facts of the data that a preset may use
    mu2mpi_version: str = ""  # version of mu2mpi that ran the experiment

    @property
    def label_kind(self) -> str:
        """Kind of labels: ``classes`` (classification) or ``numbers`` (regression)."""
        return "classes" if math.isnan(self.test_r2) else "numbers"

    @property
    def phase_seconds(self) -> dict[str, float]:
        """Mean seconds over ranks by phase, such as ``noise``; the phases depend on the file's version."""
        times = {name: seconds for name, seconds in self.measurements.items() if name.endswith("_seconds")}
        return {name.removesuffix("_seconds"): times[name] for name in times if name != "elapsed_seconds"}

    @cached_property
    def history(self) -> History:
        """Measurements at all evaluation rounds, read from the result file at the first access."""
        with open_result(self.path) as file:
            return stored_history(file)

    @cached_property
    def contents(self) -> RunContents:
        """Contents for comparisons and privacy reports, read from the result file at the first access."""
        with open_result(self.path) as file:
            digest = records.model_digest(_read_matrix(file, "x"), _read_matrix(file, "w"))
            privacy, environment = stored_privacy(file, self.path), _read_environment(file)
            return RunContents(self.path, self.experiment, privacy, environment, digest)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Settings of the run by name in the form of `canonical_settings`; read-only."""
        return canonical_settings(self.experiment)

    @cached_property
    def independent_settings(self) -> dict[str, Any]:
        """Settings of the run by name, None for those that other settings determine; read-only."""
        experiment, settings = self.experiment, self.settings
        derived = preset_and_server_settings(experiment, self.public_facts)
        mechanism = lookup("mechanisms", experiment.chosen_mechanism)
        if experiment.epsilon is not None:
            derived["rho"] = settings["rho"]
        elif mechanism.budget_parameter == "rho" and experiment.budgets is None:
            derived["delta"] = settings["delta"]  # delta does not affect the model.
        return {name: None if name in derived and derived[name] == v else v for name, v in settings.items()}

    @cached_property
    def table_row(self) -> dict[str, Any]:
        """Settings and measurements of the run by name: its row of a tidy table."""
        final = {name: getattr(self, name) for name in ("test_loss", *SCORE_COLUMNS.values())}
        settings = dict.fromkeys(option_fields()) | self.experiment.settings()
        return settings | final | self.measurements | {"created": self.created, "file": str(self.path)}


def canonical_settings(experiment: Experiment) -> dict[str, Any]:
    """Return the settings of an experiment by name, equal for equivalent choices of method and partition."""
    settings = dict.fromkeys(option_fields()) | experiment.settings_with_defaults()
    settings |= {"method": experiment.chosen_method.name, "estimator": None, "query": None}
    if settings["partition"] is None and not experiment.source.is_user_data:
        settings["partition"] = "iid"
    return settings


def read_result(path: Path | str) -> Result:
    """Read a result file in full; InputError if it is damaged, incomplete, of another schema or not a result.

    Examples
    --------
    >>> result = mu2mpi.read_result("a.h5")
    >>> result.experiment.machines, result.x.shape
    (4, (10, 65))
    """
    path = Path(path)
    with open_result(path) as file:
        model, names = read_attributes(file["model"]), _read_strings(file, "model/feature_name")
        label_range = model.get("label_range")
        if not 0 < float(model["scale"]) < math.inf:
            raise ValueError("/model has a scale of features that is out of range")
        return Result(
            experiment=stored_experiment(file, path),
            x=_read_matrix(file, "x"),
            w=_read_matrix(file, "w"),
            history=stored_history(file),
            privacy=stored_privacy(file, path),
            accounts=_read_accounts(file),
            theory=_read_dataclass(Theory, file, "theory"),
            diagnostics=_read_dataclass(Diagnostics, file, "diagnostics"),
            class_names=_read_strings(file, "model/label"),
            metrics=_read_metrics(file),
            confusion=_read_array_or_none(file, "metrics/confusion"),
            test_rows=_read_array_or_none(file, "metrics/test_row"),
            label_range=None if label_range is None else (float(label_range[0]), float(label_range[1])),
            feature_names=None if names is None else names[:-1],
            schema_toml=model.get("schema_toml"),
            feature_scale=float(model["scale"]),
            public_facts=_read_public_facts(file),
            # Reads one attribute: a damaged list of dimension scales, which has no checksum, can hang HDF5.
            loss_unit=str(read_attributes(file["history/test_loss"], "units").get("units", "1")),
            timing=_read_timing(file),
            environment=_read_environment(file),
            cost=_read_cost(file),
            path=path,
        )


def read_experiment(path: Path) -> Experiment:
    """Read the settings of a run from its result file; raises the errors of `read_result`."""
    with open_result(path) as file:
        return stored_experiment(file, path)


def read_summary(path: Path) -> RunSummary:
    """Read settings and final measurements from a result file; raises the errors of `read_result`."""
    with open_result(path) as file:
        experiment = stored_experiment(file, path)
        privacy, history = open_group(file, "privacy"), open_group(file, "history")
        measurements = {
            name: read_number(privacy, stored)
            for name, stored in PRIVACY_ATTRIBUTES.items()
            if stored not in COMPARISONS or h5py.h5a.exists(privacy, stored.encode())
        }
        if b"theory" in file.id:
            theory = open_group(file, "theory")
            measurements |= {name: read_number(theory, name) for name in THEORY_ATTRIBUTES}
        if h5py.h5a.exists(privacy, b"select") or not h5py.h5a.exists(privacy, b"rho"):
            # The paper's lemma needs a rho; without one, `epsilon` repeats the value of another accountant.
            measurements["epsilon_paper"] = math.nan
        measurements |= {name: int(size) for name, size in read_attributes(file, "ranks", "cores").items()}
        measurements["parameters"] = math.prod(h5py.h5d.open(file.id, b"model/x").shape)
        scores = (name for name in SCORE_COLUMNS.values() if name.encode() in history)
        last = {n: float(read_array(history, n, np.float64)[-1]) for n in (*FINAL_COLUMNS, *scores)}
        measurements["samples_used"] = int(last["samples"])
        measurements["gradient_evaluations"] = int(last["gradient_evaluations"])
        measurements["elapsed_seconds"] = last["elapsed_seconds"]
        if (timing := _read_timing(file)) and (seconds := np.array([*timing.values()])).size:
            names = (f"{phase}_seconds" for phase in timing)
            measurements |= zip(names, seconds.mean(axis=1).tolist(), strict=True)
        measurements |= _read_metrics(file)
        if b"cost" in file.id:
            cost = open_group(file, "cost")
            measurements["core_hours"] = read_number(cost, "core_seconds") / 3600
            measurements["peak_memory"] = int(read_array(cost, "peak_memory").max())
        public_facts = _read_public_facts(file) if experiment.preset_settings() else None
        version = read_attributes(file, "mu2mpi_version").get("mu2mpi_version", "")
        created, loss = read_text(file.id, "created"), last["test_loss"]
        accuracy, r2 = (last.get(name, math.nan) for name in ("test_accuracy", "test_r2"))
        return RunSummary(path, experiment, created, loss, accuracy, measurements, r2, public_facts, version)


def _read_environment(file: h5py.Group) -> dict[str, Any]:
    environment = {n: v for n, v in read_attributes(file).items() if n not in records.HEADER_ATTRIBUTES}
    return {k: v if isinstance(v, str) else v.item() for k, v in environment.items()}


def _read_cost(file: h5py.Group) -> dict[str, Any]:
    """Return the cost of a run; empty for a published file, and for one of an earlier version."""
    if "cost" not in file:
        return {}
    attributes = read_attributes(file["cost"])
    attributes["core_seconds"] = float(attributes["core_seconds"])
    return {**attributes, "peak_memory": read_array(file.id, "cost/peak_memory")}


def _read_array_or_none(file: h5py.Group, name: str) -> IntArray | None:
    if name not in file:
        return None
    if (values := read_array(file.id, name)).dtype.kind not in "iu":
        raise ValueError(f"/{name} has the type {values.dtype}")
    return values


def _read_strings(file: h5py.Group, name: str) -> tuple[str, ...] | None:
    return tuple(file[name].asstr()[()]) if name in file else None


def _read_columns(
    file: h5py.Group, group: str, record_class: type, names: Iterable[str]
) -> dict[str, NDArray[Any]]:
    """Read HDF5 columns by name; ValueError unless lengths agree and types are those of a record class."""
    types = get_type_hints(record_class)
    columns = {name: read_array(file.id, f"{group}/{name}") for name in names}
    length = len(next(iter(columns.values())))
    for name, values in columns.items():
        expected = np.int64 if types[name] == IntArray else np.float64
        if values.shape != (length,) or values.dtype != expected:
            raise ValueError(f"/{group}/{name} has the type {values.dtype} and the shape {values.shape}")
    return columns


def _read_accounts(file: h5py.Group) -> PerMachineAccounts | None:
    if (group := "privacy/machines") not in file:
        return None
    columns = _read_columns(file, group, PerMachineAccounts, PerMachineAccounts.columns())
    owners = _read_strings(file, f"{group}/owner")
    matrix = _read_array_or_none(file, f"{group}/participation")
    if owners is not None and len(owners) != len(columns["samples"]):
        raise ValueError(f"/{group} has {len(owners)} owners of {len(columns['samples'])} machines")
    if matrix is not None and (matrix.ndim != 2 or matrix.dtype != np.uint8):
        raise ValueError(f"/{group}/participation has the type {matrix.dtype} and the shape {matrix.shape}")
    participation = None if matrix is None else matrix.astype(bool)
    return PerMachineAccounts(**columns, machine_owners=owners, participation=participation)


def _read_public_facts(file: h5py.Group) -> PublicFacts | None:
    model = open_group(file, "model")
    stored = [name for name in PublicFacts._fields if h5py.h5a.exists(model, name.encode())]
    if "max_squared_norm" not in stored:
        return None
    classes, max_squared_norm, samples, *averages = (read_number(model, name) for name in stored)
    if not (classes >= 0 and samples >= 0 and 0 <= max_squared_norm < math.inf):
        raise ValueError("/model has facts of the data that are out of range")
    return PublicFacts(int(classes), max_squared_norm, int(samples), *averages)


def _read_metrics(file: h5py.Group) -> dict[str, float]:
    """Return the output's test metrics by name; empty for a file published without metrics."""
    if b"metrics" not in file.id:
        return {}
    metrics = open_group(file, "metrics")
    return {name: read_number(metrics, name) for name in h5py.Group(metrics).attrs}


def _read_matrix(file: h5py.Group, name: str) -> FloatArray:
    matrix = read_array(file.id, f"model/{name}")
    shape = file["model/row"].shape + file["model/feature"].shape
    if matrix.shape != shape or matrix.dtype != np.float64 or not np.isfinite(matrix).all():
        raise ValueError(f"/model/{name} has the type {matrix.dtype}, the shape {matrix.shape}, or NaN")
    return matrix


def _read_timing(file: h5py.Group) -> dict[str, FloatArray]:
    """Return seconds by phase, shape (ranks,) each; empty for a file published without times."""
    if b"timing" not in file.id:
        return {}
    timing = open_group(file, "timing")
    phases = [name.decode() for name in timing if name != b"rank"]
    phases.sort(key=lambda phase: TIMED_PHASES.index(phase) if phase in TIMED_PHASES else len(TIMED_PHASES))
    times = {phase: read_array(timing, phase, np.float64) for phase in phases}
    if len({s.shape for s in times.values()}) > 1 or not np.isfinite([*times.values()]).all():
        raise ValueError("/timing has phases of different lengths, or times that are not finite")
    return times


def stored_history(file: h5py.Group) -> History:
    """Return the measurements at evaluation rounds in an open file; ValueError if column lengths differ."""
    # Earlier versions did not store the number of test samples.
    defaults: dict[str, Any] = {**dict.fromkeys(SCORE_COLUMNS.values(), np.nan), "test_samples": 0}
    absent = {name: default for name, default in defaults.items() if f"history/{name}" not in file}
    columns = _read_columns(file, "history", History, [n for n in History.column_names() if n not in absent])
    return History(**columns, **{n: np.full(len(columns["round"]), v) for n, v in absent.items()})


def _read_dataclass(record_class: type[Any], file: h5py.Group, group: str) -> Any:
    """Return a dataclass of numbers from the attributes of an HDF5 group; None for an absent group."""
    if group not in file:
        return None
    attributes = open_group(file, group)
    return record_class(**{f.name: read_number(attributes, f.name) for f in fields(record_class)})
