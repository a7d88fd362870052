"""Bounds of options, and options about which machines take part."""

import re

from mu2mpi.core.suggestions import did_you_mean

# Of what is multiplied and squared later on, which must not leave the range of floating-point numbers
LEAST, MOST = 1e-100, 1e100
PARTICIPATION = re.compile(r"by-size|uniform:[1-9]\d{0,8}|bernoulli:(\d*\.?\d+(?:e-?\d)?)|trace:.+")
# Smallest probability with which a machine takes part: with less, it would take long to see any round
RAREST = 1e-4


def check_participation(text: str) -> str | None:
    """Return the name of a way to take part, None for all always, or raise ValueError if it is none."""
    found = PARTICIPATION.fullmatch(text)
    if text == "all":
        return None
    if not found or not RAREST <= float(found[1] or 1) <= 1:
        raise ValueError(
            "should be all, uniform:m with a number of machines such as uniform:20, bernoulli:p with a "
            f"probability of {RAREST:g} to 1 such as bernoulli:0.2, by-size, or trace:FILE"
            + did_you_mean(text, ("all", "by-size", "uniform:m", "bernoulli:p", "trace:FILE"))
        )
    return check_file_name(text)


def check_file_name(name: str) -> str:
    """Return the name of a file, or raise ValueError if no result could hold it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError("should be text in UTF-8; rename the file, or link to it") from None
    return name
