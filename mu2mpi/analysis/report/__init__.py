"""One self-contained page of everything that a folder of results says."""

from mu2mpi.analysis.report.page import build_report

__all__ = ["build_report"]
