"""One self-contained page of everything that a folder of results says: HTML with its style sheet."""

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
    data = ", ".join(sorted({run.experiment.data for run in kept}))
    theory = sections.theory(once)
    links = [(name, name.lower().replace(" ", "-")) for name in LINKS if theory or name != "Theory"]
    page, style = (files(__name__).joinpath(f"report.{kind}").read_text("utf-8") for kind in ("html", "css"))
    template = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(page)
    text: str = template.render(
        title=f"DP-μ²-FL on {data}: {len(once):,} run{'s' if len(once) > 1 else ''}",
        once=f"{len(once):,}",
        version=__version__,
        style=needed("markupsafe").Markup(style),
        links=links,
        remarks=[*skipped, *notes],
        theory=theory,
        **sections.what_was_run(kept),
        **sections.results(once),
        **sections.figures(kept),
        **sections.privacy(once, runs),
        config=sections.as_config(once),
        unseeded=any(run.experiment.seed is None for run in once),
    )
    return text.lstrip()
