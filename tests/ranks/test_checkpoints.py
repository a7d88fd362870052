"""Runs that stop and go on: the same bits, the same messages, and nothing lost whatever fails."""

import contextlib
import dataclasses
import functools
import itertools
import os
import re
import subprocess
import sys

import h5py
import numpy as np
import pytest
from helpers.assertions import assert_same
from helpers.interrupted_runs import found_checkpoint, signalled, simulated, stopped_state
from helpers.launch import mpirun, mu2mpi, run_command
from helpers.slow import slow
from helpers.sources import random_source

from mu2mpi import run
from mu2mpi.cli import main
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError, Interrupted
from mu2mpi.core.files import identity
from mu2mpi.core.parallel import Communicator
from mu2mpi.core.registry import names
from mu2mpi.execution import environment
from mu2mpi.execution.evaluation import Evaluator
from mu2mpi.execution.job import Job
from mu2mpi.execution.plan import resolve
from mu2mpi.execution.resume import check_state
from mu2mpi.federation.machine import Machines
from mu2mpi.privacy.noise import source as drawing
from mu2mpi.results.checkpoint import read_checkpoint, write_checkpoint
from mu2mpi.results.observer import Observer
from mu2mpi.results.reader import read_result
from mu2mpi.results.schema import checkpoint_path
from mu2mpi.results.writer import check_output

SERVERS = pytest.mark.parametrize("server", ["untrusted", "trusted"])


def job(overwrite=False, every=1e9, before=None):
    return Job(Communicator(), lambda: False, overwrite, every, before or {})


class Meanwhile(Observer):
    """Does something once, after the first checkpoint and before the first round."""

    def __init__(self, action):
        self.on_start = lambda _: action()


BEGINS = Meanwhile(lambda: pytest.fail("it begins"))

OTHERS = [("gradient", "iterate"), ("gradient", "average"), ("corrected-momentum", "iterate")]
CORRELATED = [{"method": "anytime-dp-mf", "diameter": 0.01}, {"noise_correlation": 0.5, "l2": 0.1}]
CASES = [
    *({"server": server} for server in names("servers")),
    *({"server": "trusted", "estimator": e, "query": q, "clip_norm": 0.9} for e, q in OTHERS),
    *({"server": s, "rounds": 20, **c} for s in ("untrusted", "trusted") for c in CORRELATED),
    {"server": "aggregated", "rounds": 20, **CORRELATED[0]},
    {"method": "snowball-sgd", "server": "trusted", "rounds": 24, "rho": 2.0},
    {"method": "noisy-minibatch-sgd", "epsilon": 2.0, "rounds": 24},
    {"method": "dp-sgd", "server": "trusted", "epsilon": 2.0, "rounds": 24},
    {"method": "mu2-sgd", "preset": "practical"},
]


@pytest.mark.parametrize("settings", CASES, ids=lambda settings: "-".join(map(str, settings.values())))
def test_going_on_gives_the_bits_of_an_unbroken_run(settings, tmp_path):
    """From any round, of any method, and without a seed to those of another who goes on."""
    source, path = random_source(1, 200, 6, 3), tmp_path / "a.h5"
    experiment = Experiment(**{"machines": 4, "seed": 9, **settings})
    unbroken = simulated(experiment, source)
    for t in (1, 2, 9, unbroken.experiment.rounds):
        write_checkpoint(stopped_state(experiment, source, t), checkpoint_path(path))
        # What is left open was settled when the run began.
        state = found_checkpoint(path, experiment.having(machines=None))
        assert state.rounds_done == t - 1
        check_state(state, resolve(experiment, source, 1), path)
        resumed = simulated(state.experiment, source, state)
        assert_same(resumed, unbroken)
        assert np.all(np.diff(resumed.history.elapsed_seconds) > 0)
    unseeded = experiment.having(seed=None)
    state = stopped_state(unseeded, source, 9)
    assert_same(*(simulated(unseeded, source, state) for _ in range(2)))


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
    source, path = random_source(1, 100, 6, 3), tmp_path / "a.h5"

    def fail(*_):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("mu2mpi.federation.servers.untrusted.UntrustedServer.round", fail)
        with pytest.raises(MemoryError):
            job().run_to_file(Experiment(machines=4), source, path)
    kept = read_checkpoint(checkpoint_path(path))
    assert kept.rounds_done == 0
    expected = simulated(Experiment(machines=4), source, kept)
    assert_same(job().run_to_file(Experiment(machines=4), source, path), expected)
    assert_same(read_result(path), expected)
    assert list(tmp_path.iterdir()) == [path]
    # Another run has a key of its own.
    other = job().run_to_file(Experiment(machines=4), source, tmp_path / "b.h5")
    assert not np.array_equal(other.x, expected.x)


