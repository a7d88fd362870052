"""What a job asks for: each field is an option of ``mu2mpi job``, and a key of a site file."""

import math
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError

from mu2mpi.errors import InputError
from mu2mpi.suggestions import or_else
from mu2mpi.toml import read_toml

SITE_VARIABLE = "MU2MPI_SITE"


def limit_seconds(limit: str) -> float:
    """Return the seconds of a time limit in any form that sbatch takes; ValueError if it is in none.

    These are MM, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS, and UNLIMITED, INFINITE or 0 for none.
    """
    if limit.upper() in ("UNLIMITED", "INFINITE"):
        return math.inf
    days, dash, rest = limit.rpartition("-")
    numbers = [*([days] if dash else []), *rest.split(":")]
    most = 4 if dash else 3
    if len(numbers) > most or not all(re.fullmatch("[0-9]{1,9}", number) for number in numbers):
        raise ValueError("should be a time limit such as 90 (minutes), 01:30:00, 2-12:00 or UNLIMITED")
    units = (86_400, 3600, 60, 1) if dash else (60, 1) if len(numbers) < most else (3600, 60, 1)
    return sum(int(n) * unit for n, unit in zip(numbers, units, strict=False)) or math.inf


def _matching(pattern: str, what: str) -> AfterValidator:
    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"should be {what}")
        return text

    return AfterValidator(check)


Count = Annotated[int, Field(ge=1)]
Word = Annotated[str, _matching("[!-~]+", "a single word of plain letters, as the scheduler takes it")]
Memory = Annotated[str, _matching("[0-9]+[KMGT]?", "a number with K, M, G or T behind it, such as 2G")]
# TOML takes 01:00:00 for a time of day.
Limit = Annotated[str, BeforeValidator(str), AfterValidator(lambda limit: limit_seconds(limit) and limit)]
Line = Annotated[str, _matching(r"[^\x00-\x1f\x7f]+", "one line")]
Directive = Annotated[
    str,
    _matching(
        "(?!(array|signal)(=|$))[a-z][a-z0-9-]*(=[ -~]*)?",
        "KEY=VALUE or KEY for what sbatch takes as --KEY; for array and signal, which the script needs as "
        "they are, there are --array-limit and --signal-seconds",
    ),
]


def _option(default: Any, metavar: str, help: str, *traits: str) -> Any:
    """Declare an option; it may be a "directive" of sbatch of the same name, or for "slurm" only."""
    return Field(default, title=metavar, description=help, json_schema_extra={"traits": list(traits)})


