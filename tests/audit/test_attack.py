"""Attacks: found by listing their folder."""

from mu2mpi.audit.adversary_view import all_attacks


def test_attacks_are_found_by_listing_their_folder():
    names = [attack.__name__.rpartition(".")[2] for attack in all_attacks()]
    assert names == ["mask_attack", "multiplier_attack", "seed_attack"]
