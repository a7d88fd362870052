"""Distributions with a known smallest loss as a source."""

from typing import TYPE_CHECKING, Any

from pydantic import Field

from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.data.sources.base import DataRequest, DataSource, GeneratedOptions

if TYPE_CHECKING:
    from mu2mpi.data.source import Source


class PopulationOptions(GeneratedOptions):
    """How hard the problem is, and how far machines differ."""

    margin: float = Field(0.5, ge=0, le=1, description="how far apart classes are, 1 for a point each")
    label_noise: float = Field(0.1, ge=0, le=1, description="share of labels that are drawn at random")
    heterogeneity: float = Field(
        0.0, ge=0, le=1, description="how far random labels lean to a model of each machine's own"
    )


@register
class PopulationSource(DataSource):
    """See `mu2mpi.data.population`."""

    name, summary = "population", "a distribution of each machine, of which the smallest loss is known"
    options = PopulationOptions
    draws_fresh = True

    def check(self, asked: Any, options: Any) -> None:
        """Refuse a partition, as there are no given samples."""
        super().check(asked, options)
        if asked.partition is not None:
            raise InputError("partition deals out given samples, and machines draw their own of a population")

    def open(self, request: DataRequest) -> "Source":
        """Draw the points of the population."""
        from mu2mpi.data.population import Population

        return Population(**dict(request.options))
