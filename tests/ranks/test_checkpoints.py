"""Runs that stop and go on: the same bits, the same messages, and nothing lost whatever fails."""

import contextlib
import dataclasses
import functools
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from arrays import random_source
from launch import mpirun, mu2mpi, run_command, start_ranks
from limits import stretched
from same import assert_same
from sealing import editing
from slowly import slow

from mu2mpi import run
from mu2mpi.cli import main
from mu2mpi.config.experiment import Experiment
from mu2mpi.data.opening import open_source
from mu2mpi.errors import InputError, Interrupted
from mu2mpi.execution import environment
from mu2mpi.execution.job import Job
from mu2mpi.execution.plan import resolve
from mu2mpi.execution.resume import check_state, find_checkpoint
from mu2mpi.execution.simulation import Keeper, Simulation
from mu2mpi.execution.watch import Verdict
from mu2mpi.files import identity
from mu2mpi.parallel import Communicator
from mu2mpi.privacy import drawing
from mu2mpi.registry import names
from mu2mpi.results.checkpoint import read_checkpoint, write_checkpoint
from mu2mpi.results.observer import Observer
from mu2mpi.results.reader import read_result
from mu2mpi.results.schema import SUFFIX, History, checkpoint_path
from mu2mpi.results.writer import check_output

OTHERS = [("gradient", "iterate"), ("gradient", "average"), ("corrected-momentum", "iterate")]
SERVERS = pytest.mark.parametrize("server", ["untrusted", "trusted"])
ALL_SERVERS = pytest.mark.parametrize("server", names("servers"))


class StopAt(Keeper):
    """Stops a run before some round and remembers its state."""

    def __init__(self, t: int) -> None:
        self.t, self.state = t, None

    def look(self, t):
        return Verdict.STOP if t == self.t else Verdict.GO_ON

    def keep(self, verdict, state):
        self.state = state
        raise Interrupted(state.rounds_done)


def found_checkpoint(path, experiment):
    return find_checkpoint(path, experiment, environment.builds(Communicator()))


def simulated(experiment, source, state=None, keeper=None):
    """Return the result of a run in one process, from the start or from a state."""
    return Simulation(resolve(experiment, source, 1), Communicator(), state).run(keeper=keeper)


def stopped_state(experiment, source, t):
    keeper = StopAt(t)
    with pytest.raises(Interrupted):
        simulated(experiment, source, keeper=keeper)
    return keeper.state


@ALL_SERVERS
@pytest.mark.parametrize("t", [1, 2, 7, 24, 25])
def test_going_on_gives_the_bits_of_an_unbroken_run(server, t, tmp_path):
    source = random_source(1, 100, 6, 3)
    experiment = Experiment(server=server, machines=4, seed=9, clip_norm=0.9)
    unbroken = simulated(experiment, source)
    write_checkpoint(stopped_state(experiment, source, t), tmp_path / "checkpoint")
    state = read_checkpoint(tmp_path / "checkpoint")
    assert state.rounds_done == t - 1
    resumed = simulated(experiment, source, state)
    assert_same(resumed, unbroken)
    assert np.all(np.diff(resumed.history.elapsed_seconds) > 0)


@SERVERS
@pytest.mark.parametrize(("estimator", "query"), OTHERS)
def test_other_methods_go_on_to_the_same_bits(server, estimator, query, tmp_path):
    source = random_source(1, 100, 6, 3)
    experiment = Experiment(
        server=server, machines=4, seed=9, clip_norm=0.9, estimator=estimator, query=query
    )
    unbroken = simulated(experiment, source)
    write_checkpoint(stopped_state(experiment, source, 9), tmp_path / "checkpoint")
    state = read_checkpoint(tmp_path / "checkpoint")
    assert_same(simulated(experiment, source, state), unbroken)


@pytest.mark.parametrize("server", ["untrusted", "trusted", "aggregated"])
@pytest.mark.parametrize("t", [2, 9, 20])
@pytest.mark.parametrize(
    "settings", [{"method": "anytime-dp-mf", "diameter": 0.01}, {"noise_correlation": 0.5, "l2": 0.1}]
)
def test_correlated_noise_goes_on_to_the_same_bits(server, t, settings, tmp_path):
    """Also where the sum of all steps has left the ball."""
    source = random_source(1, 100, 6, 3)
    experiment = Experiment(server=server, machines=4, rounds=20, seed=9, **settings)
    unbroken = simulated(experiment, source)
    write_checkpoint(stopped_state(experiment, source, t), checkpoint_path(tmp_path / "a.h5"))
    state = found_checkpoint(tmp_path / "a.h5", experiment)
    check_state(state, resolve(experiment, source, 1), tmp_path / "a.h5")
    assert_same(simulated(experiment, source, state), unbroken)


@pytest.mark.parametrize("t", [2, 30, 31, 32])
def test_growing_batches_go_on_to_the_same_bits(t, tmp_path):
    source = random_source(1, 200, 6, 3)
    experiment = Experiment(method="snowball-sgd", server="trusted", machines=4, rounds=32, rho=2.0, seed=9)
    unbroken = simulated(experiment, source)
    write_checkpoint(stopped_state(experiment, source, t), tmp_path / "checkpoint")
    state = read_checkpoint(tmp_path / "checkpoint")
    assert_same(simulated(experiment, source, state), unbroken)


