"""The sources of data that are built in, one a module."""
