"""Noise that hides whole machines that are sampled: against dp-accounting, integrals, and forged files."""

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers.simulations import make_messages, simulation_of
from helpers.sources import random_source
from scipy import integrate, stats

from mu2mpi.analysis.privacy_reports import claim_contradictions
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.execution.plan import resolve_plan
from mu2mpi.privacy.mechanisms.poisson_machines_mechanism import PoissonMachinesMechanism
from mu2mpi.privacy.mechanisms.poisson_mechanism import PoissonMechanism
from mu2mpi.privacy.statement import PrivacyStatement, budget_concerns

DELTA = 1e-5
PRIVACY_UNITS = {"sample": "one sample of one machine", "machine": "one machine with all its samples"}
SETTINGS = {"method": "fedavg", "unit": "machine", "machines": 10, "participants": 3, "server": "trusted",
            "delta": DELTA, "epsilon": 3.0, "rounds": 8, "seed": 1, "evaluations": 1}  # fmt: skip


def result_of(**settings):
    return simulation_of(Experiment(**{**SETTINGS, **settings}), random_source(1, 60, 4, 3)).run()


@pytest.mark.parametrize("neighbours", ["replace", "zero-out"])
@pytest.mark.parametrize(("participants", "local_steps"), [(3, 1), (3, 7), (10, 2)])
def test_the_claim_is_that_of_dp_accounting(neighbours, participants, local_steps):
    """Of a sampled Gaussian per round, whatever machines do in a round, by an accountant set up here."""
    dp_accounting = pytest.importorskip("dp_accounting")
    experiment = Experiment(**SETTINGS).replace(
        participants=participants, local_steps=local_steps, neighbours=neighbours
    )
    mechanism = resolve_plan(experiment, random_source(1, 60, 4, 3), 1).constants.mechanism
    assert (mechanism.rounds, mechanism.unit, mechanism.machines) == (8, "machine", 10)
    relations = dp_accounting.NeighboringRelation
    relation = relations.REPLACE_ONE if neighbours == "replace" else relations.ADD_OR_REMOVE_ONE
    accountant = dp_accounting.pld.PLDAccountant(relation, value_discretization_interval=1e-3)
    event = dp_accounting.GaussianDpEvent(mechanism.sigma / mechanism.clip_norm)
    sampled = dp_accounting.PoissonSampledDpEvent(participants / 10, event)
    accountant.compose(dp_accounting.SelfComposedDpEvent(sampled, 8))
    claimed = mechanism.guarantee().epsilon_exact_noise(DELTA)
    assert claimed == pytest.approx(accountant.get_epsilon(DELTA), rel=5e-3)
    assert 2.98 < mechanism.guarantee().epsilon(DELTA) <= 3.0


@pytest.mark.parametrize("q", [0.3, 1.0])
@pytest.mark.parametrize("neighbours", ["replace", "zero-out"])
def test_one_round_has_the_delta_of_an_integral(q, neighbours):
    """Of messages C and -C, or 0, along one direction: delta at the claimed epsilon by the definition."""
    settings = {"rounds": 1, "participants": round(10 * q), "neighbours": neighbours, "method": "fedavg"}
    experiment = Experiment(**{**SETTINGS, **settings, "epsilon": 1.0})
    mechanism = resolve_plan(experiment, random_source(1, 60, 4, 3), 1).constants.mechanism
    shift, epsilon = mechanism.clip_norm / mechanism.sigma, mechanism.guarantee().epsilon_exact_noise(DELTA)
    normal = stats.norm.pdf
    seen = lambda move: lambda y: (1 - q) * normal(y) + q * normal(y - move)  # noqa: E731
    first, second = seen(shift), seen(-shift if neighbours == "replace" else 0.0)
    deltas = []
    for p, other in ((first, second), (second, first)):
        excess = lambda y, p=p, other=other: max(0.0, p(y) - math.exp(epsilon) * other(y))  # noqa: E731
        parts = [integrate.quad(excess, a, a + 1, epsabs=1e-14)[0] for a in range(-14, 14)]
        deltas.append(sum(parts))
    assert max(deltas) == pytest.approx(DELTA, rel=0.03)
    assert max(deltas) <= DELTA * (1 + 1e-3)