@pytest.mark.parametrize(
    ("method", "server"),
    [("noisy-minibatch-sgd", "untrusted"), ("noisy-minibatch-sgd", "trusted"), ("dp-sgd", "trusted")],
)
def test_samples_drawn_at_random_are_drawn_again(method, server, tmp_path):
    """With a seed or without, and with the batch that was settled when the run began."""
    source, path = random_source(1, 100, 6, 3), tmp_path / "a.h5"
    experiment = Experiment(method=method, server=server, machines=4, epsilon=2.0, rounds=30, seed=9)
    unbroken = simulated(experiment, source)
    write_checkpoint(stopped_state(experiment, source, 9), checkpoint_path(path))
    state = found_checkpoint(path, experiment)
    assert state.experiment.batch is not None
    assert_same(simulated(state.experiment, source, state), unbroken)
    unseeded = experiment.model_copy(update={"seed": None})
    state = stopped_state(unseeded, source, 9)
    once, again = (simulated(unseeded, source, state) for _ in range(2))
    assert_same(once, again)


def test_going_on_in_the_middle_of_a_chunk_of_samples(monkeypatch):
    source = random_source(1, 100, 6, 3)
    experiment = Experiment(machines=4, seed=9)
    unbroken = simulated(experiment, source)
    for name in ("WHOLE_BYTES", "PART_BYTES"):
        monkeypatch.setattr(f"mu2mpi.data.source.{name}", 3 * 4 * source.sample_bytes)
    state = stopped_state(experiment, source, 9)
    assert_same(simulated(experiment, source, state), unbroken)


@SERVERS
def test_a_restart_sends_the_very_same_messages(server, tmp_path, monkeypatch):
    """A run without a seed, so that its key lives in the checkpoint alone: no second noisy copy leaves."""
    source = random_source(1, 100, 6, 3)
    experiment = Experiment(server=server, machines=4)
    sent: dict[int, list[bytes]] = {}
    add_noise = drawing.add_noise

    def recorded(noised, message, key, who, first, count, t, scale):
        add_noise(noised, message, key, who, first, count, t, scale)
        # Of one unit of the grid it is what has the kernel compiled.
        if scale > 1.0:
            sent.setdefault(t, []).append(noised.tobytes())

    monkeypatch.setattr(drawing, "add_noise", recorded)
    write_checkpoint(stopped_state(experiment, source, 10), tmp_path / "checkpoint")
    for _ in range(2):
        simulated(experiment, source, read_checkpoint(tmp_path / "checkpoint"))
    last = 25 if server == "untrusted" else 24  # the server's last message would move nothing
    assert sorted(sent) == list(range(1, last + 1))
    assert all(len(sent[t]) == (1 if t < 10 else 2) for t in sent)
    assert all(len(set(messages)) == 1 for messages in sent.values())


def test_the_key_is_kept_before_the_first_message(tmp_path, monkeypatch):
    """A run without a seed that dies in its first round starts again with the same noise."""
    source = random_source(1, 100, 6, 3)
    job = Job(Communicator(), lambda: False, False, 1e9)
    path = tmp_path / "a.h5"

    def fail(*_):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("mu2mpi.federation.servers.untrusted.UntrustedServer.round", fail)
        with pytest.raises(MemoryError):
            job.run_to_file(Experiment(machines=4), source, path)
    kept = read_checkpoint(checkpoint_path(path))
    assert kept.rounds_done == 0
    expected = simulated(Experiment(machines=4), source, kept)
    found = job.run_to_file(Experiment(machines=4), source, path)
    assert_same(found, expected)
    assert_same(read_result(path), expected)
    assert not checkpoint_path(path).exists()


class Meanwhile(Observer):
    """Does something once, after the first checkpoint and before the first round."""

    def __init__(self, action):
        self.action = action

    def on_start(self, _):
        self.action()


def test_of_two_starts_at_once_only_one_sends(tmp_path, monkeypatch):
    """Without a seed each would send everything under a key of its own."""
    source, experiment = random_source(1, 100, 6, 3), Experiment(machines=4)
    job, path = Job(Communicator(), lambda: False, False, 1e9), tmp_path / "a.h5"
    of_first = []

    def second_start():
        of_first.append(checkpoint_path(path).read_bytes())
        with monkeypatch.context() as patch:
            # It looked for a checkpoint before the first job wrote one.
            patch.setattr("mu2mpi.execution.job.find_checkpoint", lambda *_: None)
            patch.setattr("mu2mpi.federation.machine.Machines.noised", lambda *_: pytest.fail("it sends"))
            with pytest.raises(InputError, match=r"another job has begun the run of .* sent nothing"):
                job.run_to_file(experiment, source, path)
        assert checkpoint_path(path).read_bytes() == of_first[0]

    first = job.run_to_file(experiment, source, path, [Meanwhile(second_start)])
    assert len(of_first) == 1
    assert_same(read_result(path), first)
    # A third, which looked for the output before it was there.
    with pytest.raises(InputError, match=r"written .* since this one began.* has sent nothing"):
        job.run_to_file(experiment, source, path, [Meanwhile(lambda: pytest.fail("it begins"))])
    assert_same(read_result(path), first)
    assert list(tmp_path.iterdir()) == [path]


