"""Runs with their files, in one process: what is written, what is refused, and whose key is used."""

import errno
import os
import random
import re
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from uuid import UUID

import numpy as np
import pytest
from helpers.assertions import assert_same
from helpers.interrupted_runs import BEGINS, Meanwhile, job, simulated, stopped_state
from helpers.slow import slow
from helpers.sources import random_source

from mu2mpi import load, run
from mu2mpi.analysis.privacy_reports import claim_contradictions
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.files import FileLock, file_identity
from mu2mpi.core.parallel import Communicator
from mu2mpi.core.rank_report import RANK_REPORT_VARIABLE, rank_report_file, read_rank_report
from mu2mpi.execution import job as module
from mu2mpi.execution.job import is_result_of
from mu2mpi.execution.plan import open_source_on_ranks, resolve_plan
from mu2mpi.results.checkpoint import read_checkpoint, write_checkpoint
from mu2mpi.results.reader import read_result
from mu2mpi.results.records import checkpoint_path
from mu2mpi.results.writer import check_output

SERIAL = Communicator()
SETTINGS = {"data": "synthetic", "samples": 60, "features": 2, "machines": 2, "rounds": 4}
SEEDED = Experiment(**SETTINGS, seed=1)
SECRET = Experiment(**SETTINGS)


@pytest.fixture(scope="module")
def source():
    return open_source_on_ranks(SEEDED, None, SERIAL)


def never():
    pytest.fail("it runs")


def test_what_is_written_is_what_is_returned(tmp_path, source):
    path = tmp_path / "new folder" / "a.h5"
    result = job().run_to_file(SEEDED, source, path)
    found = read_result(path)
    assert found.experiment == result.experiment == SEEDED
    assert (found.x.tobytes(), found.w.tobytes()) == (result.x.tobytes(), result.w.tobytes())
    assert found.privacy == result.privacy
    np.testing.assert_array_equal(found.history.message_norm, result.history.message_norm)
    # Nor does it matter to the result that it was written, or who resolved it.
    assert run(SEEDED).x.tobytes() == result.x.tobytes()
    assert list(path.parent.iterdir()) == [path]


def test_a_run_has_an_id_of_its_own_whatever_its_seed(monkeypatch):
    found = []
    for experiment in (SEEDED, SEEDED, SECRET):
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002
        found.append(run(experiment).environment["run_id"])
    assert len({*found}) == 3
    assert {UUID(run_id).version for run_id in found} == {4}
    # It is drawn from the system's random numbers alone.
    monkeypatch.setattr(os, "urandom", lambda size: bytes(range(size)))
    assert run(SEEDED).environment["run_id"] == "00010203-0405-4607-8809-0a0b0c0d0e0f"


@pytest.mark.parametrize("experiment", [SEEDED, SECRET])
def test_a_run_that_goes_on_keeps_its_id(source, experiment, tmp_path):
    state = stopped_state(experiment, source, 3)
    write_checkpoint(state, tmp_path / "a.h5.checkpoint")
    result = job().run_to_file(experiment, source, tmp_path / "a.h5")
    assert result.environment["run_id"] == state.run_id
    assert read_result(tmp_path / "a.h5").environment["run_id"] == state.run_id


def test_a_plan_that_is_given_is_the_one_that_runs(tmp_path, source, monkeypatch):
    plan = resolve_plan(Experiment(**{**SETTINGS, "rounds": None}, seed=1), source, 1)
    assert plan.experiment.rounds == 30
    monkeypatch.setattr(module, "resolve_plan", lambda *_: pytest.fail("it is settled"))
    result = job().run_to_file(plan.experiment, source, tmp_path / "a.h5", plan=plan)
    assert result.experiment == plan.experiment
    assert result.history.round[-1] == 30


