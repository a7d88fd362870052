"""How to cite: the paper and the software, as BibTeX. CITATION.cff says the same."""

from mu2mpi._version import __version__

Entry = tuple[str, str, dict[str, str]]

PAPER: Entry = (
    "inproceedings",
    "reshef2024private",
    {
        "author": "Reshef, Roie and Levy, Kfir Yehuda",
        "title": "{Private and Federated Stochastic Convex Optimization: Efficient Strategies for "
        "Centralized Systems}",
        "booktitle": "Proceedings of the 41st International Conference on Machine Learning",
        "series": "Proceedings of Machine Learning Research",
        "volume": "235",
        "publisher": "PMLR",
        "year": "2024",
        "eprint": "2407.12396",
        "archiveprefix": "arXiv",
        "url": "https://arxiv.org/abs/2407.12396",
    },
)

SOFTWARE: Entry = (
    "misc",
    "mu2mpi",
    {
        "author": "{The mu2mpi developers}",
        "title": "{mu2mpi: differentially private federated stochastic convex optimisation over MPI}",
        "note": f"Software, version {__version__}",
    },
)


def bibtex() -> str:
    """Return the entries of the paper and of this version of the software."""
    return "\n\n".join(map(_entry, (PAPER, SOFTWARE)))


def _entry(entry: Entry) -> str:
    kind, key, fields = entry
    lines = (f"  {name:13} = {{{value}}},\n" for name, value in fields.items())
    return f"@{kind}{{{key},\n{''.join(lines)}}}"
