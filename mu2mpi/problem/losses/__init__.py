"""The losses that are built in, one a module."""
