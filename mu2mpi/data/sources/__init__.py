"""One module a source of data, which knows how to open it by an experiment's options."""

from importlib import import_module

from mu2mpi.data.options import is_file
from mu2mpi.data.source import Source


def source_class(data: str) -> type[Source]:
    """Return the class of what an experiment's option `data` names; a run imports no other source."""
    name = "user_file" if is_file(data) else data
    # The class in user_file is UserFile, and so on.
    found: type[Source] = getattr(import_module(f"{__name__}.{name}"), name.title().replace("_", ""))
    return found
