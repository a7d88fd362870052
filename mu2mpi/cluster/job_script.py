"""Options of cluster jobs, and rendering of job scripts for SLURM and PBS from templates."""

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

from mu2mpi.config.experiment_options import format_validation_errors
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import import_option_arguments
from mu2mpi.core.suggestions import suggest_or_list
from mu2mpi.core.toml import read_toml

EDIT_DIRECTIVE_HINT = "...   # edit, if your site asks for it"  # Value of directives that are commented out
DEFAULT_ACTIVATE_SCRIPT = '"${MU2MPI_ENVIRONMENT:-.venv}/bin/activate"'


def time_limit_seconds(time_limit: str) -> float:
    """Seconds of a time limit given in any format of sbatch; inf for UNLIMITED, INFINITE or 0."""
    if time_limit.upper() in ("UNLIMITED", "INFINITE"):
        return math.inf
    if not re.fullmatch(r"[0-9]{1,9}(:[0-9]{1,9}){0,2}|[0-9]{1,9}-[0-9]{1,9}(:[0-9]{1,9}){0,2}", time_limit):
        raise ValueError("should be a time limit such as 90 (minutes), 01:30:00, 2-12:00 or UNLIMITED")
    numbers = re.split("[-:]", time_limit)
    units = (86_400, 3600, 60, 1) if "-" in time_limit else (60, 1) if len(numbers) < 3 else (3600, 60, 1)
    return sum(int(n) * unit for n, unit in zip(numbers, units, strict=False)) or math.inf


NAME_RE = r"\A[!-~]+\Z"  # Printable ASCII without spaces
LINE_RE = r"\A[^\x00-\x1f\x7f]+\Z"  # Text without control characters
MEMORY_RE = r"\A[0-9]+[KMGT]?\Z"  # Memory, by default in megabytes
TextLine = Annotated[str, Field(pattern=LINE_RE)]
# The script depends on the directives array and signal, which --array-limit and --signal-seconds control.
SbatchDirective = Annotated[str, Field(pattern=r"\A(?!(array|signal)(=|\Z))[a-z][a-z0-9-]*(=[ -~]*)?\Z")]
# The TOML parser returns a time of day for 01:00:00.
TimeLimit = Annotated[str, BeforeValidator(str), AfterValidator(lambda t: time_limit_seconds(t) and t)]


def _option(default: Any, metavar: str, help: str, *tags: str, **constraints: Any) -> Any:
    """Pydantic field of a job option; tags: "directive" (of sbatch), "slurm" (unsupported with PBS)."""
    extra: Any = {"tags": list(tags)}
    return Field(default, title=metavar, description=help, json_schema_extra=extra, **constraints)


