"""Trusted shuffler: it permutes the messages of all machines, so that the server cannot attribute them.

Messages are bits: a coordinate v from -V to V is sent as V + v ones and V - v zeros.
"""

import hashlib
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from mu2mpi.core.arrays import IntArray, UInt32Array
from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.registry import register
from mu2mpi.federation.servers.trusted import TrustedServer
from mu2mpi.federation.trust_mode import COLLUDING_SERVER_PHRASE, ColludersOptions, WithColluders

if TYPE_CHECKING:
    from mu2mpi.federation.machine import Machines
    from mu2mpi.federation.run_constants import RunConstants
    from mu2mpi.privacy.mechanisms.binomial_mechanism import BinomialMechanism

    NoiseBits = NDArray[np.uint8]
    Messages = UInt32Array  # twice the index of a coordinate, plus the bit

MAX_SHUFFLED_MESSAGES = 2**26  # largest number of messages per round, of all machines


class ShuffleOptions(ColludersOptions):
    """Options of the shuffler: the number of colluders, and whether messages are simulated one by one."""

    shuffle: Literal["sums", "messages"] = Field(
        "sums",
        description="simulation of the shuffler: sums alone, or messages one by one (tiny models only)",
    )


@register
class ShuffledServer(WithColluders, TrustedServer):
    """Shuffle model: machines send messages and noise as bits, which a shuffler permutes.

    It protects samples against the server, which sees the shuffled bits, and up to c colluding machines. It
    assumes that the shuffler permutes all messages of a round and does not collude with the server, and that
    the M - c other machines draw their noise bits. Cheu, Joseph, Mao and Peng, "Shuffle private stochastic
    convex optimization", 2022. Rank 0 simulates shuffler and server.
    """

    name = "shuffled"
    summary = "noise bits of every machine, permuted by a shuffler"
    options = ShuffleOptions
    mechanism = "binomial"
    adversary = f"Whoever sees everything that leaves the shuffler, {COLLUDING_SERVER_PHRASE}"
    trusted_parties = (
        "the shuffler, to conceal the senders of messages, and all machines but the colluders, to add their "
        "noise bits"
    )
    reveals_sums = True

    def set_up_rank(self) -> None:
        super().set_up_rank()
        self._bits_key, self._machines_in_sum = None, 0
        if self._key is not None and self._constants.problem.server_options.shuffle == "messages":
            self._bits_key = self._key.astype("<u4").tobytes()

    @classmethod
    def distributes_key(cls, options: Any) -> bool:
        return bool(options.shuffle == "messages")

    @classmethod
    def check_constants(cls, constants: "RunConstants") -> None:
        if constants.problem.server_options.shuffle != "messages":
            return
        mechanism: Any = constants.mechanism
        if (messages := mechanism.machines * mechanism.messages_per_round) > MAX_SHUFFLED_MESSAGES:
            raise InputError(
                f"--shuffle messages supports at most {MAX_SHUFFLED_MESSAGES:,} messages per round, got "
                f"{messages:.3g}. Use a smaller model, fewer --machines or --rounds, or --shuffle sums (with "
                "the same distribution)."
            )

    def _reduce_messages(self, t: int, machines: "Machines") -> IntArray | None:
        """Return the sum over machines on rank 0, noised if messages are simulated; None elsewhere."""
        if self._bits_key is None:
            return super()._reduce_messages(t, machines)
        mechanism: Any = self._constants.mechanism
        if self._machines_in_sum == 0:
            # After a resume, rank 0 holds the sum over all machines of the earlier rounds.
            holds_all, problem = t > 1 and self._communicator.rank == 0, self._constants.problem
            self._machines_in_sum = problem.machines if holds_all else len(self._hosted_machines)
        message_sum = machines.message_sum.ravel()
        messages = encode_messages(
            mechanism, self._bits_key, self._hosted_machines, t, message_sum, self._machines_in_sum
        )
        gathered = self._communicator.gather(messages)
        if gathered is None:
            return None
        shuffled = shuffle_messages(gathered, self._bits_key, t)
        return decode_sum(mechanism, shuffled).reshape(self._message_shape)

    def _noised_sum(self, t: int, message_sum: IntArray, machines: "Machines") -> IntArray:
        return super()._noised_sum(t, message_sum, machines) if self._bits_key is None else message_sum


def generate_noise_bits(mechanism: "BinomialMechanism", key: bytes, machine: int, t: int) -> "NoiseBits":
    """Return the random noise bits of a machine in round t, shape (d, fair bits per coordinate)."""
    d, fair_bits = mechanism.parameters, mechanism.fair_bits
    stream = hashlib.shake_256(key + b"coins" + f"{machine} {t}".encode())
    bits = np.unpackbits(np.frombuffer(stream.digest(-(-d * fair_bits // 8)), np.uint8))
    return bits[: d * fair_bits].reshape(d, fair_bits)


def encode_messages(
    mechanism: "BinomialMechanism",
    key: bytes,
    hosted_machines: range,
    t: int,
    message_sum: IntArray,
    summed_machines: int,
) -> "Messages":
    """Return the one-bit messages of a rank in round t, which encode its sum and its machines' noise bits.

    Their number depends on `summed_machines`, the number of machines in that sum, and not on data.
    """
    zeros = np.arange(mechanism.parameters, dtype=np.uint32) * np.uint32(2)
    bound = summed_machines * mechanism.max_message_coordinate
    messages = [np.repeat(zeros + np.uint32(1), bound + message_sum), np.repeat(zeros, bound - message_sum)]
    for machine in hosted_machines:
        messages.append((generate_noise_bits(mechanism, key, machine, t) + zeros[:, np.newaxis]).ravel())
    return np.concatenate(messages)


def shuffle_messages(gathered: "list[Messages]", key: bytes, t: int) -> "Messages":
    """Return the messages of all ranks in random order, which does not depend on their content."""
    seed = hashlib.blake2b(f"order {t}".encode(), key=key, digest_size=32).digest()
    return np.random.default_rng(list(seed)).permutation(np.concatenate(gathered))


def decode_sum(mechanism: "BinomialMechanism", messages: "Messages") -> IntArray:
    """Return the noised sum decoded from shuffled bits, (ones - zeros) / 2 per coordinate: shape (d,)."""
    counts = np.bincount(messages, minlength=2 * mechanism.parameters).reshape(-1, 2)
    sums: IntArray = (counts[:, 1] - counts[:, 0]) // 2
    return sums
