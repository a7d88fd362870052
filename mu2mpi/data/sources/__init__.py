"""One module a source of data."""
