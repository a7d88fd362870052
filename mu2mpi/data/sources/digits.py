"""The digits of scikit-learn as a source."""

from typing import TYPE_CHECKING

from mu2mpi.core.registry import register
from mu2mpi.data.sources.base import DataRequest, DataSource

if TYPE_CHECKING:
    from mu2mpi.data.source import Source


@register
class DigitsSource(DataSource):
    """See `mu2mpi.data.digits`."""

    name, summary = "digits", "1,797 images of 8 x 8 pixels, built in"

    def open(self, request: DataRequest) -> "Source":
        """Read the digits that come with scikit-learn."""
        from mu2mpi.data.digits import Digits

        return Digits()
