"""One result as arrays with names, coordinates and units."""

from typing import TYPE_CHECKING, Any

import numpy as np

from mu2mpi.extra import needed
from mu2mpi.privacy.accounts import described
from mu2mpi.results.schema import CONFUSION, OF_CONFUSION, History, Result
from mu2mpi.results.writer import plain

if TYPE_CHECKING:
    import xarray


def labelled(result: Result) -> "xarray.Dataset":
    """Return the arrays of a result, as `Result.to_xarray` says."""
    features = result.feature_names or tuple(map(str, range(result.x.shape[1] - 1)))
    coordinates: dict[str, Any] = {
        "row": (result.row_names, "row of the model: what it speaks for"),
        "feature": ((*features, "(bias)"), "feature; the last is the bias"),
    }
    arrays: dict[str, Any] = {
        name: ("round", getattr(result.history, name), said)
        for name, said in History.described(result.labels, result.unit).items()
    }
    arrays["x"] = ("row", "feature"), result.x, described("output x_T of the algorithm")
    arrays["w"] = ("row", "feature"), result.w, described("last iterate w_T")
    if result.confusion is not None:
        arrays["confusion"] = tuple(OF_CONFUSION), result.confusion, described(CONFUSION)
        coordinates |= {name: (result.names_of_classes, text) for name, text in OF_CONFUSION.items()}
    for phase, seconds in result.timing.items():
        arrays[f"{phase}_seconds"] = "rank", seconds, described(f"time spent on {phase}", "s")
        coordinates["rank"] = range(len(seconds)), "MPI rank"
    named = {name: (name, np.array(values), described(text)) for name, (values, text) in coordinates.items()}
    dataset: xarray.Dataset = needed("xarray").Dataset(arrays, named, plain(result.experiment.settings()))
    return dataset.set_coords("round")
