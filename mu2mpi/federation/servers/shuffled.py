"""Trusted shuffler: it permutes the messages of all machines, so that the server cannot attribute them.

Messages are bits: a coordinate v from -V to V is sent as V + v ones and V - v zeros.
"""

from mu2mpi.core.registry import register
from mu2mpi.federation.servers.trusted import TrustedServer
from mu2mpi.federation.trust_mode import COLLUDING_SERVER_PHRASE, WithColluders


@register
class ShuffledServer(WithColluders, TrustedServer):
    """Shuffle model: machines send messages and noise as bits, which a shuffler permutes.

    It protects samples against the server, which sees the shuffled bits, and up to c colluding machines. It
    assumes that the shuffler permutes all messages of a round and does not collude with the server, and that
    the M - c other machines draw their noise bits. Cheu, Joseph, Mao and Peng, "Shuffle private stochastic
    convex optimization", 2022. Rank 0 simulates shuffler and server: it adds the sum of all noise bits at
    once to the sum of messages, as shuffled bits contain no more information than the number of ones.
    """

    name = "shuffled"
    summary = "noise bits of every machine, permuted by a shuffler"
    mechanism = "binomial"
    adversary = f"Whoever sees everything that leaves the shuffler, {COLLUDING_SERVER_PHRASE}"
    trusted_parties = (
        "the shuffler, to conceal the senders of messages, and all machines but the colluders, to add their "
        "noise bits"
    )
    reveals_sums = True
