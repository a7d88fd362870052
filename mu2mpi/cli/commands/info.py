"""Print versions, the MPI library, ranks, hosts and folders.

Under mpirun it tells whether the ranks find each other. Put its output into a bug report.
"""

from argparse import ArgumentParser, Namespace

from mu2mpi._version import __version__
from mu2mpi.cli.shared import add_flag

# What CITATION.cff says
BIBTEX = f"""\
@inproceedings{{reshef2024private,
  author        = {{Reshef, Roie and Levy, Kfir Yehuda}},
  title         = {{{{Private and Federated Stochastic Convex Optimization: Efficient Strategies for Centralized Systems}}}},
  booktitle     = {{Proceedings of the 41st International Conference on Machine Learning}},
  series        = {{Proceedings of Machine Learning Research}},
  volume        = {{235}},
  publisher     = {{PMLR}},
  year          = {{2024}},
  eprint        = {{2407.12396}},
  archiveprefix = {{arXiv}},
  url           = {{https://arxiv.org/abs/2407.12396}},
}}

@misc{{mu2mpi,
  author        = {{{{The mu2mpi developers}}}},
  title         = {{{{mu2mpi: differentially private federated stochastic convex optimisation over MPI}}}},
  note          = {{Software, version {__version__}}},
}}"""  # noqa: E501


def add_arguments(parser: ArgumentParser) -> None:
    add_flag(parser, "--cite", "print instead how to cite the paper and this version of mu2mpi, as BibTeX")


def execute(arguments: Namespace) -> None:
    from mu2mpi.core.parallel import world

    communicator, lines = world(), [BIBTEX]
    if not arguments.cite:
        from mu2mpi.execution.environment import describe, folders

        facts = {**describe(communicator), **folders()}
        lines = [f"{name:22} {value}" for name, value in facts.items()]
    if communicator.rank == 0:
        print("\n".join(lines))
