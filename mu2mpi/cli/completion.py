"""Completion of command lines in a shell by argcomplete; imported only when the shell asks for it."""

import os
from argparse import Action, ArgumentParser
from typing import Any, cast

import argcomplete

from mu2mpi.core.registry import known_names


def complete_words() -> list[str]:
    """Return the arguments before the one to complete."""
    words = argcomplete.split_line(os.environ["COMP_LINE"], int(os.environ["COMP_POINT"]))[3]
    return words[int(os.environ["_ARGCOMPLETE"]) :]


def print_completions(parser: ArgumentParser) -> None:
    """Print the completions of the argument at the cursor for the shell, and exit."""
    argcomplete.autocomplete(parser, False, default_completer=cast(Any, _complete_value))


def _complete_value(prefix: str, action: Action, **_: Any) -> list[str]:
    """Return registered names, topics of --help, or paths: values of arguments without fixed choices."""
    paths = argcomplete.FilesCompleter()(prefix)
    if action.type is not None:  # such as Path
        return known_names("figures") + paths if "FIGURE" in str(action.metavar) else paths
    from mu2mpi.config.experiment_options import option_fields
    from mu2mpi.core.options import registry_kind

    kinds = {name: registry_kind(field) for name, field in option_fields().items()} | {"methods": "methods"}
    if action.dest == "help":
        values = [name for kind in kinds.values() if kind for name in known_names(kind)]
        return ["all", *(name.replace("_", "-") for name in kinds), *values]
    kind, earlier = kinds.get(action.dest), prefix[: prefix.rfind(",") + 1]  # as in mu2-sgd,dp-sgd
    names = [earlier + name for name in known_names(kind)] if kind else []
    return names + paths if action.dest == "data" else names or paths
