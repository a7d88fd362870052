"""Cluster jobs: job scripts and status, and the launcher of the ranks inside a job."""
