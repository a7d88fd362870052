"""What a job asks for: each field is an option of ``mu2mpi job``, and a key of a site file."""

import math
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pydantic
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from mu2mpi.errors import InputError
from mu2mpi.suggestions import or_else
from mu2mpi.toml import read_toml


def limit_seconds(limit: str) -> float:
    """Return the seconds of a time limit in any form that sbatch takes; ValueError if it is in none.

    These are MM, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS, and UNLIMITED, INFINITE or 0 for none.
    """
    if limit.upper() in ("UNLIMITED", "INFINITE"):
        return math.inf
    if not re.fullmatch(r"[0-9]{1,9}(:[0-9]{1,9}){0,2}|[0-9]{1,9}-[0-9]{1,9}(:[0-9]{1,9}){0,2}", limit):
        raise ValueError("should be a time limit such as 90 (minutes), 01:30:00, 2-12:00 or UNLIMITED")
    numbers = re.split("[-:]", limit)
    units = (86_400, 3600, 60, 1) if "-" in limit else (60, 1) if len(numbers) < 3 else (3600, 60, 1)
    return sum(int(n) * unit for n, unit in zip(numbers, units, strict=False)) or math.inf


WORD, LINE = r"\A[!-~]+\Z", r"\A[^\x00-\x1f\x7f]+\Z"
Line = Annotated[str, Field(pattern=LINE)]
# For array and signal, which the script needs as they are, there are options.
Directive = Annotated[str, Field(pattern=r"\A(?!(array|signal)(=|\Z))[a-z][a-z0-9-]*(=[ -~]*)?\Z")]
# TOML takes 01:00:00 for a time of day.
Limit = Annotated[str, BeforeValidator(str), AfterValidator(lambda limit: limit_seconds(limit) and limit)]


def _option(default: Any, metavar: str, help: str, *traits: str, **constraints: Any) -> Any:
    """Declare an option; it may be a "directive" of sbatch of the same name, or for "slurm" only."""
    extra: Any = {"traits": list(traits)}
    return Field(default, title=metavar, description=help, json_schema_extra=extra, **constraints)


class Request(BaseModel):
    """What a job asks for of its scheduler, its surroundings and mu2mpi."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        coerce_numbers_to_str=True,
        regex_engine="python-re",
        alias_generator=lambda name: name.replace("_", "-"),
    )

    scheduler: Literal["slurm", "pbs"] = _option("slurm", "NAME", "slurm, or pbs, untested [default: slurm]")
    nodes: int | None = _option(None, "N", "nodes of a run", "directive", ge=1)
    ntasks: int | None = _option(None, "N", "ranks [default: those of all nodes, or 2]", "directive", ge=1)
    ntasks_per_node: int | None = _option(None, "N", "ranks on a node", "directive", ge=1)
    cpus_per_task: int = _option(1, "N", "cores of a rank [default: 1]", "directive", ge=1)
    mem_per_cpu: str | None = _option(
        None, "SIZE", "memory of a core, such as 2G", "directive", pattern=r"\A[0-9]+[KMGT]?\Z"
    )
    time: Limit = _option("01:00:00", "LIMIT", "time limit [default: 01:00:00]", "directive")
    partition: str | None = _option(None, "NAME", "or queue, in PBS", "directive", pattern=WORD)
    account: str | None = _option(None, "NAME", "who pays", "directive", pattern=WORD)
    qos: str | None = _option(None, "NAME", "quality of service", "directive", "slurm", pattern=WORD)
    constraint: str | None = _option(None, "NAME", "kind of nodes", "directive", "slurm", pattern=WORD)
    sbatch: tuple[Directive, ...] = _option((), "KEY=VALUE", "any directive of sbatch; repeatable", "slurm")
    array_limit: int | None = _option(None, "N", "tasks of an array that may run at once", ge=1)
    signal_seconds: int = _option(
        120, "N", "a checkpoint is written so long before the end [default: 120]", "slurm", ge=1, le=65_535
    )
    requeues: int | None = _option(None, "N", "most requeues of a task [default: 20]", "slurm", ge=0)
    checkpoint_every: float | None = _option(None, "SECONDS", "time between two checkpoints", gt=0)
    data_dir: str | None = _option(None, "FOLDER", "holds one folder for each data set", pattern=LINE)
    setup: tuple[Line, ...] = _option((), "COMMAND", "line to run first: 'module load gcc'; repeatable")
    environment: str | None = _option(
        None, "FOLDER", "virtual environment, or none [default: the active one]", pattern=LINE
    )
    after_table: bool = _option(False, "", "once all tasks are over, a job prints the table", "slurm")

    @pydantic.model_validator(mode="after")
    def _suits_its_scheduler(self) -> Self:
        given = {name.replace("_", "-") for name in self.model_fields_set}
        if self.scheduler == "pbs" and (alien := given & {*names("slurm")}):
            raise ValueError(f"{min(alien)} is for SLURM, and the scheduler is pbs; leave it out")
        return self

    @classmethod
    def make(cls, given: Mapping[str, Any]) -> Self:
        """Return what a site file and the options that were given ask for, by their names.

        An option replaces the file's, and lists follow the file's. InputError names what cannot be used.
        """
        asked: dict[str, Any] = {} if sys.prefix == sys.base_prefix else {"environment": sys.prefix}
        path, site = _site()
        if unknown := site.keys() - names():
            raise InputError(f"{path}: unknown key {min(unknown)!r}{or_else(min(unknown), names(), 'keys')}")
        for place, settings in ((f"{path}: ", site), ("--", given)):
            for name, value in _without_directives(settings).items():
                asked[name] = [*asked.get(name, ()), *value] if isinstance(value, list) else value
            try:
                request = cls(**asked)
            except pydantic.ValidationError as error:
                raise InputError("\n".join(place + _described(each) for each in error.errors())) from None
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

    if named := os.environ.get("MU2MPI_SITE"):
        return Path(named), read_toml(Path(named).expanduser())
    path = platformdirs.user_config_path("mu2mpi") / "site.toml"
    return path, read_toml(path) if path.exists() else {}


def _described(error: Any) -> str:
    said = re.sub("^(Input|String|Value error,) ", "", error["msg"])
    return f"{error['loc'][0]} {error['input']!r} {said}" if error["loc"] else said


def _without_directives(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings in which a directive that is also an option of ours is that option."""
    found = dict(settings)
    for name in {"sbatch", "setup"} & found.keys():
        found[name] = found[name] if isinstance(found[name], list) else [found[name]]
    for entry in found.get("sbatch", []):
        name, _, value = str(entry).partition("=")
        if name in names("directive"):
            found |= {name: value, "sbatch": [other for other in found["sbatch"] if other != entry]}
    return found
