"""Samples of a logistic model as a source."""

from typing import TYPE_CHECKING

from mu2mpi.core.registry import register
from mu2mpi.data.sources.base import DataRequest, DataSource, GeneratedOptions

if TYPE_CHECKING:
    from mu2mpi.data.source import Source


@register
class SyntheticSource(DataSource):
    """See `mu2mpi.data.synthetic`."""

    name, summary = "synthetic", "samples of a multinomial logistic model"
    options = GeneratedOptions

    def open(self, request: DataRequest) -> "Source":
        """Draw the true model."""
        from mu2mpi.data.synthetic import Synthetic

        return Synthetic(**dict(request.options))