def test_what_may_be_replaced_is_what_was_there_when_the_job_began(tmp_path):
    """Two jobs with --overwrite would else both send everything, and one result would speak for both."""
    source, experiment, path = random_source(1, 100, 6, 3), Experiment(machines=4), tmp_path / "a.h5"

    def job():
        return Job(Communicator(), lambda: False, True, 1e9, {path: identity(path)})

    old = job().run_to_file(experiment, source, path)
    first, second = job(), job()
    new = first.run_to_file(experiment, source, path)
    assert not np.array_equal(old.x, new.x)
    with pytest.raises(InputError, match=r"written .* since this one began.* has sent nothing"):
        second.run_to_file(experiment, source, path, [Meanwhile(lambda: pytest.fail("it begins"))])
    assert_same(read_result(path), new)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("seeds", [(1, None), (None, 1), (1, 2)])
def test_a_job_leaves_the_checkpoint_of_another_alone(seeds, tmp_path):
    """It may hold the only key of what has been sent already."""
    source, path = random_source(1, 100, 6, 3), tmp_path / "a.h5"
    job = Job(Communicator(), lambda: False, True, 1e-9)
    first, second = (Experiment(machines=4, seed=seed) for seed in seeds)

    def another_starts():
        kept = checkpoint_path(path).read_bytes()
        with pytest.raises(InputError, match="is of another experiment: seed is"):
            job.run_to_file(second, source, path, [Meanwhile(lambda: pytest.fail("it begins"))])
        assert checkpoint_path(path).read_bytes() == kept

    job.run_to_file(first, source, path, [Meanwhile(another_starts)])
    assert read_result(path).experiment.seed == first.seed
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("rho", ["4", "inf"])
def test_of_two_jobs_with_one_output_none_loses_its_result_unheard(rho, tmp_path):
    """Started at once, without a seed: those that end well have printed what the file holds."""
    path = tmp_path / "a.h5"
    command = [sys.executable, "-m", "mu2mpi", "run", "--machines", "9", "--output", str(path), "--rho", rho]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    jobs = [subprocess.Popen(command, **options) for _ in range(2)]
    ended = [(*job.communicate(timeout=60), job.returncode) for job in jobs]
    assert sorted(code for *_, code in ended) in ([0, 0], [0, 2]), ended
    history = read_result(path).history
    said = f"test loss {history.test_loss[-1]:.4f}, accuracy {history.test_accuracy[-1]:.1%}"
    for out, err, code in ended:
        assert said in out if code == 0 else re.search("has sent nothing|the output .* exists", err)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("seed", [3, None])
def test_a_run_goes_on_from_the_checkpoint_before_one_that_cannot_be_read(seed, tmp_path, capsys):
    """To the bits of going on from the last: also without a seed, whose key both have."""
    source, path = random_source(1, 100, 6, 3), tmp_path / "a.h5"
    experiment, place = Experiment(machines=4, seed=seed), checkpoint_path(path)

    def stops(looks):
        asked = iter([False] * looks)
        job = Job(Communicator(), lambda: next(asked, True), False, 1e-9)
        with pytest.raises(Interrupted):
            job.run_to_file(experiment, source, path)

    stops(2)
    kept = {name: name.read_bytes() for name in tmp_path.iterdir()}
    assert len(kept) == 2
    expected = Job(Communicator(), lambda: False, False, 1e9).run_to_file(experiment, source, path)
    path.unlink()
    for name, content in kept.items():
        name.write_bytes(content if name != place else content[:-1])
    found = Job(Communicator(), lambda: False, False, 1e9).run_to_file(experiment, source, path)
    assert "the one before it takes its place" in capsys.readouterr().err
    assert_same(found, expected)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("checkpoint_stays", [True, False])
def test_a_result_under_another_key_is_not_as_good(tmp_path, checkpoint_stays):
    source, experiment = random_source(1, 100, 6, 3), Experiment(machines=4)
    job, path = Job(Communicator(), lambda: False, False, 1e9), tmp_path / "a.h5"
    job.run_to_file(experiment, source, tmp_path / "other.h5")

    def another_result():
        (tmp_path / "other.h5").rename(path)
        if not checkpoint_stays:
            checkpoint_path(path).unlink()

    words = "go on from it" if checkpoint_stays else "it is lost"
    with pytest.raises(InputError, match=rf"in the meantime.* is spent, .* squares.*{words}"):
        job.run_to_file(experiment, source, path, [Meanwhile(another_result)])
    assert checkpoint_path(path).exists() == checkpoint_stays


@pytest.mark.parametrize("seed", [None, 1])
def test_two_jobs_that_go_on_from_one_checkpoint_come_to_one_result(tmp_path, seed):
    source, experiment = random_source(1, 100, 6, 3), Experiment(machines=4, seed=seed)
    job, path = Job(Communicator(), lambda: False, False, 1e9), tmp_path / "a.h5"
    write_checkpoint(stopped_state(experiment, source, 10), checkpoint_path(path))
    results = []

    def another_job():
        results.append(job.run_to_file(experiment, source, path))

    assert_same(job.run_to_file(experiment, source, path, [Meanwhile(another_job)]), results[0])
    assert_same(read_result(path), results[0])
    assert list(tmp_path.iterdir()) == [path]


