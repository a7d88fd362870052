"""Cluster jobs: job scripts, submission and status, and the launcher of the ranks inside a job."""
