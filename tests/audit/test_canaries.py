"""The samples that an audit attacks, and the ranks of one process on which it runs."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.faults import canaries_of

from mu2mpi.audit.canaries import CLIPPED_CASE, UNCLIPPED_CASE
from mu2mpi.audit.trials import random_variants
from mu2mpi.core.registry import known_names
from mu2mpi.federation.machine import Machines


@pytest.mark.parametrize("case", [CLIPPED_CASE, UNCLIPPED_CASE])
@pytest.mark.parametrize("server", ["untrusted", "trusted"])
def test_every_sample_is_a_canary_and_each_changes_its_own_machine_alone(case, server):
    _, canaries = canaries_of(case, server=server)
    rounds = range(1, 7 if server == "untrusted" else 6)
    places = list(zip(canaries.machines.tolist(), canaries.rounds.tolist(), strict=True))
    assert sorted(places) == [(i, t) for i in range(4) for t in rounds]
    none = np.zeros(len(canaries), bool)
    for k, (machine, t) in enumerate(places):
        one = none.copy()
        one[k] = True
        for i in range(4):
            hosted_machines = range(i, i + 1)
            before, after = (
                canaries.sample_reader(hosted_machines, none)(1),
                canaries.sample_reader(hosted_machines, one)(1),
            )
            changed = np.flatnonzero(before.labels != after.labels).tolist()
            assert changed == ([t - 1] if i == machine else [])
            if case is UNCLIPPED_CASE and changed:
                assert (before.features[t - 1], after.features[t - 1]) == (1, 0)
    together = canaries.sample_reader(range(4), ~none)(1)
    apart = np.array([canaries.sample_reader(range(i, i + 1), ~none)(1).labels for i in range(4)])
    np.testing.assert_array_equal(together.labels.reshape(6, 4), apart.T)
    assert len(canaries.sample_reader(range(4, 4), none)(1).labels) == 0


def test_samples_of_a_batch_are_those_of_their_round():
    """Or increments of a canary would not be as long as is said: it is the first of its batch."""
    _, canaries = canaries_of(UNCLIPPED_CASE, method="accelerated-srgd", batch=3)
    none = np.zeros(len(canaries), bool)
    before, after = (canaries.sample_reader(range(2, 3), variants)(1).labels for variants in (none, ~none))
    assert before.tolist() == [UNCLIPPED_CASE.class_label(t) for t in range(1, 7) for _ in range(3)]
    assert np.flatnonzero(before != after).tolist() == list(range(0, 18, 3))


@pytest.mark.parametrize("normalize", ["none", "unit"])
@pytest.mark.parametrize("estimator", ["corrected-momentum", "gradient"])
@pytest.mark.parametrize("case", [CLIPPED_CASE, UNCLIPPED_CASE])
@pytest.mark.parametrize("loss", known_names("losses"))
def test_a_canary_changes_every_sum_by_what_is_said(loss, case, estimator, normalize):
    """That is twice the clipping norm, or nearly so where it is the default and both variants are clipped."""
    _, canaries = canaries_of(case, estimator=estimator, normalize=normalize, loss=loss)
    constants = replace(canaries.constants, mechanism=replace(canaries.constants.mechanism, sigma=0.0))
    for k, t in ((1, 1), (6, 2), (10, 3), (21, 6)):
        assert canaries.rounds[k] == t
        hosted_machines, sums = range(canaries.machines[k], canaries.machines[k] + 1), []
        for kind in (False, True):
            variants = np.zeros(len(canaries), bool)
            variants[k] = kind
            machines, x, seen = (
                Machines(constants, hosted_machines, canaries.sample_reader(hosted_machines, variants), None),
                np.zeros((constants.problem.model_rows, 2)),
                [],
            )
            for at in range(1, 7):
                points = (x, x)
                if case.chooses_query_points:
                    points = [case.query_point(k, constants.problem.model_rows) for k in (at, at - 1)]
                machines.accumulate_increments(at, *points)
                seen.append(machines.message_sum.copy())
            sums.append(np.array(seen) * constants.mechanism.grid_spacing)
        norms = np.linalg.norm(sums[1] - sums[0], axis=(1, 2)) / (2 * constants.mechanism.clip_norm)
        messages = 7 - t if estimator == "corrected-momentum" else 1
        expected = np.zeros(6)
        expected[t - 1 : t - 1 + messages] = case.increment_separation(constants, t)
        # Clipping leaves half a per cent of the norm for rounding.
        np.testing.assert_allclose(norms, expected, rtol=5e-3)
        assert len(canaries.message_rounds[k]) == messages
    assert case is not CLIPPED_CASE or case.increment_separation(constants, t) == pytest.approx(1)
    if normalize == "none" and estimator == "corrected-momentum":
        assert constants.S > 1.9 * constants.problem.G or case is CLIPPED_CASE or loss == "logistic"
        # Of Huber's loss, whose residuals are short, only in later rounds.
        assert case.increment_separation(constants, 10) > 0.92
        assert (
            loss not in ("softmax", "logistic", "squared", "poisson")
            or case.increment_separation(constants, 4) > 0.92
        )


def test_kinds_are_tossed_for_each_run_and_then_turned_round():
    variants = random_variants(30, 500, bytes(32))
    np.testing.assert_array_equal(variants[::2], ~variants[1::2])
    assert abs(np.corrcoef(variants[::2].T) - np.eye(30)).max() < 0.25


def test_draws_are_counted_by_machine_and_sample():
    _, canaries = canaries_of(machines=3, rounds=5, method="noisy-minibatch-sgd", batch=3)
    counts = canaries.inclusion_counts(range(3), bytes(32))
    grid = np.tile(range(3), 5), np.repeat(range(1, 6), 3)
    taken = canaries.constants.batching.batches(bytes(32), *grid).indices.reshape(5, 3, 3)
    for t in range(5):
        for machine in range(3):
            assert counts[t, machine].tolist() == np.bincount(taken[t, machine], minlength=5).tolist()
    np.testing.assert_array_equal(canaries.inclusion_counts(range(1, 2), bytes(32))[:, 0], counts[:, 1])
