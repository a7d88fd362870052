"""Jobs: the script of a job, and what starts the ranks inside of it."""

import importlib.resources
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from mu2mpi.errors import EXIT_INTERRUPTED, InputError
from mu2mpi.execution.signals import SIGNALS

KILLED = (signal.SIGKILL, signal.SIGTERM, 128 + signal.SIGKILL, 128 + signal.SIGTERM)
LAUNCHER_VARIABLE = "MU2MPI_LAUNCHER"
# One write a rank, since launchers mix what ranks write in pieces.
PROBE = "import os; from mpi4py import MPI; os.write(1, b'%d\\n' % MPI.COMM_WORLD.Get_size())"
PROBE_SECONDS = 60

# Open MPI from PyPI binds ranks to cores that a job may not have, and waits for messages in a busy loop.
RANK_VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}


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

    script = importlib.resources.files("mu2mpi.execution").joinpath("job.sbatch").read_text("utf-8")
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


def launch(arguments: Sequence[str], ranks: int | None = None, requeues: int = 20) -> int:
    """Start ``mu2mpi ARGUMENTS`` on the ranks of this job and see it through.

    SIGUSR1, SIGUSR2, SIGTERM and Ctrl-C are passed on to the ranks as SIGUSR1. If the ranks stop with a
    checkpoint, and not because of the last two, the SLURM job is put back into the queue, at most `requeues`
    times. By default there are as many ranks as the SLURM job has, or 1. Returns their exit code; raises
    InputError if no launcher starts ranks that find each other.
    """
    ranks = ranks or _number_in("SLURM_NTASKS", 1)
    environment = {**RANK_VARIABLES, **os.environ}
    if os.getuid() == 0:
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    launcher = find_launcher(ranks, environment)
    command = [*launcher, sys.executable, "-m", "mu2mpi", *arguments]
    _say(f"starting {ranks} ranks: {shlex.join(command)}")
    pending: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        pending.append(number)
        if process is not None:
            process.send_signal(signal.SIGUSR1)

    process: subprocess.Popen[bytes] | None = None
    for number in SIGNALS:
        signal.signal(number, note)
    process = subprocess.Popen(command, env=environment)
    if pending:
        process.send_signal(signal.SIGUSR1)
    code = process.wait()
    code = code if code >= 0 else 128 - code
    # A launcher may kill the last ranks once the first has ended with code 75, and tell of that instead.
    stopped = code == EXIT_INTERRUPTED or (pending and code in KILLED)
    # After SIGTERM the job was cancelled, or SLURM requeues it on its own; after Ctrl-C it shall end.
    if stopped and not {signal.SIGTERM, signal.SIGINT} & {*pending}:
        _requeue(requeues)
        return EXIT_INTERRUPTED
    return code


def find_launcher(ranks: int, environment: Mapping[str, str]) -> list[str]:
    """Return the first command that starts this many ranks which find each other; InputError if none does."""
    if ranks == 1:
        return []
    lines = [f"no launcher starts {ranks} ranks that find each other:"]
    for candidate in _candidates(ranks):
        problem = _problem(candidate, ranks, environment)
        if problem is None:
            return candidate
        lines.append(f"  {shlex.join(candidate)}: {problem}")
        _say(f"not with {shlex.join(candidate)}: {problem}")
    way_out = f"Set {LAUNCHER_VARIABLE} to the command that does, such as 'srun --mpi=pmix -n {ranks}'"
    raise InputError("\n".join([*lines, way_out]))


def _candidates(ranks: int) -> list[list[str]]:
    chosen = os.environ.get(LAUNCHER_VARIABLE)
    if chosen:
        try:
            return [shlex.split(chosen)]
        except ValueError as error:
            raise InputError(f"{LAUNCHER_VARIABLE} is no command: {error}") from None
    ours = Path(sys.executable).parent / "mpirun"
    mpirun = str(ours) if ours.exists() else shutil.which("mpirun")
    candidates = [[mpirun, "-n", str(ranks)]] if mpirun else []
    if shutil.which("srun") and "SLURM_JOB_ID" in os.environ:
        kinds = ("--mpi=pmix", "--mpi=pmi2", "--mpi=none")
        candidates += [["srun", kind, "--kill-on-bad-exit=1", "-n", str(ranks)] for kind in kinds]
    return candidates


def _problem(launcher: Sequence[str], ranks: int, environment: Mapping[str, str]) -> str | None:
    """Try a launcher on a tiny program; return what is wrong with it, or None."""
    command = [*launcher, sys.executable, "-c", PROBE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode != 0:
        return f"it ends with code {done.returncode}"
    sizes = done.stdout.split()
    if sizes != [str(ranks)] * ranks:
        return f"its ranks see {', '.join(sorted(set(sizes))) or 'no'} ranks"
    return None


def _requeue(limit: int) -> None:
    """Put this SLURM job back into the queue, unless it was there often enough."""
    job = os.environ.get("SLURM_JOB_ID")
    if job is None:
        return
    # The last task of an array has the array's number, and would take the others along.
    if "SLURM_ARRAY_TASK_ID" in os.environ:
        job = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    restarts = _number_in("SLURM_RESTART_COUNT", 0)
    if restarts >= limit:
        _say(f"job {job} was requeued {restarts} times, which is enough; submit it again to go on")
    else:
        _say(f"requeueing job {job} ({restarts + 1} of at most {limit} times)")
        subprocess.run(["scontrol", "requeue", job], check=False)


def _number_in(variable: str, least: int) -> int:
    """Return the number that SLURM gives in a variable of the environment; by default, and at least, this."""
    text = os.environ.get(variable) or str(least)
    if not text.isdecimal() or int(text) < least:
        raise InputError(f"{variable} is {text!r}, and no number of at least {least}")
    return int(text)


def _say(message: str) -> None:
    print(f"mu2mpi launch: {message}", file=sys.stderr, flush=True)
