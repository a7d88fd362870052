"""Index of a study file: the summaries of its results as JSON, so that tables read one array."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

import h5py
import numpy as np

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.hdf5 import write_array
from mu2mpi.core.toml import parse_toml
from mu2mpi.data.source import PublicFacts
from mu2mpi.results.opening import open_mu2mpi_file
from mu2mpi.results.reader import RunSummary

STUDY_INDEX = ".summaries"  # Name of the array. Results are never hidden, so that none has this name.


def write_study_index(study: h5py.File, runs_by_name: Mapping[str, RunSummary]) -> None:
    """Write the index of a study file with the summaries of its results by name."""
    records = []
    for name, run in runs_by_name.items():
        values = {field.name: getattr(run, field.name) for field in fields(run)}
        record = {**values, "path": name, "experiment": run.experiment.to_toml()}
        records.append(json.dumps(record).encode())
    write_array(study, STUDY_INDEX, np.array(records), compression="gzip")


def read_study_index(study: Path) -> dict[Path, RunSummary]:
    """Read summaries from the index of a study file, by path, without those that cannot be used."""
    summaries = dict[Path, RunSummary]()
    # Results without a summary are read, which has the better message.
    with suppress(InputError), open_mu2mpi_file(study) as file:
        for record in map(json.loads, file[STUDY_INDEX][()].tolist()):
            with suppress(InputError):  # such as a missing extension
                path = study / record["path"]
                experiment = Experiment.from_settings(parse_toml(record["experiment"], str(path)), str(path))
                facts = record["public_facts"] and PublicFacts(*record["public_facts"])
                values = {**record, "path": path, "experiment": experiment, "public_facts": facts}
                summaries[path] = RunSummary(**values)
    return summaries
