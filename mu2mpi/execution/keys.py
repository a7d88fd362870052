"""What of a run's randomness each rank holds."""

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mu2mpi.config.experiment import Experiment
from mu2mpi.config.identity import sent
from mu2mpi.core.parallel import Communicator
from mu2mpi.privacy.noise.stream import derive_key, key_words, root_key


@dataclass(frozen=True)
class Keys:
    """What of a run's randomness this rank holds."""

    root: bytes | None  # of all others; known to rank 0 alone
    dealing: bytes  # of the partition
    sampling: bytes  # of random batches
    noise: NDArray[np.uint32] | None  # eight words; None where rank 0 alone may know them

    @staticmethod
    def noise_key(root: bytes, experiment: Experiment, context: str = "") -> bytes:
        """Return the key of the noise of a completed experiment, in its context as of a `Plan`.

        It depends on all that changes what is sent but for the samples: a difference of messages of two runs
        with one secret seed and, say, different rho or budgets must not be without noise.
        """
        return derive_key(root, "noise", sent(experiment).to_toml() + context)

    @classmethod
    def draw(
        cls, experiment: Experiment, communicator: Communicator, root: bytes | None = None, context: str = ""
    ) -> "Keys":
        """Make the keys of a completed experiment on rank 0, and give the other ranks those that they need.

        The root is that of a run that goes on, of the seed, or of the operating system's secure generator.
        """
        noise = choices = None
        if communicator.rank == 0:
            if root is None:
                root = os.urandom(32) if experiment.seed is None else root_key(experiment.seed)
            noise = cls.noise_key(root, experiment, context)
            choices = derive_key(root, "dealing"), derive_key(noise, "sampling")
        dealing, sampling = communicator.share(choices)
        if experiment.trust.gives_key(experiment.server_options):
            noise = communicator.share(noise)
        return cls(root, dealing, sampling, key_words(noise) if noise else None)
