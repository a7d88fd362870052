"""Runs that are stopped or get a signal before a given round, and what they leave."""

import pytest

from helpers.launch import mpirun
from mu2mpi.core.errors import Interrupted
from mu2mpi.core.parallel import Communicator
from mu2mpi.execution import environment
from mu2mpi.execution.job import RunContext
from mu2mpi.execution.plan import resolve_plan
from mu2mpi.execution.resume import find_checkpoint
from mu2mpi.execution.simulation import CheckpointAction, CheckpointPolicy, Simulation
from mu2mpi.results.callbacks import Callback


class StopAt(CheckpointPolicy):
    """Stops a run before some round and remembers its state."""

    def __init__(self, t: int) -> None:
        self.t, self.state = t, None

    def decide(self, t):
        return CheckpointAction.SAVE_AND_STOP if t == self.t else CheckpointAction.CONTINUE

    def save(self, action, state):
        self.state = state
        raise Interrupted(state.rounds_done)


def found_checkpoint(path, experiment):
    return find_checkpoint(path, experiment, environment.numeric_platforms(Communicator()))


def simulated(experiment, source, state=None, keeper=None):
    """Return the result of a run in one process, from the start or from a state."""
    return Simulation(resolve_plan(experiment, source, 1), Communicator(), state).run(
        checkpoint_policy=keeper
    )


def stopped_state(experiment, source, t):
    keeper = StopAt(t)
    with pytest.raises(Interrupted):
        simulated(experiment, source, keeper=keeper)
    return keeper.state


def job(overwrite=False, every=1e9, before=None):
    return RunContext(Communicator(), lambda: False, overwrite, every, before or {})


class Meanwhile(Callback):
    """Does something once, after the first checkpoint and before the first round."""

    def __init__(self, action):
        self.on_start = lambda _: action()


BEGINS = Meanwhile(lambda: pytest.fail("it begins"))


# Ranks that look at every round whether to save or to stop, and that do something at a round.
AT_A_ROUND = """
import os, signal, sys
from mu2mpi.cli import main
from mu2mpi.execution import simulation as watch
from mu2mpi.federation.machine import Machines
from mu2mpi.core.parallel import world
watch.DECISION_INTERVAL_SECONDS = watch.FIRST_CHECKPOINT_SECONDS = 0.0
read, (name, rank, t) = Machines.read_samples, sys.argv[1:4]
def signalled(self, now):
    if now == int(t) and rank in ("all", str(world().rank)):
        os.kill(os.getpid(), getattr(signal, name))
    return read(self, now)
Machines.read_samples = signalled
sys.exit(main(sys.argv[4:]))
"""


def signalled(ranks, name, rank, t, *arguments, **variables):
    """Run a command on ranks, of which one or all get a signal at a round, and which save every round."""
    words = [name, str(rank), str(t), *arguments, "--checkpoint-every", "1e-9"]
    return mpirun(ranks, "-c", AT_A_ROUND, *words, **variables)
