"""The script of a job, from a template beside this file, and what a job asks for."""

import importlib.resources
import math
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pydantic
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from mu2mpi.config.experiment_options import explained
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import import_options
from mu2mpi.core.suggestions import or_else
from mu2mpi.core.toml import read_toml

EDIT = "...   # edit, if your site asks for it"
DEFAULT_ENVIRONMENT = '"${MU2MPI_ENVIRONMENT:-.venv}/bin/activate"'


def limit_seconds(limit: str) -> float:
    """Seconds of a time limit in any form that sbatch takes; inf for UNLIMITED, INFINITE or 0."""
    if limit.upper() in ("UNLIMITED", "INFINITE"):
        return math.inf
    if not re.fullmatch(r"[0-9]{1,9}(:[0-9]{1,9}){0,2}|[0-9]{1,9}-[0-9]{1,9}(:[0-9]{1,9}){0,2}", limit):
        raise ValueError("should be a time limit such as 90 (minutes), 01:30:00, 2-12:00 or UNLIMITED")
    numbers = re.split("[-:]", limit)
    units = (86_400, 3600, 60, 1) if "-" in limit else (60, 1) if len(numbers) < 3 else (3600, 60, 1)
    return sum(int(n) * unit for n, unit in zip(numbers, units, strict=False)) or math.inf


WORD, LINE, SIZE = r"\A[!-~]+\Z", r"\A[^\x00-\x1f\x7f]+\Z", r"\A[0-9]+[KMGT]?\Z"
Line = Annotated[str, Field(pattern=LINE)]
# For array and signal, which the script needs as they are, there are options.
Directive = Annotated[str, Field(pattern=r"\A(?!(array|signal)(=|\Z))[a-z][a-z0-9-]*(=[ -~]*)?\Z")]
# TOML takes 01:00:00 for a time of day.
Limit = Annotated[str, BeforeValidator(str), AfterValidator(lambda limit: limit_seconds(limit) and limit)]


def _field(default: Any, metavar: str, help: str, *traits: str, **constraints: Any) -> Any:
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

    scheduler: Literal["slurm", "pbs"] = _field("slurm", "NAME", "slurm, or pbs, untested [default: slurm]")
    nodes: int | None = _field(None, "N", "nodes of a run", "directive", ge=1)
    ntasks: int | None = _field(None, "N", "ranks [default: those of all nodes, or 2]", "directive", ge=1)
    ntasks_per_node: int | None = _field(None, "N", "ranks on a node", "directive", ge=1)
    cpus_per_task: int = _field(1, "N", "cores of a rank [default: 1]", "directive", ge=1)
    mem_per_cpu: str | None = _field(None, "SIZE", "memory of a core, such as 2G", "directive", pattern=SIZE)
    time: Limit = _field("01:00:00", "LIMIT", "time limit [default: 01:00:00]", "directive")
    partition: str | None = _field(None, "NAME", "or queue, in PBS", "directive", pattern=WORD)
    account: str | None = _field(None, "NAME", "who pays", "directive", pattern=WORD)
    qos: str | None = _field(None, "NAME", "quality of service", "directive", "slurm", pattern=WORD)
    constraint: str | None = _field(None, "NAME", "kind of nodes", "directive", "slurm", pattern=WORD)
    sbatch: tuple[Directive, ...] = _field((), "KEY=VALUE", "any directive of sbatch; repeatable", "slurm")
    array_limit: int | None = _field(None, "N", "tasks of an array that may run at once", ge=1)
    signal_seconds: int = _field(
        120, "N", "a checkpoint is written so long before the end [default: 120]", "slurm", ge=1, le=65_535
    )
    requeues: int | None = _field(None, "N", "most requeues of a task [default: 20]", "slurm", ge=0)
    checkpoint_every: float | None = _field(None, "SECONDS", "time between two checkpoints", gt=0)
    data_dir: str | None = _field(None, "FOLDER", "holds one folder for each data set", pattern=LINE)
    setup: tuple[Line, ...] = _field((), "COMMAND", "line to run first: 'module load gcc'; repeatable")
    environment: str | None = _field(None, "FOLDER", "virtualenv, or none [default: active]", pattern=LINE)
    after_table: bool = _field(False, "", "once all tasks are over, a job prints the table", "slurm")

    @pydantic.model_validator(mode="after")
    def _suits_its_scheduler(self) -> Self:
        given = {name.replace("_", "-") for name in self.model_fields_set}
        if self.scheduler == "pbs" and (alien := given & {*names("slurm")}):
            raise ValueError(f"{min(alien)} is for SLURM, and the scheduler is pbs; leave it out")
        return self

    @classmethod
    def make(cls, given: Mapping[str, Any]) -> Self:
        """Build a request from a site file and options, which replace its values or follow its lists."""
        import platformdirs

        asked: dict[str, Any] = {} if sys.prefix == sys.base_prefix else {"environment": sys.prefix}
        path = platformdirs.user_config_path("mu2mpi") / "site.toml"
        if named := os.environ.get("MU2MPI_SITE"):
            path = Path(named).expanduser()
        site = read_toml(path) if named or path.exists() else {}
        if unknown := site.keys() - names():
            raise InputError(f"{path}: unknown key {min(unknown)!r}{or_else(min(unknown), names(), 'keys')}")
        for place, settings in ((f"{path}: ", site), ("--", given)):
            for name, value in _without_directives(settings).items():
                asked[name] = [*asked.get(name, ()), *value] if isinstance(value, list) else value
            try:
                request = cls(**asked)
            except pydantic.ValidationError as error:
                raise InputError("\n".join(place + line for line in explained(error).splitlines())) from None
        return request

    @property
    def ranks(self) -> int:
        """The number of ranks of a run."""
        return self.ntasks or (self.nodes or 0) * (self.ntasks_per_node or 0) or 2


