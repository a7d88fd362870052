"""Options of cluster jobs, and rendering of job scripts for SLURM from a template."""

import importlib.resources
import math
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import pydantic
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from mu2mpi.config.experiment_options import format_validation_errors
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import import_option_arguments
from mu2mpi.core.suggestions import suggest_or_list
from mu2mpi.core.toml import read_toml

EDIT_DIRECTIVE_HINT = "...   # edit, if your site asks for it"  # Value of directives that are commented out


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


def _option(default: Any, metavar: str, help: str, **constraints: Any) -> Any:
    return Field(default, title=metavar, description=help, **constraints)


class JobOptions(BaseModel):
    """Options of a cluster job: resources and directives of the scheduler, environment, and checkpoints."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        coerce_numbers_to_str=True,
        regex_engine="python-re",
        alias_generator=lambda name: name.replace("_", "-"),
    )

    nodes: int | None = _option(None, "N", "nodes per run", ge=1)
    ntasks: int | None = _option(None, "N", "ranks [default: one per node, or 2]", ge=1)
    ntasks_per_node: int | None = _option(None, "N", "ranks per node", ge=1)
    cpus_per_task: int = _option(1, "N", "cores per rank [default: 1]", ge=1)
    mem_per_cpu: str | None = _option(None, "SIZE", "memory per core, such as 2G", pattern=MEMORY_RE)
    time: TimeLimit = _option("01:00:00", "LIMIT", "time limit [default: 01:00:00]")
    partition: str | None = _option(None, "NAME", "partition", pattern=NAME_RE)
    account: str | None = _option(None, "NAME", "account to charge", pattern=NAME_RE)
    qos: str | None = _option(None, "NAME", "quality of service", pattern=NAME_RE)
    constraint: str | None = _option(None, "NAME", "required feature", pattern=NAME_RE)
    sbatch: tuple[SbatchDirective, ...] = _option((), "KEY=VALUE", "sbatch directive; repeatable")
    log: str | None = _option(None, "PATTERN", "log file, a pattern of sbatch --output", pattern=LINE_RE)
    array_limit: int | None = _option(None, "N", "maximal number of array tasks running at once", ge=1)
    signal_seconds: int = _option(
        120, "N", "seconds from signal to time limit [default: 120]", ge=1, le=65_535
    )
    requeues: int | None = _option(None, "N", "maximal requeues of a task [default: 20]", ge=0)
    stall_minutes: float | None = _option(None, "MINUTES", "stall limit; 0 for no limit [default: 10]", ge=0)
    checkpoint_every: float | None = _option(None, "SECONDS", "interval between checkpoints", gt=0)
    data_dir: str | None = _option(None, "FOLDER", "folder of data sets, one subfolder each", pattern=LINE_RE)
    setup: tuple[TextLine, ...] = _option((), "COMMAND", "shell command to run first; repeatable")
    environment: str | None = _option(None, "FOLDER", "virtualenv or none [default: active]", pattern=LINE_RE)

    @classmethod
    def with_site_defaults(cls, options: Mapping[str, Any]) -> Self:
        """Build job options from MU2MPI_SITE, the user's site.toml and `options`, each over those before."""
        import platformdirs

        paths = [Path(site).expanduser()] if (site := os.environ.get("MU2MPI_SITE")) else []
        user_path = platformdirs.user_config_path("mu2mpi") / "site.toml"
        paths += [user_path] * (user_path not in paths and user_path.exists())
        merged: dict[str, Any] = {} if sys.prefix == sys.base_prefix else {"environment": sys.prefix}
        for prefix, settings in [*((f"{path}: ", read_toml(path)) for path in paths), ("--", options)]:
            if unknown := settings.keys() - job_option_names():
                hint = suggest_or_list(min(unknown), job_option_names(), "keys")
                raise InputError(f"{prefix}unknown key {min(unknown)!r}{hint}")
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
        return self.ntasks or (self.nodes or 1) * (self.ntasks_per_node or (1 if self.nodes else 2))


def job_option_names() -> list[str]:
    """Return the names of the job options on the command line."""
    return [str(field.alias) for field in JobOptions.model_fields.values()]


# Directives of sbatch that are options, too
OPTION_DIRECTIVES = job_option_names()[: job_option_names().index("sbatch")]


def _merge_sbatch_directives(settings: Mapping[str, Any]) -> dict[str, Any]:
    replaced = dict(settings)
    for name in {"sbatch", "setup"} & replaced.keys():
        replaced[name] = replaced[name] if isinstance(replaced[name], list) else [replaced[name]]
    for entry in replaced.get("sbatch", []):
        name, _, value = str(entry).partition("=")
        if name in OPTION_DIRECTIVES:
            replaced |= {name: value, "sbatch": [other for other in replaced["sbatch"] if other != entry]}
    return replaced


def render_job_script(name: str, arguments: Sequence[str], options: JobOptions, array_tasks: int = 1) -> str:
    """Render the job script that runs ``mu2mpi ARGUMENTS``, as an array job if `array_tasks` > 1."""
    command = [*_option_arguments(options, "requeues", "stall-minutes"), *arguments]
    command += [*import_option_arguments(), *_option_arguments(options, "checkpoint-every", "data-dir")]
    part = f' --part "$SLURM_ARRAY_TASK_ID/{array_tasks}"' if array_tasks > 1 else ""
    folder = options.environment
    text = importlib.resources.files("mu2mpi.cluster").joinpath("job.sbatch").read_text("utf-8")
    return text.format(
        directives="\n".join(_directive_lines(slurm_directives(name, options, array_tasks))),
        setup="\n".join(options.setup or ["# module load ..."]),
        environment=shlex.quote(folder) if folder else "${MU2MPI_ENVIRONMENT:-.venv}",
        command=shlex.join(command) + part,
        seconds=options.signal_seconds,
    )


def slurm_directives(name: str, options: JobOptions, array_tasks: int) -> dict[str, object]:
    """Sbatch directives of a job, by name; "" for a directive without value, None for an omitted one."""
    values = options.model_dump(by_alias=True)
    limit = f"%{options.array_limit}" if options.array_limit else ""
    return {
        "job-name": re.sub(r"[^\w.-]", "-", name),
        **{key: values[key] for key in OPTION_DIRECTIVES},
        "ntasks": options.ranks,
        "array": f"0-{array_tasks - 1}{limit}" if array_tasks > 1 else None,
        "output": options.log or ("%x-%A_%a.log" if array_tasks > 1 else "%x-%j.log"),
        "open-mode": "append",
        "signal": f"B:USR1@{options.signal_seconds}",
        "requeue": "",
        **{key: value for key, _, value in (entry.partition("=") for entry in options.sbatch)},
    }


def _option_arguments(options: JobOptions, *names: str) -> list[str]:
    arguments = []
    for name in names:
        if (value := getattr(options, name.replace("-", "_"))) is not None:
            arguments += [f"--{name}", f"{value:.15g}" if isinstance(value, float) else str(value)]
    return arguments


def _directive_lines(directives: Mapping[str, object]) -> list[str]:
    lines = []
    for key, value in directives.items():
        if value is not None:
            lines.append(f"#SBATCH --{key}" + (f"={shlex.quote(str(value))}" if value != "" else ""))
        elif key in ("partition", "account"):
            lines.append(f"##SBATCH --{key}={EDIT_DIRECTIVE_HINT}")
    return lines