def test_machines_are_the_units_of_statements():
    """The number of units is what delta is compared with, and the statement names them."""
    result = result_of()
    assert result.privacy.privacy_unit == PRIVACY_UNITS["machine"] == "one machine with all its samples"
    assert "machine takes part in a round with probability 0.3, in secret" in (
        result.privacy.mechanism.accounting_note
    )
    assert claim_contradictions(result) == []
    concerns = budget_concerns(12.0, 0.1, 10, "machine")
    texts = " ".join(concern.full for concern in concerns)
    assert "1/n for n = 10 machines" in texts
    assert "as likely with one machine as with another" in texts
    assert "n = 60 samples" in budget_concerns(1.0, 0.1, 60)[0].full
    assert {c.brief for c in replace(result.privacy, delta=0.09).concerns()} == {
        c.brief for c in result.privacy.concerns()
    }
    assert any("10 machines" in c.full for c in replace(result.privacy, delta=0.11).concerns())


@pytest.mark.parametrize(
    ("unit", "forged"),
    [
        ("machine", {"privacy_unit": PRIVACY_UNITS["sample"]}),
        ("sample", {"privacy_unit": PRIVACY_UNITS["machine"]}),
        ("sample", {"privacy_unit": "one person"}),
        ("sample", {"privacy_unit": ""}),
        ("machine", {"mechanism": "poisson"}),
        ("machine", {"mechanism": "poisson", "privacy_unit": PRIVACY_UNITS["sample"], "protects": "x"}),
    ],
)
def test_a_file_with_another_unit_is_refused(unit, forged):
    own = {"unit": "sample", "server": "untrusted", "participants": None} if unit == "sample" else {}
    attributes = result_of(**own).privacy.file_attributes()
    assert attributes["privacy_unit"] == PRIVACY_UNITS[unit]
    assert PrivacyStatement.from_attributes(attributes).privacy_unit == PRIVACY_UNITS[unit]
    with pytest.raises(InputError, match="does not protect"):
        PrivacyStatement.from_attributes({**attributes, **forged})


def test_a_file_that_states_the_mechanism_of_the_other_unit_contradicts_itself():
    """Its experiment implies the other, also if the unit is changed along with the mechanism."""
    result = result_of()
    fields = vars(result.privacy.mechanism)
    assert claim_contradictions(replace(result, privacy=replace(
        result.privacy, mechanism=PoissonMechanism(**fields))))  # fmt: skip
    less = replace(result.privacy.mechanism, batch_size=fields["batch_size"] / 2)
    assert claim_contradictions(replace(result, privacy=replace(result.privacy, mechanism=less)))
    louder = replace(result.privacy.mechanism, clip_norm=fields["clip_norm"] * 2)
    assert claim_contradictions(replace(result, privacy=replace(result.privacy, mechanism=louder)))


def test_sums_over_sampled_samples_are_not_supported():
    sums = make_messages(1.0, 1.0, 3, 2, 4)
    assert not PoissonMachinesMechanism.supports(sums)
    assert not PoissonMachinesMechanism.supports(replace(sums, subsampling="poisson"))
    assert PoissonMachinesMechanism.supports(replace(sums, subsampling="poisson-machines"))
    assert not PoissonMechanism.supports(replace(sums, subsampling="poisson-machines"))


def test_without_noise_there_is_no_guarantee():
    mechanism = result_of(epsilon=None, rho=math.inf).privacy.mechanism
    assert mechanism.sigma == 0
    assert mechanism.guarantee().epsilon(DELTA) == math.inf
    assert np.isnan(mechanism.rho_spent(3))
