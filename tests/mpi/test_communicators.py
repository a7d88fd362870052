"""Runs, sweeps and audits on a communicator of the caller's, several of them at once in one program."""

import signal
import sys
import threading
from pathlib import Path

import pytest
from helpers.assertions import assert_same
from helpers.simulations import share_result, simulation_of

import mu2mpi
from mu2mpi.config.experiment import Experiment
from mu2mpi.core import parallel
from mu2mpi.core.errors import CollectiveInputError, CollectiveOSError, InputError, Interrupted
from mu2mpi.core.parallel import Communicator, duplicate_or_world
from mu2mpi.core.rank_report import RANK_REPORT_VARIABLE, rank_report_file, read_rank_report
from mu2mpi.core.signals import STOP_SIGNALS
from mu2mpi.execution.plan import open_source
from mu2mpi.results.reader import read_result

MPI = pytest.importorskip("mpi4py.MPI")
COMMUNICATORS = 3000
"""More than MPICH has."""


@pytest.fixture(autouse=True)
def nothing_is_left_changed(communicator: Communicator, monkeypatch: pytest.MonkeyPatch):
    """Let everything that goes to COMM_WORLD fail, and compare what a process has one of."""

    def fail():
        raise AssertionError("COMM_WORLD is used behind the communicator of the caller")

    monkeypatch.setattr(parallel, "world", fail)
    before = [*map(signal.getsignal, STOP_SIGNALS), sys.excepthook]
    yield
    assert [*map(signal.getsignal, STOP_SIGNALS), sys.excepthook] == before


@pytest.fixture
def half(communicator: Communicator):
    """One of two groups, of ranks with even and with odd numbers; ranks are in opposite order."""
    comm = MPI.COMM_WORLD.Split(communicator.rank % 2, -communicator.rank)
    yield comm
    comm.Free()


@pytest.fixture
def folder(communicator: Communicator, tmp_path: Path) -> Path:
    """Folder that all ranks share."""
    return communicator.bcast_object(tmp_path)


def experiment_of(number: int, **settings) -> Experiment:
    servers = ("untrusted", "trusted")
    own = {"machines": 4 + number, "server": servers[number % 2], "rounds": 20 + number, "seed": 1 + number}
    return Experiment(**{**own, **settings})


def test_what_is_no_callback_is_refused_on_all_ranks(half):
    callbacks = [object()] if half.Get_rank() == 0 else []
    with pytest.raises(InputError, match=r"must derive from .*, got object"):
        mu2mpi.run(experiment_of(0), callbacks=callbacks, comm=half)


def serial(experiment: Experiment):
    return simulation_of(experiment, open_source(experiment)).run()


def test_two_halves_do_different_experiments_at_once(communicator: Communicator, half, folder):
    number = communicator.rank % 2
    experiment, path = experiment_of(number), folder / f"{number}.h5"
    expected = serial(experiment)
    found = mu2mpi.run(experiment, output=path, comm=half)
    assert found.environment["ranks"] == half.size
    assert_same(found, expected if half.rank == 0 else share_result(expected, Shown()))
    assert read_result(path).x.tobytes() == expected.x.tobytes()
    again = mu2mpi.run(experiment, comm=half)
    assert again.x.tobytes() == expected.x.tobytes()


class Shown(Communicator):
    """A rank other than rank 0."""

    rank = 1


def test_each_rank_has_experiments_of_its_own(communicator: Communicator, folder):
    experiment, path = experiment_of(communicator.rank), folder / f"{communicator.rank}.h5"
    found = mu2mpi.run(experiment, output=path, comm=MPI.COMM_SELF)
    assert found.environment["ranks"] == 1
    assert_same(found, serial(experiment))
    communicator.barrier()
    assert {file.name for file in folder.iterdir()} == {f"{rank}.h5" for rank in range(communicator.size)}


def test_an_error_of_one_half_leaves_the_other_unharmed(communicator: Communicator, half, folder):
    """On one of its ranks alone, and in a callback; the same communicator is good for the next run."""
    number = communicator.rank % 2
    experiment = experiment_of(number)
    if number == 0:
        with pytest.raises(InputError, match="9 rows of features but 8 labels"):
            mu2mpi.run(experiment, data=(([[0.5]] * 9, [0] * 8) if half.rank == 0 else None), comm=half)
        with pytest.raises(InputError, match="machines"):
            mu2mpi.run({"machines": -1 if half.rank == half.size - 1 else 2}, comm=half)
        with pytest.raises(InputError, match="the callback Failing failed: RuntimeError: on purpose"):
            mu2mpi.run(experiment, callbacks=[Failing()], comm=half)
    assert mu2mpi.run(experiment, comm=half).x.tobytes() == serial(experiment).x.tobytes()


class Failing(mu2mpi.Callback):
    def on_evaluation(self, evaluation):
        raise RuntimeError("on purpose")


@pytest.mark.filterwarnings("error")
def test_halves_do_different_sweeps_at_once(communicator: Communicator, half, folder):
    number = communicator.rank % 2
    settings = {"machines": [2, 3], "rounds": [5, 6], "seed": 3 + number, "server": "trusted"}
    runs = mu2mpi.sweep(settings, output=folder / str(number), progress=False, comm=half)
    assert len(runs) == 4
    for run in runs:
        assert run.x.tobytes() == serial(run.experiment).x.tobytes()
    assert len(mu2mpi.sweep(settings, output=folder / str(number), progress=False, comm=half)) == 4