def names(trait: str | None = None) -> list[str]:
    """Return the names of the options, as on the command line: all, or those with a trait."""
    fields: Any = Request.model_fields.values()
    return [field.alias for field in fields if trait is None or trait in field.json_schema_extra["traits"]]


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


def render_job(name: str, arguments: Sequence[str], request: Request, parts: int = 1) -> str:
    """Return the script of a job, or an array of several parts, for ``mu2mpi ARGUMENTS``."""
    words = [*_option("requeues", request), *arguments, *import_options()]
    words += [*_option("checkpoint-every", request), *_option("data-dir", request)]
    template, index, chunk = "job.sbatch", "SLURM_ARRAY_TASK_ID", {}
    if request.scheduler == "pbs":
        template, index, chunk = "job.pbs", "PBS_ARRAY_INDEX", _chunk(request)
        lines = [f"#PBS -J {_array(request, parts)}"] if parts > 1 else []
        for key, value in (("q", request.partition), ("A", request.account)):
            lines.append(f"#PBS -{key} {value}" if value else f"##PBS -{key} {EDIT}")
    else:
        lines = _sbatch(slurm_directives(name, request, parts))
        if request.after_table:
            wrapped = shlex.quote(shlex.join(["mu2mpi", "table", *import_options(), arguments[-1]]))
            lines.append("# Then: sbatch --dependency=afterany:JOB --output=table-JOB.txt --wrap=" + wrapped)
    given = {
        "directives": "\n".join(lines),
        "setup": "\n".join(_setup(request)),
        "words": shlex.join(words) + (f' --part "${index}/{parts}"' if parts > 1 else ""),
        "seconds": request.signal_seconds,
        "ranks": request.ranks,
        **chunk,
    }
    text = importlib.resources.files("mu2mpi.cluster").joinpath(template).read_text("utf-8")
    return text.format(name=_plain(name), **given)


def render_table(output: str, request: Request, job: str) -> str:
    """Return the script of a job that prints the table of results into ``table-JOB.txt`` after another."""
    own = {"job-name": "table", "ntasks": 1, "time": "00:10:00", "output": f"table-{job}.txt"}
    of_site = {"mem-per-cpu", "partition", "account", "qos", "constraint", *_given(request)}
    every = slurm_directives("table", request, 1)
    asked = {name: value for name, value in every.items() if name in of_site}
    lines = _sbatch(asked | own | {"dependency": f"afterany:{job}"})
    command = shlex.join(["exec", "mu2mpi", "table", *import_options(), output])
    return "\n".join(["#!/bin/bash", *lines, "", *_setup(request), "", command, ""])


def slurm_directives(name: str, request: Request, parts: int) -> dict[str, object]:
    """Return what a script tells sbatch, by name: a word, nothing at all (""), or None to leave it out."""
    asked = request.model_dump(by_alias=True, include={n.replace("-", "_") for n in names("directive")})
    return {
        "job-name": _plain(name),
        **asked,
        "ntasks": request.ranks,
        "array": _array(request, parts),
        "output": "%x-%A_%a.log" if parts > 1 else "%x-%j.log",
        "open-mode": "append",
        "signal": f"B:USR1@{request.signal_seconds}",
        "requeue": "",
    } | _given(request)


def _array(request: Request, parts: int) -> str | None:
    most = f"%{request.array_limit}" if request.array_limit else ""
    return f"0-{parts - 1}{most}" if parts > 1 else None


def _option(name: str, request: Request) -> list[str]:
    value = getattr(request, name.replace("-", "_"))
    return [] if value is None else [f"--{name}", str(value).removesuffix(".0")]


def _given(request: Request) -> dict[str, object]:
    return {key: value for key, _, value in (entry.partition("=") for entry in request.sbatch)}


def _sbatch(directives: Mapping[str, object]) -> list[str]:
    lines = []
    for key, value in directives.items():
        if value is not None:
            lines.append(f"#SBATCH --{key}" + (f"={shlex.quote(str(value))}" if value != "" else ""))
        elif key in ("partition", "account"):
            lines.append(f"##SBATCH --{key}={EDIT}")
    return lines


def _chunk(request: Request) -> dict[str, object]:
    """Return what a PBS job takes: a chunk for each node, or where that is open, each rank; and its limit."""
    on_each = request.ntasks_per_node or (math.ceil(request.ranks / request.nodes) if request.nodes else 1)
    cores, memory = on_each * request.cpus_per_task, ""
    if request.mem_per_cpu:
        unit = request.mem_per_cpu.lstrip("0123456789").lower() or "m"
        memory = f":mem={int(request.mem_per_cpu.rstrip('KMGT')) * cores}{unit}b"
    seconds = limit_seconds(request.time)
    if seconds == math.inf:
        raise InputError(f"--time {request.time}: PBS wants a limit, such as 24:00:00")
    minutes, second = divmod(int(seconds), 60)
    walltime = f"{minutes // 60:02}:{minutes % 60:02}:{second:02}"
    chunks = request.nodes or math.ceil(request.ranks / on_each)
    return {"chunks": chunks, "cores": cores, "on_each": on_each, "memory": memory, "walltime": walltime}


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]", "-", name)


def _setup(request: Request) -> list[str]:
    setup = list(request.setup) or ["# module load ..."]
    if (folder := request.environment) != "none":
        activate = shlex.quote(f"{folder}/bin/activate") if folder else DEFAULT_ENVIRONMENT
        setup += ["# shellcheck source=/dev/null", f"source {activate}"]
    return setup