def test_a_job_whose_checkpoint_is_read_by_another_may_end(tmp_path, monkeypatch):
    """The other has seen that there is one, and finds none: it must not send everything once more."""
    source, experiment, path = random_source(1, 100, 6, 3), Experiment(machines=4), tmp_path / "a.h5"
    job = Job(Communicator(), lambda: False, False, 1e9)
    state = stopped_state(experiment, source, 10)
    write_checkpoint(state, checkpoint_path(path))

    def read_too_late(place):
        with monkeypatch.context() as patch:
            patch.setattr("mu2mpi.results.checkpoint.read_checkpoint", read_checkpoint)
            job.run_to_file(experiment, source, path)
        return read_checkpoint(place)

    monkeypatch.setattr("mu2mpi.results.checkpoint.read_checkpoint", read_too_late)
    with pytest.raises(InputError, match=r"another job has written .* has sent nothing"):
        job.run_to_file(experiment, source, path, [Meanwhile(lambda: pytest.fail("it begins"))])
    assert_same(read_result(path), simulated(experiment, source, state))
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_written_while_a_job_begins_is_of_another(tmp_path, monkeypatch):
    """The output appears after it was found free: the job must learn of it before it sends anything."""
    experiment, path = Experiment(data="digits", machines=4), tmp_path / "a.h5"

    def found_free(path, overwrite):
        check_output(path, overwrite)
        with monkeypatch.context() as patch:
            patch.setattr("mu2mpi.results.writer.check_output", check_output)
            run(experiment, output=path)

    monkeypatch.setattr("mu2mpi.results.writer.check_output", found_free)
    with pytest.raises(InputError, match=r"another job has written .* has sent nothing"):
        run(experiment, output=path, observers=[Meanwhile(lambda: pytest.fail("it begins"))])
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def state():
    return stopped_state(Experiment(machines=4, seed=1), random_source(1, 100, 6, 3), 10)


def test_only_the_owner_can_read_a_checkpoint(state, tmp_path):
    write_checkpoint(state, tmp_path / "c")
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o600
    assert os.path.getsize(tmp_path / "c") < 50_000


def test_the_key_of_a_seed_is_not_in_the_checkpoint(state, tmp_path):
    assert state.key is None
    write_checkpoint(state, tmp_path / "c")
    with h5py.File(tmp_path / "c") as file:
        assert "key" not in file.attrs


def test_show_tells_how_far_a_run_is(state, tmp_path, capsys):
    write_checkpoint(state, checkpoint_path(tmp_path / "a.h5"))
    for path in (tmp_path / "a.h5", checkpoint_path(tmp_path / "a.h5")):
        assert main(["show", str(path)]) == 0
        out = capsys.readouterr().out
        assert "9 of 25 rounds" in out
        assert f"{state.history.test_loss[-1]:.4f}" in out


def test_show_does_not_tell_the_key(tmp_path, capsys):
    state = stopped_state(Experiment(machines=4), random_source(1, 100, 6, 3), 1)
    write_checkpoint(state, checkpoint_path(tmp_path / "a.h5"))
    assert main(["show", str(tmp_path / "a.h5")]) == 0
    assert state.key.hex()[:8] not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (Experiment(machines=4, seed=2), "seed is 2 here and 1 there"),
        (Experiment(machines=5, seed=1), "machines is 5 here and 4 there"),
        (Experiment(machines=4, seed=1, server="trusted"), "server is trusted here and untrusted there"),
        (Experiment(machines=4, seed=1, rounds=24), "rounds is 24 here and 25 there"),
        (Experiment(machines=4, seed=1, epsilon=2.0), "epsilon is 2.0 here and unset there"),
        (
            Experiment(machines=4, seed=1, method="mu2-sgd", preset="practical"),
            "preset is practical here and unset there",
        ),
    ],
)
def test_a_checkpoint_of_another_experiment_is_refused(state, tmp_path, other, words):
    path = checkpoint_path(tmp_path / "a.h5")
    write_checkpoint(state, path)
    content = path.read_bytes()
    with pytest.raises(InputError, match=words):
        found_checkpoint(tmp_path / "a.h5", other)
    assert path.read_bytes() == content


def test_a_run_of_some_epsilon_goes_on(tmp_path):
    source, experiment = random_source(1, 100, 6, 3), Experiment(machines=4, seed=1, epsilon=2.0)
    write_checkpoint(stopped_state(experiment, source, 10), checkpoint_path(tmp_path / "a.h5"))
    found = found_checkpoint(tmp_path / "a.h5", experiment)
    assert found.experiment.rho == experiment.rho
    resumed = simulated(found.experiment, source, found)
    assert_same(resumed, simulated(experiment, source))
    assert resumed.privacy.epsilon_exact <= 2.0
    for rho in (experiment.rho, 1.0):
        with pytest.raises(InputError, match=r"epsilon is unset here and 2\.0 there"):
            found_checkpoint(tmp_path / "a.h5", experiment.having(rho=rho))


def test_a_preset_is_nothing_that_was_left_open(tmp_path):
    source, path = random_source(1, 100, 6, 3), tmp_path / "a.h5"
    practical = Experiment(machines=4, seed=1, method="mu2-sgd", preset="practical")
    write_checkpoint(stopped_state(practical, source, 10), checkpoint_path(path))
    with pytest.raises(InputError, match="preset is unset here and practical there"):
        found_checkpoint(path, Experiment(machines=4, seed=1))
    # But it may be given with another number of ranks, as what it chose follows from that of the machines.
    found = found_checkpoint(path, Experiment(seed=1, method="mu2-sgd", preset="practical"))
    assert_same(simulated(found.experiment, source, found), simulated(practical, source))


