"""The script of a job, and how it is submitted."""

import importlib.resources
import re
import shlex
import subprocess
from collections.abc import Sequence

from mu2mpi.errors import InputError


def render_job(
    name: str,
    arguments: Sequence[str],
    environment: str | None = None,
    *,
    ntasks: int = 2,
    time: str = "01:00:00",
    partition: str | None = None,
    account: str | None = None,
    array: int | None = None,
) -> str:
    """Return the script of a job that runs ``mu2mpi ARGUMENTS`` on its ranks; a function of its input alone.

    In the name, what SLURM would stumble over is replaced. An array job has `array` tasks, and the arguments
    may name the index of one as ``$SLURM_ARRAY_TASK_ID``. `environment` is the folder of the virtual
    environment to activate; the line is left to edit without it, and so are those of partition and account.
    InputError says which of them cannot stand in a script.
    """
    if ntasks < 1:
        raise InputError(f"--ntasks {ntasks} is not a positive number")
    for option, value in {"time": time, "partition": partition, "account": account}.items():
        if value is not None and not re.fullmatch(r"[!-~]+", value):
            raise InputError(
                f"--{option} {value!r} should be a single word of plain letters, as sbatch takes it"
            )

    def of_site(name: str, value: str | None) -> str:
        if value is None:
            return f"##SBATCH --{name}=...   # edit, if your site asks for it"
        return f"#SBATCH --{name}={value}"

    def quoted(argument: str) -> str:
        return f'"{argument}"' if argument == "$SLURM_ARRAY_TASK_ID" else shlex.quote(argument)

    script = importlib.resources.files("mu2mpi.cluster").joinpath("job.sbatch").read_text("utf-8")
    return script.format(
        name=re.sub(r"[^\w.-]", "-", name),
        ntasks=ntasks,
        time=time,
        array="" if array is None else f"#SBATCH --array=0-{array - 1}\n",
        log="%x-%j.log" if array is None else "%x-%A_%a.log",
        partition=of_site("partition", partition),
        account=of_site("account", account),
        activate=shlex.quote(f"{environment}/bin/activate") if environment else ".venv/bin/activate",
        words=" ".join(map(quoted, arguments)),
    )


def submit(script: str) -> None:
    """Hand a script to sbatch; InputError if there is no sbatch here, or it refuses."""
    try:
        subprocess.run(["sbatch"], input=script, text=True, check=True)
    except FileNotFoundError:
        raise InputError("there is no sbatch here; submit the script where there is") from None
    except subprocess.CalledProcessError as error:
        raise InputError(f"sbatch ended with code {error.returncode}") from None