def test_of_two_starts_at_once_only_one_sends(tmp_path, monkeypatch):
    """Without a seed each would send everything under a key of its own."""
    source, experiment, path = random_source(1, 100, 6, 3), Experiment(machines=4), tmp_path / "a.h5"
    of_first = []

    def second_start():
        of_first.append(checkpoint_path(path).read_bytes())
        with monkeypatch.context() as patch:
            # It looked for a checkpoint before the first job wrote one.
            patch.setattr("mu2mpi.execution.job.find_checkpoint", lambda *_: None)
            patch.setattr("mu2mpi.federation.machine.Machines.noised", lambda *_: pytest.fail("it sends"))
            with pytest.raises(InputError, match="sent nothing"):
                job().run_to_file(experiment, source, path)
        assert checkpoint_path(path).read_bytes() == of_first[0]

    first = job().run_to_file(experiment, source, path, [Meanwhile(second_start)])
    assert len(of_first) == 1
    # A third, which looked for the output before it was there.
    with pytest.raises(InputError, match="sent nothing"):
        job().run_to_file(experiment, source, path, [BEGINS])
    assert_same(read_result(path), first)
    assert list(tmp_path.iterdir()) == [path]


def test_what_may_be_replaced_is_what_was_there_when_the_job_began(tmp_path):
    """Two jobs with --overwrite would else both send everything, and one result would speak for both."""
    source, experiment, path = random_source(1, 100, 6, 3), Experiment(machines=4), tmp_path / "a.h5"
    old = job(True).run_to_file(experiment, source, path)
    first, second = (job(True, before={path: identity(path)}) for _ in range(2))
    new = first.run_to_file(experiment, source, path)
    assert not np.array_equal(old.x, new.x)
    with pytest.raises(InputError, match="sent nothing"):
        second.run_to_file(experiment, source, path, [BEGINS])
    assert_same(read_result(path), new)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("seeds", [(1, None), (None, 1), (1, 2)])