def test_what_the_experiment_leaves_open_was_settled_before(state, tmp_path):
    write_checkpoint(state, checkpoint_path(tmp_path / "a.h5"))
    assert found_checkpoint(tmp_path / "a.h5", Experiment(seed=1)).experiment.machines == 4


@pytest.mark.parametrize(
    "changed",
    [
        lambda build: ("abacus" + build[build.index(",") :],),
        lambda build: (re.sub("features [^,]*", "features 01234567", build),),
        lambda build: (re.sub("values [^,]*", "values 01234567", build),),
        lambda build: (re.sub("numpy [^,]*", "numpy 0.9", build),),
        lambda build: (re.sub("numba [^,]*", "numba 0.9", build),),
        lambda build: (re.sub("llvmlite .*", "llvmlite 0.9", build),),
        lambda build: (build, "abacus, pebbles 3"),
    ],
    ids=["processor", "features", "values", "numpy", "numba", "llvmlite", "two kinds of ranks"],
)
def test_another_processor_or_package_costs_privacy_or_bits(state, changed, tmp_path, capsys):
    """The same noise on slightly other messages would give their difference away."""
    here = environment.builds(Communicator())
    there = changed(*here)
    assert there != here
    other = dataclasses.replace(state, builds=there)
    write_checkpoint(other, checkpoint_path(tmp_path / "a.h5"))
    assert found_checkpoint(tmp_path / "a.h5", Experiment(machines=4, seed=1)).rounds_done == 9
    assert there[-1] in capsys.readouterr().err
    secret = stopped_state(Experiment(machines=4), random_source(1, 100, 6, 3), 5)
    write_checkpoint(dataclasses.replace(secret, builds=there), checkpoint_path(tmp_path / "b.h5"))
    with pytest.raises(InputError, match="costs privacy"):
        found_checkpoint(tmp_path / "b.h5", Experiment(machines=4))


PRINT_BUILDS = """
from mu2mpi.execution.environment import builds
from mu2mpi.files import identity
from mu2mpi.parallel import Communicator
print(*builds(Communicator()))
"""


def test_settings_of_numba_are_other_builds():
    """They decide which code is made, and with it the last bits of a message."""
    settings = [{}, {"NUMBA_CPU_NAME": "generic"}, {"NUMBA_CPU_FEATURES": ""}, {"NUMBA_OPT": "1"}]
    found = []
    for variables in [*settings, {}]:
        command = [sys.executable, "-c", PRINT_BUILDS]
        environ = {**os.environ, **variables}
        found.append(subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout)
    assert found[0] == found[-1]
    assert re.search(r", processor features [0-9a-f]{8}, function values [0-9a-f]{8}, numpy", found[0])
    assert len(set(found)) == len(settings), found


PRINT_VALUES = """
import hashlib, math
import numpy as np
from mu2mpi.privacy.correlation import Correlation
x = -np.random.default_rng(0).random(200_000) * 20
norms = Correlation(0.75, 4, 1000, True, False).norms
for column in (np.exp(x), np.expm1(x), np.array([*map(math.exp, x.tolist())]), norms):
    print(hashlib.sha256(column.tobytes()).hexdigest())
"""


def test_other_implementations_of_functions_are_other_builds():
    """The C library and NumPy choose them when a program starts, and variables can hide instructions."""
    hidden = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4"}
    found = []
    for variables in ({}, hidden, {"NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512F AVX512_SKX"}):
        command = [sys.executable, "-W", "ignore", "-c", PRINT_BUILDS + PRINT_VALUES]
        done = run_command(command, 60, variables)
        assert done.returncode == 0, done.stderr
        found.append(done.stdout.split("\n", 1))
    for build, values in found:
        assert (build == found[0][0]) == (values == found[0][1]), found


@pytest.mark.parametrize(("module", "name"), [("numpy", "exp"), ("numpy", "expm1"), ("math", "exp")])
def test_a_function_that_is_off_in_one_of_a_thousand_last_bits_is_another_build(module, name, monkeypatch):
    real, before = getattr(sys.modules[module], name), environment._values_digest.__wrapped__()

    def other(x):
        found = np.asarray(real(x))
        found = np.where(np.asarray(x).view(np.int64) % 1009 == 0, np.nextafter(found, 2), found)
        return found if module == "numpy" else float(found)

    monkeypatch.setattr(sys.modules[module], name, other)
    assert environment._values_digest.__wrapped__() != before


@pytest.mark.parametrize("name", ["schema", "mu2mpi_version"])
def test_a_checkpoint_of_another_version_is_refused(state, tmp_path, name):
    write_checkpoint(state, tmp_path / "c")
    with editing(tmp_path / "c") as file:
        file.attrs[name] = "0.0.1-other"
    with pytest.raises(InputError, match=rf"{name} is '0\.0\.1-other'"):
        read_checkpoint(tmp_path / "c")


def test_a_damaged_checkpoint_is_refused(state, tmp_path):
    write_checkpoint(state, tmp_path / "c")
    content = (tmp_path / "c").read_bytes()
    rng = random.Random(3)
    for _ in range(60):
        damaged = bytearray(content)
        if rng.random() < 0.5:
            del damaged[rng.randrange(1, len(damaged) - 80) :]
        else:
            damaged[rng.randrange(len(damaged) - 80)] ^= 1 << rng.randrange(8)
        (tmp_path / "c").write_bytes(damaged)
        with pytest.raises(InputError, match=r"damaged|not an HDF5 file"):
            read_checkpoint(tmp_path / "c")


