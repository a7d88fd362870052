"""Options at the ends of their ranges, and beyond: whatever is asked for is done, or refused in words."""

import math
import resource
import signal
import sys
import warnings
from contextlib import contextmanager
from functools import cache

import pytest
from helpers.slow import slow

from mu2mpi.analysis.description import describe_privacy, privacy_summary
from mu2mpi.analysis.privacy_reports import check_privacy_claims
from mu2mpi.config.experiment import Experiment, simulated_protocol_name
from mu2mpi.config.experiment_options import option_fields
from mu2mpi.config.sweep import result_name
from mu2mpi.core.errors import InputError
from mu2mpi.core.options import MAX_REAL_OPTION, MIN_REAL_OPTION, choices
from mu2mpi.core.registry import known_names, lookup
from mu2mpi.execution.job import run
from mu2mpi.execution.plan import open_source, resolve_plan
from mu2mpi.federation.participants import MAX_MACHINES
from mu2mpi.privacy.statement import PrivacyStatement
from mu2mpi.results.reader import read_result

SECONDS, GIBIBYTES = 60, 1
"""What one case may take, on a busy machine too, and by how much all together may grow."""

TYPICAL = {
    "partition": ["iid", "contiguous", "sorted", "dirichlet:0.3", "labels:2", "dirichlet:1e-99"],
    "machines": [1, 2, 3, 10], "rounds": [1, 2, 3, 7, 20], "epsilon": [1e-9, 1e-3, 0.5, 2.0, 610.0, 700.0],
    "delta": [1e-290, 1e-6, 0.3], "rho": [1e-9, 1e-3, 0.5, 4, 1e4, 1e9, 1e15], "diameter": [1e-9, 1.0, 1e9],
    "clip_norm": [1e-9, 0.75, 1e9], "eta_scale": [1e-9, 0.5, 1.0, 1e9], "seed": [7],
    "evaluations": [1, 3, 1000], "batch": [1, 2, 100], "samples": [60, 1000], "features": [1, 2, 5],
    "participation": [
        "all", "uniform:1", "uniform:3", "bernoulli:0.5", "bernoulli:0.01", "bernoulli:1", "by-size",
        "trace:trace.csv", "trace:nobody.csv",
    ],
    "participation_seed": [0, 9], "colluders": [0, 1, 2, 9],
    "budgets": ["rho.toml", "epsilon.toml", "ends.toml", "rho.csv", "trace.csv"],
    "classes": [2, 3, 7], "data_seed": [1], "margin": [0.5], "label_noise": [0.1], "heterogeneity": [0.5],
}  # fmt: skip
ABOUT_MACHINES = {
    "rho.toml": "[rho]\n0 = 0.5\n1 = 9.0\n",
    "epsilon.toml": "[epsilon]\n0 = 1.0\n[rho]\n1 = 1e9\n",
    "ends.toml": f"[rho]\n0 = {MIN_REAL_OPTION}\n1 = {MAX_REAL_OPTION}\n[epsilon]\n2 = {MAX_REAL_OPTION}\n",
    "rho.csv": "machine,rho\n0,3.5\n",
    "trace.csv": "round,machine\n" + "".join(f"{t},{t % 2}\n" for t in range(1, 21)),
    "nobody.csv": "round,machine\n",
}
ENDS = {
    "rho": [MIN_REAL_OPTION, MAX_REAL_OPTION, math.inf],
    "epsilon": [MIN_REAL_OPTION, MAX_REAL_OPTION, math.inf],
}
OUTSIDE = {name: [0, MIN_REAL_OPTION / 2, 2 * MAX_REAL_OPTION, 1e308, 5e-324, math.nan] for name in ENDS}
WEIRD = [
    None, True, "", " ", "\n", "\0", "é\ud800", "x" * 300, "../" * 100 + "a.csv", "nan", "-inf", "1e400",
    "-0", -0.0, 0.5, -1, 2**31, 2**32, 2**63, 2**64, 10**400, math.nan, -math.inf, [], [1], {}, "1_0", "0x10",
    "٣", sys.float_info.max, math.ulp(0.0), "owner", "labels:" + "9" * 400, "dirichlet:" + "9" * 400,
]  # fmt: skip


def limits(field):
    """Return values at the ends of an option's range, and just outside of it."""
    inside, outside = [], []
    for kind, way in (("ge", -1), ("gt", -1), ("le", 1), ("lt", 1)):
        for end in (getattr(rule, kind) for rule in field.metadata if hasattr(rule, kind)):
            beyond = end + way if isinstance(end, int) else math.nextafter(end, way * math.inf)
            within = end - way if isinstance(end, int) else math.nextafter(end, -way * math.inf)
            inside.append(end if kind in ("ge", "le") else within)
            outside.append(beyond if kind in ("ge", "le") else end)
    return inside, outside


def drawn_value(chance, name, field):
    inside, outside = limits(field)
    typical = [*(choices(field) or ()), *TYPICAL.get(name, ())] or [field.default]
    kinds = [typical, ENDS.get(name) or inside or typical, OUTSIDE.get(name) or outside or WEIRD, WEIRD]
    value = chance.choice(chance.choices(kinds, [60, 36, 2, 2])[0])
    return str(value) if chance.random() < 0.2 and isinstance(value, int | float) else value


