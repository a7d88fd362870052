"""Numbers of machines and rounds for which random streams may coincide if they are cut to fewer bits."""

from mu2mpi.privacy.noise import MAX_NUMBER


def boundary_numbers(consecutive: int, lowest_bit: int) -> list[int]:
    """Numbers below 2^32 - 1: 0 .. consecutive - 1, and those next to powers of two from 2^lowest_bit on.

    A number cut to k bits, or rounded to a mantissa of k bits, coincides with another of the list.
    """
    boundaries = {2**bit + step for bit in range(lowest_bit, 32) for step in (-1, 0, 1)}
    return sorted({*range(consecutive), *boundaries, MAX_NUMBER - 1})
