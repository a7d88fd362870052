"""Limits that options of several owners share."""

# Of what is multiplied and squared later on, which must not leave the range of floating-point numbers
LEAST, MOST = 1e-100, 1e100


def check_file_name(name: str) -> str:
    """Return the name of a file, or raise ValueError if no result could hold it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError("should be text in UTF-8; rename the file, or link to it") from None
    return name
