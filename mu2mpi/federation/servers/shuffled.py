"""Trusted shuffler: it mixes the messages of all machines, so that the server cannot tell whose is which.

Messages are bits: a value v from -V to V is V + v ones and V - v zeros.
"""

import hashlib
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.registry import register
from mu2mpi.federation.servers.server import Integers
from mu2mpi.federation.servers.trusted import TrustedServer
from mu2mpi.federation.trust_mode import ColludersOptions, WithColluders

if TYPE_CHECKING:
    from mu2mpi.federation.machine import Machines
    from mu2mpi.federation.run_constants import RunConstants
    from mu2mpi.privacy.mechanisms.binomial_mechanism import BinomialReleases

    Messages = NDArray[np.uint32]  # twice the number of a coordinate, plus the bit

MOST_MESSAGES = 2**26  # of all machines in a round


class ShuffleOptions(ColludersOptions):
    """What is simulated."""

    shuffle: Literal["sums", "messages"] = Field(
        "sums",
        description="what is simulated: the sums, which are all that a shuffler lets through, or messages "
        "one by one, for tiny models only",
    )


@register
class ShuffledServer(WithColluders, TrustedServer):
    """Each machine sends bits, of values and of coins, and a shuffler mixes those of all.

    It protects samples against the server, which sees the shuffled bits, and up to c machines that tell it
    theirs. It assumes that the shuffler mixes all messages of a round, does not work together with the
    server, and that the M - c other machines throw their coins. Cheu, Joseph, Mao and Peng, "Shuffle private
    stochastic convex optimization", 2022. Rank 0 stands for shuffler and server.
    """

    name = "shuffled"
    summary = "every machine its coins, which a shuffler mixes with those of all"
    options = ShuffleOptions
    mechanism = "binomial"
    sees = (
        "Whoever sees everything that leaves the shuffler, be it the server with {colluders} machines that "
        "work together with it,"
    )
    trusts = (
        "the shuffler, to tell nobody whose message is whose, and all machines but those that may work "
        "together with the server, to throw their coins"
    )
    shows_sums = True

    def prepare(self) -> None:
        """Make the arrays and the noise sources of this rank."""
        super().prepare()
        self._coins_key, self._summed = None, 0
        if self._key is not None and self._constants.task.server_options.shuffle == "messages":
            self._coins_key = self._key.astype("<u4").tobytes()

    @classmethod
    def gives_key(cls, options: Any) -> bool:
        """Return whether ranks other than the first need the noise key: they throw coins one by one."""
        return bool(options.shuffle == "messages")

    @classmethod
    def check(cls, constants: "RunConstants") -> None:
        """Raise InputError if there are too many messages to make them one by one."""
        if constants.task.server_options.shuffle != "messages":
            return
        mechanism: Any = constants.mechanism
        if (number := mechanism.machines * mechanism.messages) > MOST_MESSAGES:
            raise InputError(
                f"shuffle = messages would make {number:.3g} messages in each round, and {MOST_MESSAGES:,} "
                "are the most; take a smaller model, fewer machines or rounds, or leave it out, which has "
                "the same distribution"
            )

    def _collected(self, t: int, machines: "Machines") -> "Integers | None":
        """Return the sum over all ranks on rank 0: without noise, or of mixed messages with it."""
        if self._coins_key is None:
            return super()._collected(t, machines)
        mechanism: Any = self._constants.mechanism
        if self._summed == 0:
            # In a run that was resumed, rank 0 holds what all machines had sent before.
            holds_all = t > 1 and self._communicator.rank == 0
            self._summed = self._constants.task.machines if holds_all else len(self._hosted)
        mine = make_messages(mechanism, self._coins_key, self._hosted, t, machines.q.ravel(), self._summed)
        everyones = self._communicator.gather(mine)
        if everyones is None:
            return None
        return count(mechanism, mixed(everyones, self._coins_key, t)).reshape(machines.q.shape)

    def _hidden(self, t: int, total: Integers, machines: "Machines") -> Integers:
        """Return the sum with noise."""
        return super()._hidden(t, total, machines) if self._coins_key is None else total


def throw_coins(mechanism: "BinomialReleases", key: bytes, machine: int, t: int) -> "NDArray[np.uint8]":
    """Return the coins of a machine in round t, shape (d, coins)."""
    d, coins = mechanism.parameters, mechanism.coins
    stream = hashlib.shake_256(key + b"coins" + f"{machine} {t}".encode())
    bits = np.unpackbits(np.frombuffer(stream.digest(-(-d * coins // 8)), np.uint8))
    return bits[: d * coins].reshape(d, coins)


def make_messages(
    mechanism: "BinomialReleases", key: bytes, hosted: range, t: int, q: Integers, summed: int
) -> "Messages":
    """Return the messages of a rank in round t: its values as bits, and the coins of its machines.

    Their number, which anybody sees, depends on how many machines may be summed up in q, not on data.
    """
    coordinates = np.arange(mechanism.parameters, dtype=np.uint32) * np.uint32(2)
    most = summed * mechanism.values
    sent = [np.repeat(coordinates + np.uint32(1), most + q), np.repeat(coordinates, most - q)]
    for machine in hosted:
        sent.append((throw_coins(mechanism, key, machine, t) + coordinates[:, np.newaxis]).ravel())
    return np.concatenate(sent)


def mixed(everyones: "list[Messages]", key: bytes, t: int) -> "Messages":
    """Return the messages of all ranks in a random order, which knows nothing of what they are."""
    seed = hashlib.blake2b(f"order {t}".encode(), key=key, digest_size=32).digest()
    return np.random.default_rng(list(seed)).permutation(np.concatenate(everyones))


def count(mechanism: "BinomialReleases", messages: "Messages") -> Integers:
    """Return what the server makes of messages: the noised sum, half of ones less zeros, shape (d,)."""
    counts = np.bincount(messages, minlength=2 * mechanism.parameters).reshape(-1, 2)
    sums: Integers = (counts[:, 1] - counts[:, 0]) // 2
    return sums