class JobOptions(BaseModel):
    """Options of a cluster job: resources and directives of the scheduler, environment, and checkpoints."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        coerce_numbers_to_str=True,
        regex_engine="python-re",
        alias_generator=lambda name: name.replace("_", "-"),
    )

    scheduler: Literal["slurm", "pbs"] = _option("slurm", "NAME", "slurm or pbs (untested) [default: slurm]")
    nodes: int | None = _option(None, "N", "nodes per run", "directive", ge=1)
    ntasks: int | None = _option(None, "N", "ranks [default: those of all nodes, or 2]", "directive", ge=1)
    ntasks_per_node: int | None = _option(None, "N", "ranks per node", "directive", ge=1)
    cpus_per_task: int = _option(1, "N", "cores per rank [default: 1]", "directive", ge=1)
    mem_per_cpu: str | None = _option(
        None, "SIZE", "memory per core, such as 2G", "directive", pattern=MEMORY_RE
    )
    time: TimeLimit = _option("01:00:00", "LIMIT", "time limit [default: 01:00:00]", "directive")
    partition: str | None = _option(None, "NAME", "partition; in PBS, queue", "directive", pattern=NAME_RE)
    account: str | None = _option(None, "NAME", "account to charge", "directive", pattern=NAME_RE)
    qos: str | None = _option(None, "NAME", "quality of service", "directive", "slurm", pattern=NAME_RE)
    constraint: str | None = _option(None, "NAME", "required feature", "directive", "slurm", pattern=NAME_RE)
    sbatch: tuple[SbatchDirective, ...] = _option((), "KEY=VALUE", "sbatch directive; repeatable", "slurm")
    array_limit: int | None = _option(None, "N", "maximal number of array tasks running at once", ge=1)
    signal_seconds: int = _option(
        120, "N", "seconds from checkpoint to time limit [default: 120]", "slurm", ge=1, le=65_535
    )
    requeues: int | None = _option(None, "N", "maximal requeues of a task [default: 20]", "slurm", ge=0)
    checkpoint_every: float | None = _option(None, "SECONDS", "interval between checkpoints", gt=0)
    data_dir: str | None = _option(None, "FOLDER", "folder of data sets, one subfolder each", pattern=LINE_RE)
    setup: tuple[TextLine, ...] = _option((), "COMMAND", "shell command to run first; repeatable")
    environment: str | None = _option(
        None, "FOLDER", "virtualenv, or none [default: active]", pattern=LINE_RE
    )

    @pydantic.model_validator(mode="after")
    def _check_scheduler(self) -> Self:
        given_options = {name.replace("_", "-") for name in self.model_fields_set}
        if self.scheduler == "pbs" and (unsupported := given_options & {*job_option_names("slurm")}):
            raise ValueError(f"{min(unsupported)} is not supported with the scheduler pbs. Leave it out.")
        return self

    @classmethod
    def with_site_defaults(cls, options: Mapping[str, Any]) -> Self:
        """Build job options from the site file site.toml and from `options`, which take precedence."""
        import platformdirs

        merged: dict[str, Any] = {} if sys.prefix == sys.base_prefix else {"environment": sys.prefix}
        path = platformdirs.user_config_path("mu2mpi") / "site.toml"
        if site_path := os.environ.get("MU2MPI_SITE"):
            path = Path(site_path).expanduser()
        site = read_toml(path) if site_path or path.exists() else {}
        if unknown := site.keys() - job_option_names():
            hint = suggest_or_list(min(unknown), job_option_names(), "keys")
            raise InputError(f"{path}: unknown key {min(unknown)!r}{hint}")
        for prefix, settings in ((f"{path}: ", site), ("--", options)):
            for name, value in _merge_sbatch_directives(settings).items():
                merged[name] = [*merged.get(name, ()), *value] if isinstance(value, list) else value
            try:
                job_options = cls(**merged)
            except pydantic.ValidationError as error:
                lines = format_validation_errors(error).splitlines()
                raise InputError("\n".join(prefix + line for line in lines)) from None
        return job_options

    @property
    def ranks(self) -> int:
        """Number of ranks per run."""
        return self.ntasks or (self.nodes or 0) * (self.ntasks_per_node or 0) or 2


def job_option_names(tag: str | None = None) -> list[str]:
    """Return the names of the job options on the command line: all, or those with a given tag."""
    fields: Any = JobOptions.model_fields.values()
    return [field.alias for field in fields if tag is None or tag in field.json_schema_extra["tags"]]


def _merge_sbatch_directives(settings: Mapping[str, Any]) -> dict[str, Any]:
    replaced = dict(settings)
    for name in {"sbatch", "setup"} & replaced.keys():
        replaced[name] = replaced[name] if isinstance(replaced[name], list) else [replaced[name]]
    for entry in replaced.get("sbatch", []):
        name, _, value = str(entry).partition("=")
        if name in job_option_names("directive"):
            replaced |= {name: value, "sbatch": [other for other in replaced["sbatch"] if other != entry]}
    return replaced


def render_job_script(name: str, arguments: Sequence[str], options: JobOptions, array_tasks: int = 1) -> str:
    """Render the job script that runs ``mu2mpi ARGUMENTS``, as an array job if `array_tasks` > 1."""
    command = [*_option_arguments("requeues", options), *arguments, *import_option_arguments()]
    command += [*_option_arguments("checkpoint-every", options), *_option_arguments("data-dir", options)]
    template, task_index, resources = "job.sbatch", "SLURM_ARRAY_TASK_ID", {}
    if options.scheduler == "pbs":
        template, task_index, resources = "job.pbs", "PBS_ARRAY_INDEX", _pbs_resources(options)
        lines = [f"#PBS -J {_array_range(options, array_tasks)}"] if array_tasks > 1 else []
        for key, value in (("q", options.partition), ("A", options.account)):
            lines.append(f"#PBS -{key} {value}" if value else f"##PBS -{key} {EDIT_DIRECTIVE_HINT}")
    else:
        lines = _directive_lines(slurm_directives(name, options, array_tasks))
    fields = {
        "directives": "\n".join(lines),
        "setup": "\n".join(_setup_commands(options)),
        "command": shlex.join(command)
        + (f' --part "${task_index}/{array_tasks}"' if array_tasks > 1 else ""),
        "seconds": options.signal_seconds,
        "ranks": options.ranks,
        **resources,
    }
    text = importlib.resources.files("mu2mpi.cluster").joinpath(template).read_text("utf-8")
    return text.format(name=_valid_job_name(name), **fields)


def slurm_directives(name: str, options: JobOptions, array_tasks: int) -> dict[str, object]:
    """Sbatch directives of a job, by name; "" for a directive without value, None for an omitted one."""
    names = {name.replace("-", "_") for name in job_option_names("directive")}
    return {
        "job-name": _valid_job_name(name),
        **options.model_dump(by_alias=True, include=names),
        "ntasks": options.ranks,
        "array": _array_range(options, array_tasks),
        "output": "%x-%A_%a.log" if array_tasks > 1 else "%x-%j.log",
        "open-mode": "append",
        "signal": f"B:USR1@{options.signal_seconds}",
        "requeue": "",
        **{key: value for key, _, value in (entry.partition("=") for entry in options.sbatch)},
    }


def _array_range(options: JobOptions, array_tasks: int) -> str | None:
    limit = f"%{options.array_limit}" if options.array_limit else ""
    return f"0-{array_tasks - 1}{limit}" if array_tasks > 1 else None


def _option_arguments(name: str, options: JobOptions) -> list[str]:
    value = getattr(options, name.replace("-", "_"))
    return [] if value is None else [f"--{name}", str(value).removesuffix(".0")]


def _directive_lines(directives: Mapping[str, object]) -> list[str]:
    lines = []
    for key, value in directives.items():
        if value is not None:
            lines.append(f"#SBATCH --{key}" + (f"={shlex.quote(str(value))}" if value != "" else ""))
        elif key in ("partition", "account"):
            lines.append(f"##SBATCH --{key}={EDIT_DIRECTIVE_HINT}")
    return lines


def _pbs_resources(options: JobOptions) -> dict[str, object]:
    per_chunk = options.ntasks_per_node or (math.ceil(options.ranks / options.nodes) if options.nodes else 1)
    cores, memory = per_chunk * options.cpus_per_task, ""
    if options.mem_per_cpu:
        unit = options.mem_per_cpu.lstrip("0123456789").lower() or "m"
        memory = f":mem={int(options.mem_per_cpu.rstrip('KMGT')) * cores}{unit}b"
    seconds = time_limit_seconds(options.time)
    if seconds == math.inf:
        raise InputError(f"--time {options.time}: PBS requires a finite limit, such as 24:00:00.")
    minutes, second = divmod(int(seconds), 60)
    walltime = f"{minutes // 60:02}:{minutes % 60:02}:{second:02}"
    chunks = options.nodes or math.ceil(options.ranks / per_chunk)
    return {"chunks": chunks, "cores": cores, "per_chunk": per_chunk, "memory": memory, "walltime": walltime}


def _valid_job_name(name: str) -> str:
    return re.sub(r"[^\w.-]", "-", name)


def _setup_commands(options: JobOptions) -> list[str]:
    setup = list(options.setup) or ["# module load ..."]
    if (folder := options.environment) != "none":
        activate = shlex.quote(f"{folder}/bin/activate") if folder else DEFAULT_ACTIVATE_SCRIPT
        setup += ["# shellcheck source=/dev/null", f"source {activate}"]
    return setup
