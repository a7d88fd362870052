"""How to cite: the paper and the software, as BibTeX. CITATION.cff says the same."""

from mu2mpi._version import __version__

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
