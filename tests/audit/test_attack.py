"""Attacks: found by listing their folder."""

from mu2mpi.audit.attack import all_attacks


def test_attacks_are_found_by_listing_their_folder():
    names = [type(attack).__name__ for attack in all_attacks()]
    assert names == ["Draws", "MaskedMessages", "Multiplier", "Noise"]
