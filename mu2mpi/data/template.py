"""Schemas with blanks to fill in."""

from collections.abc import Sequence

import tomli_w

HELP = """\
# What each column holds, in terms that are public: fill in the types from what you know of the table without
# looking at its values. A range or a list of categories that is taken from the data tells of people.
#
#   type = "numeric"        and low = 18, high = 100; values beyond are clamped, missing ones are the middle
#   type = "categorical"    and categories = ["a", "b"]; what is none of them sets no indicator
#   type = "ordinal"        and categories = ["low", "middle", "high"], in their order
#   type = "boolean"        and perhaps true = "ja", false = "nein"; usual words and 1, 0 need no more
#   type = "ignored"        is not read
#   type = "owner"          says whose sample it is; one column at most
#   type = "label"          and classes = ["no", "yes"], or low = 0, high = 10; exactly one column
#
# test is the share of the rows that is for testing, or another file, from the folder of this one.

"""


def template(names: Sequence[str]) -> str:
    """Return the TOML of a schema of these columns, with blanks to fill in."""
    return HELP + tomli_w.dumps({"test": 0.2, "columns": {name: {"type": ""} for name in names}})
