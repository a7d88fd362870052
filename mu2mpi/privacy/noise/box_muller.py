"""Box-Muller transform from random 64-bit words to pairs of normals, with proven error bounds.

A pair has squared radius -2 log u and a uniform angle. Both u and 1 - u keep full *relative* precision: with
a fixed absolute spacing of u, the rare large radii would lie on circles that messages resolve. Error bounds:
docs/background/sampler.md.
"""

import numpy as np
from numba import int64, uint64

from mu2mpi.core.kernels import bits_to_float, float_to_bits, inline

_UNIFORM_SPACING = 2.0**-64  # of u = word 2^-64, also close to 1
# Significant bits of u: smaller words, below 2^44, are extended by further words of the keystream.
MIN_UNIFORM_BITS = 44

# Bit patterns of floats; the last makes mantissas lie in [sqrt(1/2), sqrt 2) instead of [1, 2).
_ONE_BITS, _TWO_52_BITS, _SQRT_HALF_BITS = np.array([1.0, 2.0**52, np.sqrt(0.5)]).view(np.int64).tolist()
_SIGN_MASK, _MANTISSA_MASK = -(2**63), 2**52 - 1
_MINUS_2_LOG_2 = -2 * float(np.log(2.0))


@inline
def split_float(value, exponent_shift):  # type: ignore[no-untyped-def]
    """Split a float exactly: (e, v) with value 2^-shift = (1 + v) 2^e and 1 + v in [sqrt(1/2), sqrt 2)."""
    bits = float_to_bits(value) + int64(_ONE_BITS - _SQRT_HALF_BITS)
    # Converts without the vector instruction from int64 to float, which not every processor has.
    e = bits_to_float((bits >> int64(52)) | int64(_TWO_52_BITS)) - (2.0**52 + 1023 + exponent_shift)
    return e, bits_to_float((bits & int64(_MANTISSA_MASK)) + int64(_SQRT_HALF_BITS)) - 1.0


@inline
def exponent_and_fraction(uniform_bits):  # type: ignore[no-untyped-def]
    """Split a uniform u = word 2^-64 into (e, v) with u = (1 + v) 2^e, to 53 bits of u, or near 1, of v."""
    e, v = split_float(np.float64(uniform_bits), 64.0)
    return e, (np.float64(~uniform_bits) * -_UNIFORM_SPACING if e == 0.0 else v)


@inline
def squared_radius(exponent, fraction):  # type: ignore[no-untyped-def]
    """Compute -2 log u of u = (1 + fraction) 2^exponent, to a relative error of 11.2 times 2^-53."""
    # -2 log(1 + v) is v times a Chebyshev interpolant of degree 18, split into even and odd terms.
    z = fraction * fraction
    even, odd = -0.05982942874122316, 0.13212754548583402
    even, odd = even * z - 0.14184024181418356, odd * z + 0.12678532454372102
    even, odd = even * z - 0.129467537653424, odd * z + 0.1420484408414138
    even, odd = even * z - 0.1541469564801179, odd * z + 0.16675621220086662
    even, odd = even * z - 0.1818057317036328, odd * z + 0.1999950971999177
    even, odd = even * z - 0.22222248541023526, odd * z + 0.2500001450658876
    even, odd = even * z - 0.2857142834715619, odd * z + 0.3333333310978924
    even, odd = even * z - 0.39999999999818636, odd * z + 0.5000000000153912
    even, odd = even * z - 0.6666666666667435, odd * z + 0.999999999999969
    even = even * z - 2.0
    return exponent * _MINUS_2_LOG_2 + fraction * (odd * fraction + even)


@inline
def _cos_and_sin(f):  # type: ignore[no-untyped-def]
    """Compute cos and sin of f pi / 2, |f| <= 1/2, with errors of at most 2^-52.6 and 2^-54."""
    z = f * f
    c, s = 4.6552961874867621506e-7, 5.6339337815378539538e-8
    c, s = c * z - 0.000025200135264284791372, s * z - 3.598643352982309702e-6
    c, s = c * z + 0.00091925995004166091679, s * z + 0.00016044115074219091052
    c, s = c * z - 0.020863480734946568947, s * z - 0.0046817541323409759917
    c, s = c * z + 0.2536695078998647314, s * z + 0.079692626246043003134
    c, s = c * z - 1.2337005501361513411, s * z - 0.64596409750624431573
    return c * z + 1.0, (s * z + 1.5707963267948966143) * f


@inline
def normal_pair(radius_squared, uniform_bits):  # type: ignore[no-untyped-def]
    """Compute two standard normals from a squared radius and a random 64-bit word, which gives the angle."""
    f = np.float64(int64(uniform_bits)) * 2.0**-64
    sign = int64(uniform_bits << uint64(62)) & int64(_SIGN_MASK)
    radius = bits_to_float(float_to_bits(np.sqrt(radius_squared)) ^ sign)
    cosine, sine = _cos_and_sin(f)
    cosine, sine = radius * cosine, radius * sine
    swap = (uniform_bits & uint64(1)) != uint64(0)
    return (sine if swap else cosine), (cosine if swap else sine)