def test_a_job_leaves_the_checkpoint_of_another_alone(seeds, tmp_path):
    """It may hold the only key of what has been sent already."""
    source, path = random_source(1, 100, 6, 3), tmp_path / "a.h5"
    first, second = (Experiment(machines=4, seed=seed) for seed in seeds)

    def another_starts():
        kept = checkpoint_path(path).read_bytes()
        with pytest.raises(InputError, match="seed"):
            job(True, 1e-9).run_to_file(second, source, path, [BEGINS])
        assert checkpoint_path(path).read_bytes() == kept

    job(True, 1e-9).run_to_file(first, source, path, [Meanwhile(another_starts)])
    assert read_result(path).experiment.seed == first.seed
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
def test_of_two_jobs_with_one_output_none_loses_its_result_unheard(tmp_path):
    """Started at once, without a seed: those that end well have printed what the file holds."""
    path = tmp_path / "a.h5"
    command = [sys.executable, "-m", "mu2mpi", "run", "--machines", "9", "--output", str(path)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    jobs = [subprocess.Popen(command, **options) for _ in range(2)]
    ended = [(*each.communicate(timeout=120), each.returncode) for each in jobs]
    assert sorted(code for *_, code in ended) in ([0, 0], [0, 2]), ended
    history = read_result(path).history
    said = f"test loss {history.test_loss[-1]:.4f}, accuracy {history.test_accuracy[-1]:.1%}"
    assert all(said in out for out, _, code in ended if code == 0)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("seed", [3, None])
def test_a_run_goes_on_from_the_checkpoint_before_one_that_cannot_be_read(seed, tmp_path, capsys):
    """To the bits of going on from the last: also without a seed, whose key both have."""
    source, path = random_source(1, 100, 6, 3), tmp_path / "a.h5"
    experiment, place = Experiment(machines=4, seed=seed), checkpoint_path(path)
    asked = iter([False] * 2)
    with pytest.raises(Interrupted):
        Job(Communicator(), lambda: next(asked, True), False, 1e-9).run_to_file(experiment, source, path)
    kept = {name: name.read_bytes() for name in tmp_path.iterdir()}
    assert len(kept) == 2
    expected = job().run_to_file(experiment, source, path)
    path.unlink()
    for name, content in kept.items():
        name.write_bytes(content if name != place else content[:-1])
    assert_same(job().run_to_file(experiment, source, path), expected)
    assert str(place) in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("other", [{}, {"rho": 2.0}])
@pytest.mark.parametrize("checkpoint_stays", [True, False])
def test_a_result_of_another_job_is_not_taken_for_ones_own(tmp_path, checkpoint_stays, other):
    """Under another key, or of another experiment: then that of this run is lost but for its checkpoint."""
    source, experiment, path = random_source(1, 100, 6, 3), Experiment(machines=4), tmp_path / "a.h5"
    theirs = job().run_to_file(experiment.having(**other), source, tmp_path / "other.h5")

    def another_result():
        (tmp_path / "other.h5").rename(path)
        if not checkpoint_stays:
            checkpoint_path(path).unlink()

    words = "go on from it" if checkpoint_stays else "it is lost"
    with pytest.raises(InputError, match=words):
        job(bool(other)).run_to_file(experiment, source, path, [Meanwhile(another_result)])
    assert_same(read_result(path), theirs)
    assert checkpoint_path(path).exists() == checkpoint_stays


@pytest.mark.parametrize("seed", [None, 1])
def test_two_jobs_that_go_on_from_one_checkpoint_come_to_one_result(tmp_path, seed):
    source, experiment = random_source(1, 100, 6, 3), Experiment(machines=4, seed=seed)
    path, results = tmp_path / "a.h5", []
    write_checkpoint(stopped_state(experiment, source, 10), checkpoint_path(path))

    def another_job():
        results.append(job().run_to_file(experiment, source, path))

    assert_same(job().run_to_file(experiment, source, path, [Meanwhile(another_job)]), results[0])
    assert_same(read_result(path), results[0])
    assert list(tmp_path.iterdir()) == [path]


def test_a_job_whose_checkpoint_is_read_by_another_may_end(tmp_path, monkeypatch):
    """The other has seen that there is one, and finds none: it must not send everything once more."""
    source, experiment, path = random_source(1, 100, 6, 3), Experiment(machines=4), tmp_path / "a.h5"
    state = stopped_state(experiment, source, 10)
    write_checkpoint(state, checkpoint_path(path))

    def read_too_late(place):
        with monkeypatch.context() as patch:
            patch.setattr("mu2mpi.results.checkpoint.read_checkpoint", read_checkpoint)
            job().run_to_file(experiment, source, path)
        return read_checkpoint(place)

    monkeypatch.setattr("mu2mpi.results.checkpoint.read_checkpoint", read_too_late)
    with pytest.raises(InputError, match="sent nothing"):
        job().run_to_file(experiment, source, path, [BEGINS])
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
    with pytest.raises(InputError, match="sent nothing"):
        run(experiment, output=path, observers=[BEGINS])
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def state():
    return stopped_state(Experiment(machines=4, seed=1), random_source(1, 100, 6, 3), 10)


def test_show_tells_how_far_a_run_is_and_no_key(state, tmp_path, capsys):
    path = tmp_path / "a.h5"
    write_checkpoint(state, checkpoint_path(path))
    with h5py.File(checkpoint_path(path)) as file:
        assert "key" not in file.attrs
    assert main(["show", str(path)]) == 0
    out = capsys.readouterr().out
    assert "9 of 25 rounds" in out
    assert f"{state.history.test_loss[-1]:.4f}" in out
    secret = stopped_state(Experiment(machines=4), random_source(1, 100, 6, 3), 1)
    write_checkpoint(secret, checkpoint_path(path))
    assert main(["show", str(checkpoint_path(path))]) == 0
    assert secret.key.hex()[:8] not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("other", "name"),
    [
        ({"seed": 2}, "seed"),
        ({"machines": 5}, "machines"),
        ({"epsilon": 2.0}, "epsilon"),
        ({"method": "mu2-sgd", "preset": "practical"}, "preset"),
    ],
)
def test_a_checkpoint_of_another_experiment_is_refused(state, tmp_path, other, name):
    path = checkpoint_path(tmp_path / "a.h5")
    write_checkpoint(state, path)
    content = path.read_bytes()
    with pytest.raises(InputError, match=f"{name} is "):
        found_checkpoint(tmp_path / "a.h5", Experiment(**{"machines": 4, "seed": 1, **other}))
    assert path.read_bytes() == content
    # Nor is a preset, or an epsilon that gave the rho, anything that was left open.
    experiment = Experiment(**{"machines": 4, "seed": 1, **other})
    write_checkpoint(stopped_state(experiment, random_source(1, 100, 6, 3), 10), path)
    with pytest.raises(InputError, match=f"{name} is "):
        found_checkpoint(tmp_path / "a.h5", Experiment(machines=4, seed=1, rho=experiment.rho))


