"""The scripts of a job: functions of their input alone, from templates beside this file."""

import importlib.resources
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from mu2mpi.cluster.request import Request, limit_seconds, names
from mu2mpi.errors import InputError

EDIT = "...   # edit, if your site asks for it"
DEFAULT_ENVIRONMENT = '"${MU2MPI_ENVIRONMENT:-.venv}/bin/activate"'


def render_job(name: str, arguments: Sequence[str], request: Request | None = None, parts: int = 1) -> str:
    """Return the script of a job that runs ``mu2mpi ARGUMENTS`` on its ranks.

    Of several parts it is an array with one task for each, which is told its part of the sweep. In the name,
    what schedulers would stumble over is replaced. Raises InputError for what PBS has no words for.
    """
    request = request or Request()
    of_slurm = request.scheduler == "slurm"
    words = [
        *_option("requeues", request.requeues),
        *arguments,
        *_option("checkpoint-every", request.checkpoint_every),
        *_option("data-dir", request.data_dir),
    ]
    part = f' --part "${"SLURM_ARRAY_TASK_ID" if of_slurm else "PBS_ARRAY_INDEX"}/{parts}"'
    told = shlex.join(words) + (part if parts > 1 else "")
    if not of_slurm:
        return _filled("job.pbs", _pbs(request, parts), request, told, name=_plain(name), **_chunk(request))
    lines = _sbatch(slurm_directives(name, request, parts))
    if request.after_table:
        wrapped = shlex.quote(shlex.join(["mu2mpi", "table", arguments[-1]]))
        lines.append("# Then: sbatch --dependency=afterany:JOB --output=table-JOB.txt --wrap=" + wrapped)
    return _filled("job.sbatch", lines, request, told)


def render_table(output: str, request: Request, job: str) -> str:
    """Return the script of a job that prints the table of results into ``table-JOB.txt`` after another."""
    own = ("job-name", "ntasks", "time", "output", "dependency")
    of_site = {"mem-per-cpu", "partition", "account", "qos", "constraint", *_given(request)}.difference(own)
    every = slurm_directives("table", request, 1)
    lines = _sbatch({name: value for name, value in every.items() if name in of_site})
    return _filled("table.sbatch", lines, request, shlex.quote(output), job=job)


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


def _option(name: str, value: object) -> list[str]:
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


def _pbs(request: Request, parts: int) -> list[str]:
    array = [f"#PBS -J {_array(request, parts)}"] if parts > 1 else []
    given = (("q", request.partition), ("A", request.account))
    return array + [f"#PBS -{key} {value}" if value else f"##PBS -{key} {EDIT}" for key, value in given]


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]", "-", name)


def _filled(template: str, directives: Sequence[str], request: Request, words: str, **other: Any) -> str:
    setup = list(request.setup) or ["# module load ..."]
    if (folder := request.environment) != "none":
        activate = shlex.quote(f"{folder}/bin/activate") if folder else DEFAULT_ENVIRONMENT
        setup += ["# shellcheck source=/dev/null", f"source {activate}"]
    text = importlib.resources.files("mu2mpi.cluster").joinpath(template).read_text("utf-8")
    given = {"directives": "\n".join(directives), "setup": "\n".join(setup), "words": words, **other}
    return text.format(seconds=request.signal_seconds, ranks=request.ranks, **given)
