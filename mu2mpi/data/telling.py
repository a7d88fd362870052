"""Messages about people's data: what is wrong with them, and where only if the data are public."""

from collections.abc import Iterator
from contextlib import contextmanager

from mu2mpi.errors import InputError


class DataError(InputError):
    """Something is wrong with what a file holds: `exact` names rows and values, and the message does not."""

    def __init__(self, message: str, exact: str) -> None:
        super().__init__(f"{message} (if the data are public, --data-is-public says where)")
        self.exact = exact


@contextmanager
def telling(public: bool) -> Iterator[None]:
    """Say what exactly is wrong with data that are public."""
    try:
        yield
    except DataError as fault:
        if not public:
            raise
        raise InputError(fault.exact) from fault.__cause__