@pytest.mark.parametrize("word", ["features", "values", "numpy", "numba", "llvmlite", "ranks"])
def test_another_processor_or_package_costs_privacy_or_bits(state, word, tmp_path, capsys):
    """The same noise on slightly other messages would give their difference away."""
    here = environment.builds(Communicator())
    there = (*here, "abacus, pebbles 3") if word == "ranks" else (re.sub(f"{word} [^,]*", "x", here[0]),)
    assert there != here
    write_checkpoint(dataclasses.replace(state, builds=there), checkpoint_path(tmp_path / "a.h5"))
    assert found_checkpoint(tmp_path / "a.h5", Experiment(machines=4, seed=1)).rounds_done == 9
    assert there[-1] in capsys.readouterr().err
    secret = stopped_state(Experiment(machines=4), random_source(1, 100, 6, 3), 5)
    write_checkpoint(dataclasses.replace(secret, builds=there), checkpoint_path(tmp_path / "b.h5"))
    with pytest.raises(InputError, match="costs privacy"):
        found_checkpoint(tmp_path / "b.h5", Experiment(machines=4))


PRINT_BUILDS = """
import hashlib, math
import numpy as np
from mu2mpi.execution.environment import builds
from mu2mpi.core.parallel import Communicator
from mu2mpi.privacy.noise.correlation import Correlation
print(*builds(Communicator()))
x = -np.random.default_rng(0).random(200_000) * 20
norms = Correlation(0.75, 4, 1000, True, False).norms
for column in (np.exp(x), np.expm1(x), np.array([*map(math.exp, x.tolist())]), norms):
    print(hashlib.sha256(column.tobytes()).hexdigest())
"""


