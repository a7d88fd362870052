"""Attacks on the random streams of real messages: noise, samples and masks of any machine and round."""

from mu2mpi.audit.check import Check
from mu2mpi.audit.mask_graph import check_mask_graph
from mu2mpi.audit.mask_streams import check_mask_streams
from mu2mpi.audit.noise_streams import check_noise_streams, check_sample_streams
from mu2mpi.audit.runs import hides_parts
from mu2mpi.federation.schedule import Schedule


def check_streams(audited: Schedule, root: bytes, risk: float) -> list[Check]:
    """Attack every kind of random stream that the audited runs use.

    Parameters
    ----------
    audited : Schedule
        Constants of the audited runs.
    root : bytes
        Secret of 32 bytes from which all keys follow.
    risk : float
        Largest probability of a complaint about faultless code.
    """
    checks = [check_noise_streams(audited.server, root, risk / 3, audited.mechanism.correlation)]
    if audited.sampling.chance:
        checks.append(check_sample_streams(audited.sampling.chance, root))
    if hides_parts(audited) and audited.trust.shows_messages:
        checks += [check_mask_streams(audited, root, risk / 3), check_mask_graph(audited, root, risk / 3)]
    return checks