def test_a_result_of_another_experiment_is_refused_unless_it_may_be_replaced(tmp_path):
    path = tmp_path / "a.h5"
    run(SEEDED, output=path)
    before = path.read_bytes()
    other = SEEDED.replace(rho=2.0)
    for experiment in (other, SEEDED):
        with pytest.raises(InputError, match="exists"):
            run(experiment, output=path, callbacks=[Meanwhile(never)])
    assert path.read_bytes() == before
    run(other, output=path, overwrite=True)
    assert read_result(path).experiment == other
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_holds_an_experiment_if_it_is_its_whole_result(tmp_path, source):
    path = tmp_path / "a.h5"
    assert not is_result_of(path, SEEDED)
    job().run_to_file(SEEDED, source, path)
    assert is_result_of(path, SEEDED)
    assert is_result_of(path, Experiment.from_settings({**SETTINGS, "seed": "1"}))
    for other in (SECRET, SEEDED.replace(rho=4.5), SEEDED.replace(evaluations=3)):
        assert not is_result_of(path, other)
    path.write_bytes(path.read_bytes()[:-100])
    assert not is_result_of(path, SEEDED)


def test_the_state_of_a_run_is_no_result(tmp_path, source):
    path = tmp_path / "a.h5"

    def looks():
        (tmp_path / "b.h5").write_bytes(checkpoint_path(path).read_bytes())
        assert not is_result_of(tmp_path / "b.h5", SECRET)
        assert not is_result_of(path, SECRET)

    job().run_to_file(SECRET, source, path, [Meanwhile(looks)])
    assert is_result_of(path, SECRET)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epsilon": 1e-10}, "epsilon = 1e-10 at delta = 1e-05 cannot be guaranteed.*Use a larger --epsilon"),
        ({"epsilon": 1000.0}, "Use a smaller --epsilon"),
        ({"epsilon": 1.0, "delta": 1e-290}, "or a larger --delta"),
        *slow(({"method": "dp-sgd", "server": "trusted", "rho": 1e-6}, "epsilon = 0 at delta = 1e-05")),
    ],
)
def test_an_epsilon_that_would_not_hold_is_not_run(settings, words, tmp_path):
    with pytest.raises(InputError, match=words):
        run(Experiment(**SETTINGS, **settings), output=tmp_path / "a.h5")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("everybody", "one"), [(1e-10, 2.0), (2.0, 1e-10)])
@pytest.mark.parametrize("server", ["untrusted", "trusted"])
def test_no_epsilon_is_run_that_would_not_hold_at_some_machine(server, everybody, one, tmp_path):
    (tmp_path / "budgets.toml").write_text(f"[epsilon]\n1 = {one}\n")
    experiment = Experiment(
        **SETTINGS, server=server, epsilon=everybody, budgets=str(tmp_path / "budgets.toml")
    )
    with pytest.raises(InputError, match=r"epsilon = 1e-10 at delta = 1e-05 cannot be guaranteed"):
        run(experiment, output=tmp_path / "a.h5")
    assert not (tmp_path / "a.h5").exists()


@pytest.mark.parametrize("settings", [{"epsilon": 1e-6}, {"epsilon": 600.0}, {"rho": 1e-10}, {"rho": 100.0}])
def test_what_is_run_keeps_its_promise(settings, tmp_path):
    run(Experiment(**SETTINGS, **settings), output=tmp_path / "a.h5")
    assert claim_contradictions(read_result(tmp_path / "a.h5")) == []


def test_the_key_is_kept_before_the_first_message(tmp_path, monkeypatch):
    """A run without a seed that dies in its first round starts again with the same noise."""
    source, path = random_source(1, 100, 6, 3), tmp_path / "a.h5"

    def fail(*_):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("mu2mpi.federation.servers.untrusted.UntrustedServer.run_round", fail)
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


