"""One module a format of files."""