IMPOSSIBLE = {
    "NaN": ("iterates", lambda file: file["iterates/w"].__setitem__((0, 0), np.nan)),
    "outside": ("iterates", lambda file: file["iterates/x"].__setitem__(slice(None), 0.05)),
    "other iterates": ("iterates", lambda file: file.copy("iterates/w", "iterates/mean")),
    "an iterate less": ("iterates", lambda file: file.pop("iterates/w")),
    "short q": ("q", lambda file: replaced(file, "q", short)),
    "q of floats": ("q", lambda file: replaced(file, "q", lambda q: q.astype(float))),
    "large q": ("q", lambda file: replaced(file, "q", lambda q: q + 2**62)),
    "counts below 0": ("class_counts", lambda file: replaced(file, "class_counts", lambda c: c - 100)),
    "counts of one": ("class_counts", lambda file: replaced(file, "class_counts", lambda c: c[:1])),
    "a row less": ("history", lambda file: [replaced(file, f"history/{n}", short) for n in COLUMNS]),
    "a column less": ("damaged", lambda file: file.pop("history/samples")),
}
COLUMNS = History.columns()


def short(values):
    return values[:-1]


def replaced(file, name, change):
    values = change(file[name][()])
    del file[name]
    file[name] = values


@pytest.mark.parametrize("kind", IMPOSSIBLE)
def test_a_state_that_the_run_cannot_have_come_to_is_refused(kind, tmp_path, capsys):
    """Also where someone sealed it again."""
    path, words = tmp_path / "a.h5", ["--machines", "4", "--seed", "1", "--rounds", "50"]
    experiment = Experiment(machines=4, seed=1, rounds=50)
    state = stopped_state(experiment, open_source(experiment), 40)
    write_checkpoint(state, checkpoint_path(path))
    name, change = IMPOSSIBLE[kind]
    with editing(checkpoint_path(path)) as file:
        change(file)
    content = checkpoint_path(path).read_bytes()
    assert main(["run", *words, "--output", str(path)]) == 2
    said = capsys.readouterr().err
    assert f"mu2mpi: error: {name} in the checkpoint {checkpoint_path(path)} is not of this run" in said or (
        name == "damaged" and f"{checkpoint_path(path)} is damaged" in said
    )
    assert "remove it to start afresh" in said
    assert not path.exists()
    assert checkpoint_path(path).read_bytes() == content


# Real processes from here on: they are killed, starved of disk, and signalled.

LONG = ["--data", "synthetic", "--samples", "180000", "--machines", "3", "--seed", "4", "--evaluations", "8"]
LONG.append("--all-ranks")

FORKED = """
import os, sys
from pathlib import Path
from mu2mpi.files import identity
from mu2mpi.parallel import Communicator
from mu2mpi.execution.job import Job
from mu2mpi.config.experiment import Experiment
from mu2mpi.execution.agreement import shared_source
import random, signal, time
experiment = Experiment(data="synthetic", samples=30_000, machines=3, seed=4, server=sys.argv[2])
serial = Communicator()
source = shared_source(experiment, None, serial)
job = Job(serial, lambda: False, False, 0.01)
for name in ("first.h5", "unbroken.h5"):  # the first compiles
    began = time.monotonic()
    job.run_to_file(experiment, source, Path(sys.argv[1], name))
    duration = time.monotonic() - began
wanted, rng = int(sys.argv[3]), random.Random(sys.argv[4])
kills = finished = 0
while kills < wanted:
    path = Path(sys.argv[1], f"{finished}.h5")
    child = os.fork()
    if child == 0:
        job.run_to_file(experiment, source, path)
        os._exit(0)
    time.sleep(rng.random() * duration)
    os.kill(child, signal.SIGKILL)
    killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
    kills += killed
    print("kill" if killed else "done", path, flush=True)
    finished += not killed
child = os.fork()
if child == 0:
    job.run_to_file(experiment, source, path) if not path.exists() else None
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


@SERVERS
def test_kills_at_random_moments(server, tmp_path, moments):
    """Every time, the next start goes on to the same bits."""
    kills = 15
    arguments = [tmp_path, server, str(kills), str(moments.random())]
    done = run_command([sys.executable, "-c", FORKED, *arguments], 300, {})
    assert done.returncode == 0, done.stderr
    assert sum(line.startswith("kill ") for line in done.stdout.splitlines()) == kills
    expected = read_result(tmp_path / "unbroken.h5")
    results = [path for path in tmp_path.glob("*.h5") if path.name != "unbroken.h5"]
    assert results
    for path in results:
        assert_same(read_result(path), expected)
    # A run that is killed between its last two steps leaves its checkpoint beside its result.
    assert {path.name.removesuffix(SUFFIX) for path in tmp_path.glob(f"*{SUFFIX}")} <= {
        path.name for path in results
    }


KILLED_IN_CALLS = """
import contextlib, itertools, json, os, sys
from pathlib import Path
import h5py
from arrays import random_source
from mu2mpi.config.experiment import Experiment
from mu2mpi.execution.job import Job
from mu2mpi.parallel import Communicator
experiment, source = Experiment(machines=4, rounds=3), random_source(1, 100, 6, 3)
job = Job(Communicator(), lambda: False, False, 1e-9)

