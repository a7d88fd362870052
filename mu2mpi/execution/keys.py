"""What of a run's randomness each rank holds."""

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mu2mpi.config.experiment import Experiment
from mu2mpi.config.identity import sent
from mu2mpi.parallel import Communicator
from mu2mpi.privacy.noise import derive_key, key_words, root_key


@dataclass(frozen=True)
class Keys:
    """What of a run's randomness this rank holds."""

    root: bytes | None  # what the others follow from; known to rank 0 alone
    dealing: bytes  # decides which machine gets which samples
    sampling: bytes  # decides, where it is random, which of them it uses when
    # Eight words, known to every rank if the machines draw the noise, and to rank 0 alone if the server does.
    noise: NDArray[np.uint32] | None

    @staticmethod
    def noise_key(root: bytes, experiment: Experiment, context: str = "") -> bytes:
        """Return the key of the noise of a completed experiment, in its context as of a `Plan`.

        It depends on every setting that changes what is sent, and not on what samples hold. If runs with the
        same secret seed and, say, different rho drew the same normals, a difference of their messages would
        hold no noise. So it would if a schema of the same name declared other ranges, or a file gave machines
        other budgets.
        """
        return derive_key(root, "noise", sent(experiment).to_toml() + context)

    @classmethod
    def draw(
        cls,
        experiment: Experiment,
        communicator: Communicator,
        root: bytes | None = None,
        context: str = "",
    ) -> "Keys":
        """Make the keys of a completed experiment on rank 0, and give the other ranks those that they need.

        Rank 0 may have the root of a run that goes on. By default it is that of the seed, or without a seed
        a new one from the operating system's secure generator.
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
