"""Built-in file formats of data sets, one per module."""