def drawn_settings(chance):
    """Return settings, each now and then: seldom more than a few at a time."""
    settings = {
        "data": chance.choice(["digits", "synthetic", "synthetic", "population"]),
        "method": chance.choice(known_names("methods")),
        "server": chance.choice(known_names("servers")),
    }
    own = lookup("methods", settings["method"]).options, lookup("servers", settings["server"]).options
    parts = [Experiment, lookup("sources", settings["data"]).options, *own]
    fields = {name: field for part in parts for name, field in part.model_fields.items()}
    often = {
        "participation": 0.2, "budgets": 0.06, "objective": 0.06, "machines": 0.7, "rounds": 0.7, "seed": 0.5,
        "rho": 0.4, "clip_norm": 0.3, "colluders": 0.3, "masks": 0.3,
    }  # fmt: skip
    for name, field in fields.items():
        if name not in settings and name != "loss" and chance.random() < often.get(name, 0.12):
            settings[name] = drawn_value(chance, name, field)
    if chance.random() < 0.03:
        name = chance.choice([*option_fields(), "rhoo"])
        settings[name] = chance.choice(WEIRD)
    if chance.random() < 0.9 and "epsilon" in settings:
        settings.pop("rho", None)
    return settings


@contextmanager
def bounded():
    """Make warnings errors, and end what takes too long."""

    def end(*_):
        raise TimeoutError(f"it took more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@cache
def source_of(data, options):
    return open_source(Experiment(data=data, **dict(options)))


def is_slow(experiment):
    """Return whether what is asked for takes long by its nature: to account, to read, or to list."""
    everything = experiment.samples or 0
    return (
        (
            experiment.has_unequal_machines
            and (experiment.machines or 1) <= MAX_MACHINES
            and max(everything, 10**4, experiment.rounds or 0) * (experiment.machines or 1) > 10**6
        )
        or (experiment.method in ("dp-sgd", "noisy-minibatch-sgd") and math.isfinite(experiment.rho))
        or (
            (everything > 10**6 or everything * (experiment.classes or 1) > 10**9)
            and experiment.data == "synthetic"
            and ":" in (experiment.partition or "")
        )
        or (experiment.features or 1) * (experiment.classes or 1) > 10**7
    )


def is_small(plan):
    """Return whether a run is one of milliseconds."""
    constants = plan.constants
    samples = (
        constants.problem.machines * constants.batching.processed_samples_until(constants.rounds)
        + plan.source.test_samples
    )
    return (
        constants.problem.d * constants.problem.machines < 10**4
        and constants.rounds < 200
        and samples < 10**4
    )


def planned(settings):
    """Return the plan of an experiment whose claims hold, or None if there is none in reasonable time."""
    experiment = Experiment.from_settings(settings, "here")
    assert Experiment.from_settings(
        experiment.replace().settings() if experiment.epsilon is None else settings
    )
    assert len(result_name(experiment.replace(machines=1)).encode()) < 200
    if is_slow(experiment):
        return None
    plan = resolve_plan(experiment, source_of(experiment.data, experiment.source_options), 1)
    constants, completed = plan.constants, plan.experiment
    assert 0 < constants.eta < math.inf
    assert constants.mechanism.clip_norm / 2 <= constants.reduced_clip_norm <= constants.mechanism.clip_norm
    statement = PrivacyStatement.of(
        constants.mechanism, completed.delta, server=constants.problem.server, S=constants.S,
        noise=simulated_protocol_name(completed), noise_recomputable=completed.seed is not None,
    )  # fmt: skip
    statement.check_sampler(completed.max_claimed_epsilon)
    assert 0 <= statement.epsilon_exact <= completed.max_claimed_epsilon
    assert statement.epsilon_exact <= statement.epsilon
    assert not statement.is_noisy or completed.rho < math.inf or completed.budgets
    assert statement.mismatches() == []
    if constants.problem.per_machine_plan is not None:
        accounts = constants.problem.per_machine_plan.accounts(completed.delta)
        assert not any(accounts.rho > accounts.rho_budget * (1 + 1e-9))
        assert all(accounts.epsilon >= 0)
        assert 0 < constants.machine_weight_sum < math.inf
    assert (
        "nan"
        not in f"{describe_privacy(statement)} {privacy_summary(statement)}".replace("learn", "").split()
    )
    return plan


def runs_and_holds(plan, path):
    """Run a plan's experiment, and check every claim of the file."""
    experiment = plan.experiment
    result = run(experiment, output=path)
    found = read_result(path)
    assert found.experiment == experiment
    assert found.x.tobytes() == result.x.tobytes()
    assert math.isfinite(abs(found.x).max())
    assert check_privacy_claims([path])[1] == []


@pytest.mark.parametrize(("cases", "runs"), [(250, 8), *slow((10_000, 80))])
def test_whatever_is_asked_for_is_done_or_refused_in_words(cases, runs, chance, tmp_path, monkeypatch):
    refused, done = 0, 0
    monkeypatch.chdir(tmp_path)
    for name, content in ABOUT_MACHINES.items():
        (tmp_path / name).write_text(content)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for case in range(cases):
        settings = drawn_settings(chance)
        try:
            with bounded():
                plan = planned(settings)
                if plan and is_small(plan) and done < runs:
                    runs_and_holds(plan, tmp_path / f"{case}.h5")
                    done += 1
        except InputError:
            refused += 1
        except BaseException as error:
            error.add_note(f"of settings {settings!r}")
            raise
    assert done == runs
    assert cases / 10 < refused < cases * 9 / 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < GIBIBYTES << 20