@pytest.mark.parametrize(("experiment", "flushes"), [(SEEDED, 2), (SECRET, 4)])
def test_a_short_run_flushes_what_a_power_failure_must_not_lose(experiment, flushes, tmp_path, monkeypatch):
    """The result and its folder, and before the first message the key of a run without a seed."""
    flushed, source = [], open_source_on_ranks(experiment, None, SERIAL)
    monkeypatch.setattr("os.fsync", flushed.append)
    expected = job().run_to_file(experiment, source, tmp_path / "a.h5")
    assert len(flushed) == flushes
    # A checkpoint that was not flushed may be empty: without a key, the run starts over.
    checkpoint_path(tmp_path / "b.h5").touch()
    if experiment.seed is None:
        with pytest.raises(InputError, match="checkpoint"):
            job().run_to_file(experiment, source, tmp_path / "b.h5")
        return
    assert job().run_to_file(experiment, source, tmp_path / "b.h5").x.tobytes() == expected.x.tobytes()
    # What a run cost is of all its starts.
    assert expected.cost["peak_memory"].shape == (1,)
    kept = replace(stopped_state(experiment, source, 2), core_seconds=7200.0)
    write_checkpoint(kept, checkpoint_path(tmp_path / "c.h5"))
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "4")
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "17")
    cost = job().run_to_file(experiment, source, tmp_path / "c.h5").cost
    assert 7200 < cost["core_seconds"] < 7200 + 4 * 60
    assert cost["job"] == "17"
    np.testing.assert_equal(read_result(tmp_path / "c.h5").cost, cost)
    table = load(tmp_path / "c.h5").table(values=["core_hours", "peak_memory"])
    assert "2.0" in table


def test_of_two_starts_at_once_only_one_sends(tmp_path, monkeypatch):
    """Without a seed each would send everything under a key of its own."""
    source, experiment, path = random_source(1, 100, 6, 3), Experiment(machines=4), tmp_path / "a.h5"
    of_first = []

    def second_start():
        of_first.append(checkpoint_path(path).read_bytes())
        with monkeypatch.context() as patch:
            # It looked for a checkpoint before the first job wrote one.
            patch.setattr("mu2mpi.execution.job.find_checkpoint", lambda *_: None)
            patch.setattr(
                "mu2mpi.federation.machine.Machines.noised_message", lambda *_: pytest.fail("it sends")
            )
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
    first, second = (job(True, before={path: file_identity(path)}) for _ in range(2))
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
        with pytest.raises(InputError, match="another job"):
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


@pytest.mark.parametrize("other", [{}, {"rho": 2.0}])
@pytest.mark.parametrize("checkpoint_stays", [True, False])
def test_a_result_of_another_job_is_not_taken_for_ones_own(tmp_path, checkpoint_stays, other):
    """Under another key, or of another experiment: then that of this run is lost but for its checkpoint."""
    source, experiment, path = random_source(1, 100, 6, 3), Experiment(machines=4), tmp_path / "a.h5"
    theirs = job().run_to_file(experiment.replace(**other), source, tmp_path / "other.h5")

    def another_result():
        (tmp_path / "other.h5").rename(path)
        if not checkpoint_stays:
            checkpoint_path(path).unlink()

    words = "resume from" if checkpoint_stays else "is lost"
    with pytest.raises(InputError, match=words):
        job(bool(other)).run_to_file(experiment, source, path, [Meanwhile(another_result)])
    assert_same(read_result(path), theirs)
    assert checkpoint_path(path).exists() == checkpoint_stays


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("has_locks", [True, False])
def test_of_two_jobs_that_go_on_from_one_checkpoint_one_computes_it(has_locks, seed, tmp_path, monkeypatch):
    """Where no file can be locked, both come to one result."""
    source, experiment = random_source(1, 100, 6, 3), Experiment(machines=4, seed=seed)
    path, results = tmp_path / "a.h5", []
    write_checkpoint(stopped_state(experiment, source, 10), checkpoint_path(path))
    if not has_locks:
        monkeypatch.setattr("fcntl.flock", no_locks)

    def another_job():
        if not has_locks:
            results.append(job().run_to_file(experiment, source, path))
            return
        before = {file: file.read_bytes() for file in tmp_path.iterdir()}
        with pytest.raises(InputError, match="another job computes"):
            job().run_to_file(experiment, source, path, [BEGINS])
        assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before

    result = job().run_to_file(experiment, source, path, [Meanwhile(another_job)])
    assert_same(read_result(path), result)
    assert all(each.x.tobytes() == result.x.tobytes() for each in results)
    assert list(tmp_path.iterdir()) == [path]