def start(path, killed_at=0):
    child, calls = os.fork(), itertools.count(1)
    def killing(real):
        def call(*arguments, **options):
            if next(calls) == killed_at:
                os._exit(9)
            return real(*arguments, **options)
        return call
    if child == 0:
        for name in ("open", "fsync", "link", "replace", "unlink"):
            setattr(os, name, killing(getattr(os, name)))
        job.run_to_file(experiment, source, path)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def key(path):
    with contextlib.suppress(OSError, KeyError), h5py.File(path) as file:
        return file.attrs["key"]

job.run_to_file(experiment, source, Path(sys.argv[1], "compiled.h5"))
for n in itertools.count(1):
    folder = Path(sys.argv[1], str(n))
    folder.mkdir()
    output = folder / "a.h5"
    if start(output, killed_at=n) == 0:
        break
    there = {path.name: key(path) for path in folder.iterdir()}
    if not output.exists():
        assert start(output) == 0
    print(json.dumps(there))
"""


@pytest.mark.slow
def test_no_kill_leaves_the_key_behind_once_the_run_has_finished(tmp_path):
    """Whichever call on the file system it comes before."""
    paths = {"PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parents[1])])}
    done = run_command([sys.executable, "-c", KILLED_IN_CALLS, str(tmp_path)], 100, paths)
    assert done.returncode == 0, done.stderr
    kills = [json.loads(line) for line in done.stdout.splitlines()]
    assert any(name.endswith(".tmp") and key for there in kills for name, key in there.items())
    for n, there in enumerate(kills, 1):
        left = {path.name: path.read_bytes() for path in (tmp_path / str(n)).iterdir()}
        assert "a.h5" in left
        # Who sees the result finished sees its checkpoint, too, until that is removed as the last.
        left = {name: content for name, content in left.items() if "a.h5" not in there or name[0] == "."}
        assert not [name for name in left if "checkpoint" in name]
        for key in {*there.values()} - {None}:
            assert not any(
                form in content for form in (key.encode(), bytes.fromhex(key)) for content in left.values()
            )


@pytest.fixture(scope="module")
def unbroken():
    """Return what comes of `LONG` if nothing happens, by server."""

    @functools.cache
    def result(server):
        return run(
            Experiment(data="synthetic", samples=180_000, machines=3, seed=4, evaluations=8, server=server)
        )

    return result


@pytest.mark.mpi
@pytest.mark.slow
@ALL_SERVERS
def test_one_killed_rank_ends_the_job_and_any_ranks_go_on(server, tmp_path, unbroken, moments):
    path = tmp_path / "a.h5"
    arguments = ["run", *LONG, "--server", server, "--checkpoint-every", "0.05", "--output", path]
    kill_a_rank_of(arguments, path, moments)
    assert not path.exists()
    assert read_checkpoint(checkpoint_path(path)).rounds_done > 0
    resumed = mpirun(2, "-m", "mu2mpi", "run", *LONG, "--server", server, "--output", path)
    assert resumed.returncode == 0, resumed.stderr
    assert "going on after round" in resumed.stderr
    assert_same(read_result(path), unbroken(server))


def kill_a_rank_of(arguments, output, moments):
    """Start three ranks, and kill one at some moment once they have a checkpoint of some round."""
    job = start_ranks(3, "-m", "mu2mpi", *arguments, stderr=subprocess.DEVNULL)
    place = checkpoint_path(output)
    # The first is of no round yet.
    wait_for(lambda: place.exists() and read_checkpoint(place).rounds_done > 0, 60)
    time.sleep(moments.random() * 0.2)
    children = subprocess.run(
        ["pgrep", "-f", f"mu2mpi run.*{output}"], capture_output=True, text=True, check=True
    ).stdout.split()
    ranks = [int(p) for p in children if int(p) != job.pid]
    os.kill(max(ranks), signal.SIGKILL)
    assert job.wait(timeout=20) != 0


def wait_for(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("name", "ranks"), slow(("SIGTERM", 2), ("SIGTERM", 3), ("SIGUSR1", 3), ("SIGUSR2", 3), ("SIGINT", 3))
)
def test_a_signal_stops_all_ranks_with_a_checkpoint(name, ranks, tmp_path):
    """Sent to one rank alone: the others agree."""
    script = tmp_path / "signalled.py"
    script.write_text(
        "import os, signal, sys, time\n"
        "from mu2mpi.cli import main\n"
        "from mu2mpi.federation.machine import Machines\n"
        "from mu2mpi.parallel import world\n"
        "observe = Machines.observe\n"
        "def signalled(self, t, *points):\n"
        "    if t == 200 and world().rank == 1:\n"
        f"        os.kill(os.getpid(), signal.{name})\n"
        "        print('SENT', time.time(), flush=True)\n"
        "    observe(self, t, *points)\n"
        "Machines.observe = signalled\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    path = tmp_path / "a.h5"
    job = mpirun(ranks, script, "run", *LONG, "--output", path)
    ended = time.time()
    assert job.returncode == 75, job.stderr
    # This includes the end of all processes.
    assert ended - float(job.stdout.split("SENT")[1].split()[0]) < stretched(5)
    assert "the same command goes on from it" in job.stderr
    assert checkpoint_path(path).exists()
    assert not path.exists()
    resumed = mu2mpi("run", *LONG, "--output", path)
    assert resumed.returncode == 0, resumed.stderr


@pytest.mark.parametrize(
    ("module", "name", "code"),
    [
        ("mu2mpi.execution.simulation", "compile_kernels", 75),
        ("mu2mpi.results.writer", "file_image", 0),
        *slow(
            ("mu2mpi.execution.evaluation", "Evaluator.measure", 75),
            ("mu2mpi.execution.job", "shared_source", 75),
        ),
    ],
)
def test_a_signal_at_an_awkward_moment(module, name, code, tmp_path):
    """While kernels are compiled, the loss is measured, the result is written, and data are read."""
    script = (
        f"import os, signal, sys, {module} as module\n"
        "from mu2mpi.cli import main\n"
        f"original = module.{name}\n"
        "def signalled(*a, **k):\n"
        "    os.kill(os.getpid(), signal.SIGUSR1)\n"
        "    return original(*a, **k)\n"
        f"module.{name} = signalled\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    path = tmp_path / "a.h5"
    done = run_command([sys.executable, "-c", script, "run", *LONG, "--output", path], 60, {})
    assert done.returncode == code, done.stderr
    assert path.exists() == (code == 0)
    assert checkpoint_path(path).exists() == (code == 75)
    assert "Traceback" not in done.stderr


@pytest.fixture
def small_disk(tmp_path):
    """Mount a file system of 200 kB; a full disk of another kind would need the same rights."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("a small file system can be mounted by root only")
    yield folder
    subprocess.run(["umount", folder], check=True)