def test_halves_do_different_audits_at_once(communicator: Communicator, half):
    settings = {"server": ("untrusted", "trusted")[communicator.rank % 2], "rounds": 3, "seed": 1}
    found = mu2mpi.audit_trust_modes(settings, trials=73, comm=half)
    alone = mu2mpi.audit_trust_modes(settings, trials=73, comm=MPI.COMM_SELF)
    assert found == alone
    assert [report.failures for report in found] == [[]]
    with pytest.raises(InputError, match="--rounds must be at least 3"):
        mu2mpi.audit_trust_modes(settings | {"rounds": 2}, comm=half)


@pytest.mark.several_ranks
def test_an_audit_of_ranks_that_differ_is_refused(communicator: Communicator):
    with pytest.raises(InputError, match="the number of trials is not the same on all ranks"):
        mu2mpi.audit_trust_modes({}, trials=100 + communicator.rank, comm=MPI.COMM_WORLD)
    server = {"server": "untrusted"} if communicator.rank else {}
    with pytest.raises(InputError, match="the number of runs is not the same on all ranks"):
        mu2mpi.audit_trust_modes(server, comm=MPI.COMM_WORLD)


def test_an_output_that_another_run_of_the_program_computes_is_refused(communicator: Communicator, folder):
    path, refused = folder / f"{communicator.rank}.h5", []

    class Intruder(mu2mpi.Callback):
        def on_start(self, start):
            with pytest.raises(InputError, match="another job computes"):
                mu2mpi.run(experiment_of(0), output=path, comm=MPI.COMM_SELF)
            refused.append(path)

    experiment = experiment_of(0)
    mu2mpi.run(experiment, output=path, callbacks=[Intruder()], comm=MPI.COMM_SELF)
    assert refused == [path]
    assert read_result(path).x.tobytes() == serial(experiment).x.tobytes()


def test_threads_run_at_once(communicator: Communicator, folder):
    experiments = [experiment_of(number) for number in range(3)]
    found = {}

    def run(number):
        path = folder / f"{communicator.rank}-{number}.h5"
        found[number] = mu2mpi.run(experiments[number], output=path, comm=MPI.COMM_SELF)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, experiment in enumerate(experiments):
        assert found[number].x.tobytes() == serial(experiment).x.tobytes()


def test_mu2mpi_launch_watches_no_run_of_a_caller(communicator: Communicator, half, tmp_path, monkeypatch):
    with rank_report_file(tmp_path, "7", 0) as report:
        monkeypatch.setenv(RANK_REPORT_VARIABLE, str(report))
        before = read_rank_report(report)
        own = tmp_path / "own.h5"
        mu2mpi.run(experiment_of(0), output=own, checkpoint_every=1e-9, comm=MPI.COMM_SELF)
        mu2mpi.run(experiment_of(0), output=half.bcast(tmp_path / "half.h5"), comm=half)
        assert read_rank_report(report) == before
        monkeypatch.setattr(parallel, "world", Communicator)
        mu2mpi.run(experiment_of(0), output=tmp_path / "watched.h5")
        assert read_rank_report(report).has_new_rounds


@pytest.fixture
def duplicates(monkeypatch) -> list:
    """List that fills with the duplicates that are made."""
    made = []

    class Watched(parallel.MpiCommunicator):
        def __init__(self, comm, is_external):
            super().__init__(comm, is_external)
            made.append(comm)

    monkeypatch.setattr(parallel, "MpiCommunicator", Watched)
    return made


@pytest.mark.several_ranks
@pytest.mark.parametrize("error", [CollectiveInputError("x"), CollectiveOSError("x"), Interrupted(1)])
def test_duplicates_are_freed_after_errors_of_all_ranks(duplicates, error):
    with pytest.raises(type(error)), duplicate_or_world(MPI.COMM_WORLD):
        raise error
    assert duplicates == [MPI.COMM_NULL]


@pytest.mark.several_ranks
@pytest.mark.parametrize("error", [InputError, OSError, KeyboardInterrupt, RuntimeError])
def test_an_error_of_this_rank_alone_waits_for_nobody(duplicates, error):
    """Free may wait for all ranks, of which the others are still in the run."""
    with pytest.raises(error), duplicate_or_world(MPI.COMM_WORLD):
        raise error
    assert MPI.COMM_NULL not in duplicates
    duplicates[0].Free()


def test_communicators_are_not_used_up(communicator: Communicator):
    # Pairs, as more ranks than cores need long.
    pair = MPI.COMM_WORLD.Split(communicator.rank // 2)
    for _ in range(COMMUNICATORS):
        with duplicate_or_world(pair) as duplicate:
            assert duplicate.size == pair.size
    pair.Free()


def test_thousands_of_calls_for_one_rank():
    for _ in range(COMMUNICATORS):
        with pytest.raises(InputError, match="rounds"):
            mu2mpi.run({"rounds": -1}, comm=MPI.COMM_SELF)


def test_other_things_than_communicators_of_this_rank_are_refused(communicator: Communicator, half):
    freed = half.Dup()
    freed.Free()
    refused = [MPI.COMM_NULL, MPI.COMM_WORLD.Split(MPI.UNDEFINED), freed, "world", 3, MPI.INFO_NULL]
    if communicator.size > 1:
        leaders = communicator.allgather(half.rank == 0)
        others = [rank for rank, leads in enumerate(leaders) if leads and rank % 2 != communicator.rank % 2]
        refused.append(half.Create_intercomm(0, MPI.COMM_WORLD, *others))
    for comm in refused:
        with pytest.raises(
            InputError, match=r"comm must be an Intracomm of mpi4py, not COMM_NULL, got \w+\."
        ):
            mu2mpi.run({"machines": 2}, comm=comm)
        with pytest.raises(InputError, match="comm must be"):
            mu2mpi.sweep({"machines": 2}, output="runs", comm=comm)
        with pytest.raises(InputError, match="comm must be"):
            mu2mpi.audit_trust_modes({}, comm=comm)