def printed_builds(**variables):
    done = run_command([sys.executable, "-W", "ignore", "-c", PRINT_BUILDS], 120, variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n", 1)


@pytest.mark.slow
def test_settings_of_numba_and_other_implementations_of_functions_are_other_builds():
    """They decide the last bits of a message; the C library and NumPy choose theirs when a program starts."""
    plain = printed_builds()
    settings = [{"NUMBA_CPU_NAME": "generic"}, {"NUMBA_CPU_FEATURES": ""}, {"NUMBA_OPT": "1"}]
    assert len({plain[0], *(printed_builds(**variables)[0] for variables in settings)}) == 4
    hidden = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4"}
    for variables in (hidden, {"NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512F AVX512_SKX"}):
        build, values = printed_builds(**variables)
        assert (build == plain[0]) == (values == plain[1]), variables


@pytest.mark.parametrize(("module", "name"), [("numpy", "exp"), ("numpy", "expm1"), ("math", "exp")])
def test_a_function_that_is_off_in_one_of_a_thousand_last_bits_is_another_build(module, name, monkeypatch):
    real, before = getattr(sys.modules[module], name), environment._values_digest.__wrapped__()

    def other(x):
        found = np.asarray(real(x))
        found = np.where(np.asarray(x).view(np.int64) % 1009 == 0, np.nextafter(found, 2), found)
        return found if module == "numpy" else float(found)

    monkeypatch.setattr(sys.modules[module], name, other)
    assert environment._values_digest.__wrapped__() != before


IMPOSSIBLE = {
    "NaN": lambda s: {"iterates": {**s.iterates, "w": s.iterates["w"] * np.nan}},
    "outside": lambda s: {"iterates": {**s.iterates, "x": s.iterates["x"] + 0.05}},
    "other iterates": lambda s: {"iterates": {**s.iterates, "mean": s.iterates["w"]}},
    "an iterate less": lambda s: {"iterates": {"x": s.iterates["x"]}},
    "short q": lambda s: {"q": s.q[:-1]},
    "q of floats": lambda s: {"q": s.q.astype(float)},
    "large q": lambda s: {"q": s.q + 2**62},
    "counts below 0": lambda s: {"class_counts": s.class_counts - 100},
    "counts of one": lambda s: {"class_counts": s.class_counts[:1]},
    "a row less": lambda s: {"history": type(s.history)(*(c[:-1] for c in vars(s.history).values()))},
}


@pytest.mark.parametrize("kind", IMPOSSIBLE)
def test_a_state_that_the_run_cannot_have_come_to_is_refused(state, kind, tmp_path):
    source, experiment = random_source(1, 100, 6, 3), Experiment(machines=4, seed=1)
    check_state(state, resolve(experiment, source, 1), tmp_path / "a.h5")
    path = tmp_path / "a.h5"
    write_checkpoint(dataclasses.replace(state, **IMPOSSIBLE[kind](state)), checkpoint_path(path))
    content = checkpoint_path(path).read_bytes()
    with pytest.raises(InputError, match=str(checkpoint_path(path))):
        job().run_to_file(experiment, source, path, [BEGINS])
    assert checkpoint_path(path).read_bytes() == content
    assert not path.exists()


# Real processes from here on: they are killed, starved of disk, and signalled.

POINTS = [
    *((os, name) for name in ("open", "fsync", "link", "replace", "unlink")),
    (Machines, "observe"),
    (Evaluator, "measure"),
]


def killed_at(n, action):
    """Do something in a process that dies at the n-th of `POINTS` that it comes to; return how it ended."""
    child = os.fork()
    if child == 0:
        count = itertools.count(1)

        def killing(real):
            def call(*arguments, **options):
                if next(count) == n:
                    os._exit(9)
                return real(*arguments, **options)

            return call

        for owner, name in POINTS:
            setattr(owner, name, killing(getattr(owner, name)))
        try:
            action()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@SERVERS
def test_kills_at_random_points(server, tmp_path, moments, monkeypatch):
    """Every time, the next start goes on to the same bits, whatever it does just then."""
    monkeypatch.setattr("mu2mpi.execution.watch.LOOK_SECONDS", 0.0)
    source, experiment = random_source(1, 100, 6, 3), Experiment(machines=4, seed=1, server=server)
    expected = job(every=1e-9).run_to_file(experiment, source, tmp_path / "unbroken.h5")
    path, ends = tmp_path / "a.h5", []
    while ends.count(9) < 15:
        ends.append(
            killed_at(
                moments.randrange(1, 120), lambda: job(every=1e-9).run_to_file(experiment, source, path)
            )
        )
        if ends[-1] != 9 or path.exists():
            assert_same(read_result(path), expected)
            path.unlink()
    assert set(ends) <= {0, 9}
    assert_same(job().run_to_file(experiment, source, path), expected)


@pytest.mark.slow
def test_no_kill_leaves_the_key_behind_once_the_run_has_finished(tmp_path, monkeypatch):
    """Whichever call on the file system or step of the run it comes before."""
    monkeypatch.setattr("mu2mpi.execution.watch.LOOK_SECONDS", 0.0)
    experiment, source = Experiment(machines=4, rounds=3), random_source(1, 100, 6, 3)
    job().run_to_file(experiment, source, tmp_path / "compiled.h5")
    for n in itertools.count(1):
        folder = tmp_path / str(n)
        folder.mkdir()
        output, keys = folder / "a.h5", set()
        if killed_at(n, lambda path=output: job(every=1e-9).run_to_file(experiment, source, path)) == 0:
            break
        for path in folder.iterdir():
            with contextlib.suppress(OSError, KeyError), h5py.File(path) as file:
                keys.add(file.attrs["key"])
        was_finished = output.exists()
        if not was_finished:
            job().run_to_file(experiment, source, output)
        # Who sees the result finished sees its checkpoint, too, until that is removed as the last.
        left = [path for path in folder.iterdir() if not was_finished or path.name.startswith(".")]
        assert not [path for path in left if "checkpoint" in path.name]
        contents = [path.read_bytes() for path in left]
        for key in keys:
            assert not any(form in text for form in (key, bytes.fromhex(key.decode())) for text in contents)
    assert n > 20


LONG = ["--data", "synthetic", "--samples", "900", "--machines", "3", "--seed", "4", "--evaluations", "8"]


@functools.cache
def unbroken(server):
    """Return what comes of `LONG` if nothing happens."""
    settings = {"data": "synthetic", "samples": 900, "machines": 3, "seed": 4, "evaluations": 8}
    return run(Experiment(**settings, server=server))


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("server", "rank"),
    [("trusted", 2), *slow(("trusted", "all"), *((s, r) for s in names("servers") for r in (1, "all")))],
)
def test_killed_ranks_end_the_job_and_any_ranks_go_on(server, rank, tmp_path, moments):
    path, t = tmp_path / "a.h5", moments.randrange(2, 60)
    arguments = ["run", *LONG, "--server", server, "--output", path]
    assert signalled(3, "SIGKILL", rank, t, *arguments).returncode != 0
    assert not path.exists()
    assert 0 < read_checkpoint(checkpoint_path(path)).rounds_done < t
    resumed = mpirun(2, "-m", "mu2mpi", *arguments)
    assert resumed.returncode == 0, resumed.stderr
    assert "going on after round" in resumed.stderr
    assert_same(read_result(path), unbroken(server))


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("name", "ranks"), [("SIGINT", 2), *slow(("SIGTERM", 3), ("SIGUSR1", 3), ("SIGUSR2", 3))]
)
def test_a_signal_stops_all_ranks_with_a_checkpoint(name, ranks, tmp_path):
    """Sent to one rank alone: the others agree."""
    path = tmp_path / "a.h5"
    ended = signalled(ranks, name, 1, 20, "run", *LONG, "--output", path)
    assert ended.returncode == 75, ended.stderr
    assert read_checkpoint(checkpoint_path(path)).rounds_done == 20
    assert not path.exists()
    assert mu2mpi("run", *LONG, "--output", path).returncode == 0
    assert_same(read_result(path), unbroken("untrusted"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "code"),
    [
        ("mu2mpi.results.writer", "result_image", 0),
        *slow(
            ("mu2mpi.execution.simulation", "compile_kernels", 75),
            ("mu2mpi.execution.evaluation", "Evaluator.measure", 75),
            ("mu2mpi.execution.job", "shared_source", 75),
        ),
    ],
)
def test_a_signal_at_an_awkward_moment(module, name, code, tmp_path):
    """While kernels are compiled, the loss is measured, the result is written, and data are read."""
    script = (
        f"import os, signal, sys, {module} as module, mu2mpi.execution.watch as watch\n"
        "from mu2mpi.cli import main\n"
        "watch.LOOK_SECONDS = 0.0\n"
        f"original = module.{name}\n"
        "def signalled(*a, **k):\n"
        "    os.kill(os.getpid(), signal.SIGUSR1)\n"
        "    return original(*a, **k)\n"
        f"module.{name} = signalled\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    path = tmp_path / "a.h5"
    done = run_command([sys.executable, "-c", script, "run", *LONG, "--output", path], 120, {})
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


FILLING = """
import sys
from pathlib import Path
import mu2mpi.results.{module} as module
from mu2mpi.cli import main
from mu2mpi.execution import watch
watch.LOOK_SECONDS = 0.0
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "spared"),
    [
        ("writer", "write_result", 0),
        ("checkpoint", "write_checkpoint", 0),
        ("checkpoint", "write_checkpoint", 1),
    ],
)
def test_a_disk_that_is_full_at_the_wrong_moment(small_disk, module, name, spared):
    """A result that fails is told, and so is a first checkpoint before anything is sent; others cost nothing.

    All comes back once there is room.
    """
    path = small_disk / "a.h5"
    arguments = ["run", *LONG, "--checkpoint-every", "1e-9", "--output", path]
    script = FILLING.format(module=module, name=name, spared=spared)
    done = run_command([sys.executable, "-c", script, *arguments], 120, {})
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr
    assert not path.exists()
    (path.parent / "filler").unlink()
    is_first = (name, spared) == ("write_checkpoint", 0)
    assert list(path.parent.iterdir()) == [] if is_first else checkpoint_path(path).exists()
    assert mu2mpi(*arguments).returncode == 0
    assert [p.name for p in path.parent.iterdir()] == ["a.h5"]


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_found_out_before_the_run(small_disk):
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    done = mu2mpi("run", *LONG, "--output", small_disk / "a.h5")
    assert done.returncode == 2
    assert "round" not in done.stderr
