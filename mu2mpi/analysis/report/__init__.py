"""One self-contained page of everything that a folder of results says: HTML with its style sheet."""

import math
from collections.abc import Sequence
from importlib.resources import files

from mu2mpi._version import __version__
from mu2mpi.analysis.report import sections
from mu2mpi.analysis.settings import without_repeats
from mu2mpi.errors import InputError
from mu2mpi.extra import needed
from mu2mpi.results.reader import Summary

LINKS = ("What was run", "Results", "Figures", "Privacy", "Theory", "How to repeat it")


def build_report(runs: Sequence[Summary], skipped: Sequence[str] = ()) -> str:
    """Return a page of HTML that needs nothing else: no network, no other file, no script.

    A result that is there twice counts once. The page names what was `skipped`, as these messages say.
    """
    jinja2 = needed("jinja2")
    kept, notes = without_repeats(runs, "ranks", "elapsed_seconds")
    if not kept:
        raise InputError("there are no results to report on")
    once, _ = without_repeats(kept)
    theory = sections.theory(once)
    noisy = [run for run in once if math.isfinite(run.experiment.rho)]
    tables, remarks = sections.tables(once)
    page, style = (files(__name__).joinpath(f"report.{kind}").read_text("utf-8") for kind in ("html", "css"))
    template = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(page)
    text: str = template.render(
        version=__version__,
        style=needed("markupsafe").Markup(style),
        data=sorted({run.experiment.data for run in kept}),
        links=[name for name in LINKS if theory or name != "Theory"],
        files=kept,
        runs=once,
        noisy=noisy,
        settings=sections.settings_of_all(kept),
        environments=sections.environments(kept),
        skipped=[*skipped, *notes],
        tables=tables,
        remarks=remarks,
        figures=sections.figures(kept),
        seen=sections.who_sees(noisy),
        claims=sections.claims(noisy),
        not_covered=sections.not_covered(noisy, runs) if noisy else [],
        theory=theory,
        config=sections.as_config(once),
    )
    return text.lstrip()
