"""The file formats that are built in, one a module."""