class Request(
    BaseModel,
    frozen=True,
    extra="forbid",
    coerce_numbers_to_str=True,
    alias_generator=lambda name: name.replace("_", "-"),
):
    """What a job asks for of its scheduler, its surroundings and mu2mpi."""

    scheduler: Literal["slurm", "pbs"] = _option("slurm", "NAME", "slurm, or pbs [default: slurm]")
    nodes: Count | None = _option(None, "N", "nodes of a run", "directive")
    ntasks: Count | None = _option(
        None, "N", "ranks of a run [default: nodes times ntasks-per-node, or 2]", "directive"
    )
    ntasks_per_node: Count | None = _option(None, "N", "ranks on a node", "directive")
    cpus_per_task: Count = _option(1, "N", "cores of a rank [default: 1]", "directive")
    mem_per_cpu: Memory | None = _option(None, "SIZE", "memory of a core, such as 2G", "directive")
    time: Limit = _option("01:00:00", "LIMIT", "time limit [default: 01:00:00]", "directive")
    partition: Word | None = _option(None, "NAME", "or queue, in PBS", "directive")
    account: Word | None = _option(None, "NAME", "who pays", "directive")
    qos: Word | None = _option(None, "NAME", "quality of service", "directive", "slurm")
    constraint: Word | None = _option(None, "NAME", "kind of nodes", "directive", "slurm")
    sbatch: tuple[Directive, ...] = _option(
        (), "KEY=VALUE", "any directive of sbatch, in place of the script's own; repeatable", "slurm"
    )
    array_limit: Count | None = _option(None, "N", "tasks of an array that may run at once")
    signal_seconds: Annotated[int, Field(ge=1, le=65_535)] = _option(
        120, "N", "a checkpoint is written so long before the end [default: 120]", "slurm"
    )
    requeues: Annotated[int, Field(ge=0)] | None = _option(
        None, "N", "a task goes back into the queue at most so often [default: 20]", "slurm"
    )
    checkpoint_every: Annotated[float, Field(gt=0)] | None = _option(
        None, "SECONDS", "time between two checkpoints"
    )
    data_dir: Line | None = _option(None, "FOLDER", "holds one folder for each data set")
    setup: tuple[Line, ...] = _option(
        (), "COMMAND", "a line to run first, such as 'module load gcc'; repeatable"
    )
    environment: Line | None = _option(
        None, "FOLDER", "virtual environment, or none to activate none [default: the active one]"
    )
    after_table: bool = _option(False, "", "once all tasks are over, a job prints the table", "slurm")

    @classmethod
    def make(cls, given: Mapping[str, Any]) -> Self:
        """Return what a site file and the options that were given ask for, by their names.

        An option replaces the file's, and lists follow the file's. InputError names what cannot be used.
        """
        path, site = _site()
        if unknown := site.keys() - names():
            raise InputError(f"{path}: unknown key {min(unknown)!r}{or_else(min(unknown), names(), 'keys')}")
        asked: dict[str, Any] = {} if sys.prefix == sys.base_prefix else {"environment": sys.prefix}
        places = {}
        for place, settings in ((f"{path}: ", site), ("--", given)):
            for name, value in _without_directives(settings).items():
                asked[name] = [*asked.get(name, ()), *value] if isinstance(value, list) else value
                places[name] = place
        try:
            request = cls(**asked)
        except ValidationError as error:
            lines = [f"{e['loc'][0]} {e['input']!r} {e['msg']}" for e in error.errors()]
            lines = [re.sub("(Input|Value error,) ", "", line, count=1) for line in lines]
            raise InputError("\n".join(places[line.split()[0]] + line for line in lines)) from None
        for name in places.keys() & names("slurm") if request.scheduler == "pbs" else ():
            raise InputError(f"{places[name]}{name} is for SLURM, and the scheduler is pbs; leave it out")
        return request

    @property
    def ranks(self) -> int:
        """The number of ranks of a run."""
        return self.ntasks or (self.nodes or 0) * (self.ntasks_per_node or 0) or 2


def names(trait: str | None = None) -> list[str]:
    """Return the names of the options, as on the command line: all, or those with a trait."""
    fields: Any = Request.model_fields.values()
    return [field.alias for field in fields if trait is None or trait in field.json_schema_extra["traits"]]


def _site() -> tuple[Path, dict[str, Any]]:
    """Return the file of the site's defaults and these, if any: ``MU2MPI_SITE``, or the user's own."""
    import platformdirs

    if named := os.environ.get(SITE_VARIABLE):
        return Path(named), read_toml(Path(named).expanduser())
    path = platformdirs.user_config_path("mu2mpi") / "site.toml"
    return path, read_toml(path) if path.exists() else {}


def _without_directives(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings in which a directive that is also an option of ours is that option."""
    found = dict(settings)
    for name in {"sbatch", "setup"} & found.keys():
        found[name] = found[name] if isinstance(found[name], list) else [found[name]]
    pairs = {str(entry): str(entry).partition("=") for entry in found.get("sbatch", ())}
    ours = {entry: pair for entry, pair in pairs.items() if pair[0] in names("directive")}
    if ours:
        found["sbatch"] = [entry for entry in pairs if entry not in ours]
    return found | {name: value for name, _, value in ours.values()}
