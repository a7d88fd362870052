"""Partitions: every row once, the same for any layout, and the classes that each machine is to have."""

import hashlib

import numpy as np
import pytest
from helpers.property_tests import given
from helpers.sources import ArraySource, random_samples
from hypothesis import strategies as st

from mu2mpi.core.errors import InputError
from mu2mpi.data.partition import parse_partition
from mu2mpi.data.partitions.labels import shard_size

KEY = bytes(range(32))
PARTITIONS = ["iid", "contiguous", "sorted", "dirichlet:0.3", "dirichlet:50", "labels:1", "labels:2", "owner"]


def min_samples_per_machine(source, machines, partition):
    return parse_partition(partition).min_samples_per_machine(source, machines)


def partition_rows(source, partition, *others):
    rows = parse_partition(partition).rows(source, *others)
    return lambda places, machines: rows[places, machines]


class Owned(ArraySource):
    """Samples of which each has an owner."""

    has_owners = True
    owners: np.ndarray

    def training_owners(self):
        return self.owners


def make_source(seed, n, classes, owners):
    rng = np.random.default_rng(seed)
    training = random_samples(rng, n, 4, classes, np.uint8)
    # Classes of unequal size, but each is there.
    training.labels[classes:] = np.minimum(training.labels[classes:], rng.integers(0, classes, n - classes))
    training.labels[:classes] = np.arange(classes)
    source = Owned(training, random_samples(rng, 30, 4, classes, np.uint8), classes, 1 / 255)
    source.owners = np.append(np.arange(owners), rng.integers(0, owners, n - owners))
    return source


@given(
    st.sampled_from(PARTITIONS), st.integers(0, 2**31), st.integers(1, 9), st.integers(2, 5),
    st.binary(min_size=32, max_size=32), st.data(),
)  # fmt: skip
def test_rows_are_used_once_and_do_not_depend_on_the_layout(partition, seed, machines, classes, key, data):
    source = make_source(seed, 300, classes, machines)
    try:
        rounds = data.draw(st.integers(1, min_samples_per_machine(source, machines, partition)))
    except InputError:
        assert partition.startswith("labels")
        assert shard_size(source.class_sizes, machines * int(partition[-1])) == 0 or partition == "labels:2"
        return
    rows = partition_rows(source, partition, machines, rounds, key, range(machines))(*every(rounds, machines))
    assert rows.shape == (rounds, machines)
    assert len(np.unique(rows)) == rows.size
    assert rows.min() >= 0
    assert rows.max() < 300
    first = data.draw(st.integers(0, machines - 1))
    last = data.draw(st.integers(first, machines))
    part = partition_rows(source, partition, machines, rounds, key, range(first, last))
    np.testing.assert_array_equal(part(*every(rounds, last - first)), rows[:, first:last])


def every(rounds, machines):
    """Return the numbers of the first samples of some machines, and of these machines, round by round."""
    return np.arange(rounds)[:, np.newaxis], np.arange(machines)


def counts(source, partition, machines):
    rounds = min_samples_per_machine(source, machines, partition)
    rows = partition_rows(source, partition, machines, rounds, KEY, range(machines))(*every(rounds, machines))
    labels = source.training_labels()[rows]
    return np.stack([np.bincount(column, minlength=source.classes) for column in labels.T]), rows


def test_sorted_machines_have_neighbouring_classes():
    found, _ = counts(make_source(1, 3000, 5, 6), "sorted", 6)
    assert np.all(found.sum(axis=1) == 500)
    order = np.concatenate([np.repeat(np.arange(5), machine) for machine in found])
    assert np.all(np.diff(order) >= 0)


@pytest.mark.parametrize("labels", [1, 2, 3])
@pytest.mark.parametrize("machines", [1, 7, 40])
def test_a_machine_has_at_most_so_many_labels(labels, machines):
    source = make_source(2, 3000, 5, 1)
    if machines * labels < 5:
        # Shards of the largest class leave most samples unused, and are what was asked for.
        assert min_samples_per_machine(source, machines, f"labels:{labels}") <= 3000
    found, _ = counts(source, f"labels:{labels}", machines)
    assert np.all((found > 0).sum(axis=1) <= labels)
    assert np.all(found.sum(axis=1) == found.sum(axis=1)[0])
    assert found.sum() > 0.6 * 3000 or machines * labels < 20


