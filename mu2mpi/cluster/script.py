"""The scripts of a job: functions of their input alone, from templates beside this file."""

import importlib.resources
import math
import re
import shlex
from collections.abc import Mapping, Sequence

from mu2mpi.cluster.request import Request, limit_seconds
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
        *_words("ranks", None if of_slurm else request.ranks),
        *_words("requeues", request.requeues),
        *arguments,
        *_words("checkpoint-every", request.checkpoint_every),
        *_words("data-dir", request.data_dir),
    ]
    part = f' --part "${"SLURM_ARRAY_TASK_ID" if of_slurm else "PBS_ARRAY_INDEX"}/{parts}"'
    lines = _sbatch(slurm_directives(name, request, parts)) if of_slurm else _pbs(name, request, parts)
    if request.after_table:
        wrapped = shlex.quote(shlex.join(["mu2mpi", "table", arguments[-1]]))
        lines.append("# Then: sbatch --dependency=afterany:JOB --output=table-JOB.txt --wrap=" + wrapped)
    template = "job.sbatch" if of_slurm else "job.pbs"
    return _filled(template, lines, request, shlex.join(words) + (part if parts > 1 else ""))


def render_table(output: str, request: Request, job: str) -> str:
    """Return the script of a job that prints the table of results into ``table-JOB.txt`` after another."""
    every = slurm_directives("table", request, 1)
    of_site = ("mem-per-cpu", "partition", "account", "qos", "constraint", *_given(request))
    directives = {name: every[name] for name in of_site} | {
        "job-name": "table",
        "ntasks": 1,
        "time": "00:10:00",
        "output": f"table-{job}.txt",
        "dependency": f"afterany:{job}",
    }
    return _filled("table.sbatch", _sbatch(directives), request, shlex.quote(output))


def slurm_directives(name: str, request: Request, parts: int) -> dict[str, object]:
    """Return what a script tells sbatch, by name: a word, nothing at all (""), or None to leave it out."""
    return {
        "job-name": _plain(name),
        "nodes": request.nodes,
        "ntasks": request.ranks,
        "ntasks-per-node": request.ntasks_per_node,
        "cpus-per-task": request.cpus_per_task,
        "mem-per-cpu": request.mem_per_cpu,
        "time": request.time,
        "array": _array(request, parts),
        "output": "%x-%A_%a.log" if parts > 1 else "%x-%j.log",
        "open-mode": "append",
        "signal": f"B:USR1@{request.signal_seconds}",
        "requeue": "",
        "partition": request.partition,
        "account": request.account,
        "qos": request.qos,
        "constraint": request.constraint,
    } | _given(request)


def _array(request: Request, parts: int) -> str | None:
    most = f"%{request.array_limit}" if request.array_limit else ""
    return f"0-{parts - 1}{most}" if parts > 1 else None


def _words(option: str, value: object) -> list[str]:
    return [] if value is None else [f"--{option}", str(value).removesuffix(".0")]


def _given(request: Request) -> dict[str, object]:
    return {key: value for key, _, value in (entry.partition("=") for entry in request.sbatch)}


def _sbatch(directives: Mapping[str, object]) -> list[str]:
    lines = []
    for key, value in directives.items():
        if value is None and key in ("partition", "account"):
            lines.append(f"##SBATCH --{key}={EDIT}")
        elif value is not None:
            lines.append(f"#SBATCH --{key}" + (f"={shlex.quote(str(value))}" if value != "" else ""))
    return lines


def _pbs(name: str, request: Request, parts: int) -> list[str]:
    """Return the directives of a script for PBS: a chunk for each node, or where that is open, each rank."""
    ranks, nodes = request.ranks, request.nodes
    on_each = request.ntasks_per_node or (math.ceil(ranks / nodes) if nodes else 1)
    cores = on_each * request.cpus_per_task
    chunk = f"select={nodes or math.ceil(ranks / on_each)}:ncpus={cores}:mpiprocs={on_each}"
    if request.mem_per_cpu is not None:
        number = int(request.mem_per_cpu.rstrip("KMGT"))
        chunk += f":mem={number * cores}{request.mem_per_cpu.lstrip('0123456789').lower() or 'm'}b"
    seconds = limit_seconds(request.time)
    if seconds == math.inf:
        raise InputError(f"--time {request.time}: PBS wants a limit, such as 24:00:00")
    minutes, second = divmod(int(seconds), 60)
    array = _array(request, parts)
    return [
        f"#PBS -N {_plain(name)}",
        f"#PBS -l {chunk}",
        f"#PBS -l walltime={minutes // 60:02}:{minutes % 60:02}:{second:02}",
        *([f"#PBS -J {array}"] if array else []),
        "#PBS -j oe",
        "#PBS -r y",
        f"#PBS -q {request.partition}" if request.partition else f"##PBS -q {EDIT}",
        f"#PBS -A {request.account}" if request.account else f"##PBS -A {EDIT}",
    ]


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]", "-", name)


def _filled(template: str, directives: Sequence[str], request: Request, words: str) -> str:
    setup = list(request.setup) or ["# module load ..."]
    if request.environment != "none":
        folder = request.environment
        activate = shlex.quote(f"{folder}/bin/activate") if folder else DEFAULT_ENVIRONMENT
        setup += ["# shellcheck source=/dev/null", f"source {activate}"]
    text = importlib.resources.files("mu2mpi.cluster").joinpath(template).read_text("utf-8")
    return text.format(
        directives="\n".join(directives),
        setup="\n".join(setup),
        seconds=request.signal_seconds,
        words=words,
    )