def no_locks(*_):
    raise OSError(errno.ENOLCK, "No locks available")


def test_a_requeued_job_waits_for_the_lock_of_a_lost_node(tmp_path, monkeypatch):
    path, slept = tmp_path / "a.h5", []
    with closing(FileLock(path)) as lost, closing(FileLock(path)) as lock:
        lost.acquire()
        monkeypatch.setattr(module, "sleep", lambda _: (slept.append(1), len(slept) == 3 and lost.close()))
        with pytest.raises(InputError):
            module.lock_output(lock, path)
        monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
        module.lock_output(lock, path)
        assert len(slept) == 3


def test_a_result_that_cannot_be_written_keeps_the_checkpoint(tmp_path, source, monkeypatch):
    path, expected = tmp_path / "a.h5", run(SEEDED)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    remedy = f"repeat the command to resume from {checkpoint_path(path)}, which is kept"
    with monkeypatch.context() as patch:
        patch.setattr(module, "write_result", full)
        with pytest.raises(
            OSError, match=f"No space left on device. Remove the cause and {re.escape(remedy)}"
        ):
            job().run_to_file(SEEDED, source, path)
    assert list(tmp_path.iterdir()) == [checkpoint_path(path)]
    assert job().run_to_file(SEEDED, source, path).x.tobytes() == expected.x.tobytes()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_checkpoint_that_cannot_be_written_ends_a_run_on_a_full_disk_only(
    code, tmp_path, source, monkeypatch, capsys
):
    """The progress in the report is that of saved rounds, of which this start has none."""
    path = tmp_path / "a.h5"
    context = replace(job(), checkpoint_every=0.0)

    def fails(checkpoint, path, replace):
        if replace:
            raise OSError(code, os.strerror(code), str(path))
        write_checkpoint(checkpoint, path, replace)

    with rank_report_file(tmp_path, "7", 0) as report:
        monkeypatch.setenv(RANK_REPORT_VARIABLE, str(report))
        monkeypatch.setattr(module, "write_checkpoint", fails)
        if code == errno.EIO:
            assert context.run_to_file(SEEDED, source, path).x.tobytes() == run(SEEDED).x.tobytes()
            assert (
                "Input/output error; the previous one is kept; the run continues" in capsys.readouterr().err
            )
        else:
            with pytest.raises(
                OSError, match=f"{os.strerror(code)}; the previous one is kept. Free space or"
            ):
                context.run_to_file(SEEDED, source, path)
            assert read_checkpoint(checkpoint_path(path)).rounds_done == 0
        assert read_rank_report(report).has_new_rounds == (code == errno.EIO)


def test_what_is_written_while_a_job_begins_is_of_another(tmp_path, monkeypatch):
    """The output appears after it was found free: the job must learn of it before it sends anything."""
    experiment, path = Experiment(data="digits", machines=4), tmp_path / "a.h5"

    def found_free(path, overwrite):
        check_output(path, overwrite)
        with monkeypatch.context() as patch:
            patch.setattr("mu2mpi.execution.job.check_output", check_output)
            run(experiment, output=path)

    monkeypatch.setattr("mu2mpi.execution.job.check_output", found_free)
    with pytest.raises(InputError, match="sent nothing"):
        run(experiment, output=path, callbacks=[BEGINS])
    assert list(tmp_path.iterdir()) == [path]