def fill(folder):
    with open(folder / "filler", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def assert_room_brings_all_back(done, path, arguments):
    """The failure was told and left nothing, and the same command ends well on the disk that has room."""
    assert "Traceback" not in done.stderr
    assert not path.exists()
    (path.parent / "filler").unlink()
    assert mu2mpi(*arguments).returncode == 0
    assert [p.name for p in path.parent.iterdir()] == ["a.h5"]


def test_a_disk_that_fills_up(small_disk):
    """Checkpoints that fail do not stop the run; a result that fails is told; room brings all back."""
    path = small_disk / "a.h5"
    arguments = ["run", *LONG, "--checkpoint-every", "0.02", "--output", path]
    fill(small_disk)
    done = mu2mpi(*arguments)
    assert done.returncode in (1, 2), done.stderr
    assert "No space left" in done.stderr
    assert_room_brings_all_back(done, path, arguments)


def test_a_key_that_cannot_be_kept_is_found_out_before_anything_is_sent(small_disk):
    """Or the run could only start again with another key, and send the same secrets under other noise."""
    path = small_disk / "a.h5"
    arguments = ["run", "--machines", "3", "--output", path]
    fill(small_disk)
    done = mu2mpi(*arguments)
    assert done.returncode == 1, done.stderr
    assert "cannot write the checkpoint" in done.stderr
    assert "No space left on device; there is none" in done.stderr
    assert "Traceback" not in done.stderr
    (small_disk / "filler").unlink()
    assert list(small_disk.iterdir()) == []
    assert mu2mpi(*arguments).returncode == 0


FILLING = """
import sys
from pathlib import Path
import mu2mpi.results.{module} as module
from mu2mpi.cli import main
original, spared = module.{name}, [None] * {spared}
def filling(*arguments, **options):
    if spared:
        spared.pop()
        return original(*arguments, **options)
    with open(Path(sys.argv[-1]).parent / "filler", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    return original(*arguments, **options)
module.{name} = filling
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("module", "name", "spared", "words"),
    [
        ("writer", "write_result", 0, "No space left on device: '"),
        # Without the first one it would not begin.
        *slow(("checkpoint", "write_checkpoint", 1, "warning: cannot write the checkpoint")),
    ],
)
def test_a_disk_that_is_full_at_the_wrong_moment(small_disk, module, name, spared, words):
    path = small_disk / "a.h5"
    arguments = ["run", *LONG, "--checkpoint-every", "0.02", "--output", path]
    script = FILLING.format(module=module, name=name, spared=spared)
    done = run_command([sys.executable, "-c", script, *arguments], 60, {})
    assert done.returncode == 1
    assert words in done.stderr
    assert_room_brings_all_back(done, path, arguments)


def test_a_folder_that_cannot_be_written_is_found_out_before_the_run(small_disk):
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    done = mu2mpi("run", *LONG, "--output", small_disk / "a.h5")
    assert done.returncode == 2
    assert "cannot write the output" in done.stderr
    assert "round" not in done.stderr


@pytest.mark.mpi
@pytest.mark.parametrize(("server", "wanted"), [("trusted", 1), *slow(("untrusted", 4), ("trusted", 4))])
def test_all_ranks_killed_at_random_moments(server, wanted, tmp_path, unbroken, moments):
    path, kills = tmp_path / "a.h5", 0
    arguments = ["run", *LONG, "--server", server, "--checkpoint-every", "0.02", "--output", path]
    while kills < wanted:
        log = tmp_path / "log"
        with log.open("w") as stream:
            job = start_ranks(2, "-m", "mu2mpi", *arguments, stderr=stream, start_new_session=True)
        wait_for(lambda log=log, job=job: "T = " in log.read_text() or job.poll() is not None, 60)
        time.sleep(moments.random() * 0.3)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        subprocess.run(["pkill", "-KILL", "-f", str(path)], check=False)
        job.wait(timeout=20)
        if path.exists():
            path.rename(tmp_path / f"finished-{kills}.h5")
        kills += 1
    assert mu2mpi(*arguments).returncode == 0
    for finished in (path, *tmp_path.glob("finished-*.h5")):
        assert_same(read_result(finished), unbroken(server))