def test_shards_are_as_large_as_can_be():
    for sizes in ([10, 10, 10], [1, 100, 7], [5, 5, 1]):
        for shards in (1, 2, 5, 11):
            size = shard_size(np.array(sizes), shards)
            fits = [s for s in range(1, 200) if sum(n // s for n in sizes) >= shards]
            assert size == max(fits, default=0)


def test_a_small_concentration_makes_machines_differ_and_a_large_one_does_not():
    source = make_source(3, 20_000, 5, 1)
    overall = source.class_sizes / 20_000
    distances = []
    for concentration in ("0.05", "1", "1000"):
        found, _ = counts(source, f"dirichlet:{concentration}", 20)
        assert np.all(found.sum(axis=1) == 1000)
        distances.append(np.abs(found / 1000 - overall).sum(axis=1).mean() / 2)
    assert distances[0] > 0.5 > distances[1] > 0.1 > distances[2]


@given(
    st.lists(st.integers(0, 60), min_size=2, max_size=6).filter(any), st.integers(1, 9),
    st.floats(1e-3, 1e3), st.integers(0, 2**31),
)  # fmt: skip
def test_shares_are_whole_and_never_more_than_there_is(sizes, machines, concentration, seed):
    sizes = np.array(sizes)
    each = int(sizes.sum()) // machines
    random = np.random.RandomState(seed)
    for partition in (f"dirichlet:{concentration}", "sorted"):
        shares = parse_partition(partition).class_counts(sizes, machines, each, random)
        assert shares.min() >= 0
        assert np.all(shares.sum(axis=1) == each)
        assert np.all(shares.sum(axis=0) <= sizes)


def test_proportions_of_the_first_machine_are_those_of_a_dirichlet_distribution():
    # With classes of equal size, each share has mean 1/4 and variance (1/4)(3/4)/(4 A + 1).
    sizes, trials, concentration = np.full(4, 10**6), 4000, 0.7
    random, dirichlet = np.random.RandomState(0), parse_partition(f"dirichlet:{concentration}")
    shares = np.array([dirichlet.class_counts(sizes, 1, 10_000, random)[0] for _ in range(trials)]) / 1e4
    variance = 0.25 * 0.75 / (4 * concentration + 1)
    # Five standard errors: a correct sampler fails for about one seed in a hundred thousand.
    assert np.abs(shares.mean(axis=0) - 0.25).max() < 5 * np.sqrt(variance / trials)
    np.testing.assert_allclose(shares.var(axis=0), variance, rtol=0.15)


def test_owners_are_machines():
    source = make_source(4, 500, 3, 6)
    _, rows = counts(source, "owner", 6)
    assert len(rows) == source.owner_sizes.min()
    for machine, column in enumerate(rows.T):
        assert np.all(source.owners[column] == machine)
    with pytest.raises(InputError, match="--machines must be 6"):
        min_samples_per_machine(source, 5, "owner")


@pytest.mark.parametrize("partition", ["sorted", "dirichlet:0.3", "labels:2", "owner"])
def test_a_machine_uses_its_samples_in_random_order(partition):
    source = make_source(6, 8000, 4, 4)
    rounds = min_samples_per_machine(source, 4, partition)
    rows = partition_rows(source, partition, 4, rounds, KEY, range(4))(*every(rounds, 4))
    labels, half = source.training_labels()[rows], rounds // 2
    for column in labels.T:
        early, late = (np.bincount(part, minlength=4) for part in (column[:half], column[half : 2 * half]))
        # Differences of hypergeometric counts: deviation at most sqrt(half / 2); five of them.
        assert np.abs(early - late).max() < 5 * np.sqrt(half / 2)


def test_the_partitions_are_the_same_for_ever():
    source = make_source(7, 1000, 5, 4)
    digest = hashlib.sha256()
    for partition in PARTITIONS:
        digest.update(counts(source, partition, 4)[1].astype("<i8").tobytes())
    assert digest.hexdigest()[:16] == "01d55bcd40029a09"


@pytest.mark.parametrize("partition", ["labels:6", "labels:3", "iid"])
def test_what_cannot_be_dealt(partition):
    with pytest.raises(InputError):
        min_samples_per_machine(make_source(8, 30, 3, 1), 31 if partition == "iid" else 25, partition)
