"""MNIST as a source."""

from pathlib import Path
from typing import TYPE_CHECKING

from mu2mpi.core.registry import register
from mu2mpi.data.sources.base import DataRequest, DataSource

if TYPE_CHECKING:
    from mu2mpi.data.source import Source


@register
class MnistSource(DataSource):
    """See `mu2mpi.data.mnist`."""

    name, summary = "mnist", "70,000 images of 28 x 28 pixels, downloaded by `mu2mpi data mnist`"

    def fetch(self, data_dir: Path | None) -> list[Path]:
        """Download what is missing, but replace no damaged file of the user's; return the four files."""
        from mu2mpi.data.mnist import fetch

        return fetch(data_dir)

    def open(self, request: DataRequest) -> "Source":
        """Map the four files into memory."""
        from mu2mpi.data.mnist import Mnist

        return Mnist(request.data_dir, request.verify)
