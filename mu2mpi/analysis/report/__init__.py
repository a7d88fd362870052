"""One self-contained page of everything that a folder of results says: HTML with its style sheet."""

import importlib.resources
from collections.abc import Sequence

from mu2mpi._version import __version__
from mu2mpi.analysis.cells import Layout, without_repeats
from mu2mpi.analysis.report.markup import escaped, section
from mu2mpi.analysis.report.sections import figures, privacy, repeat, results, theory, what_was_run
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary

PAGE = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
{style}</style></head>
<body>
<header><h1>{title}</h1>
<p class="soft">Made by mu2mpi {version} from result files alone.</p>
<nav>{links}</nav></header>
<main>
{sections}
</main>
</body></html>
"""


def build_report(runs: Sequence[Summary], skipped: Sequence[str] = ()) -> str:
    """Return a page of HTML that needs nothing else: no network, no other file, no script.

    Parameters
    ----------
    runs : sequence of Summary
        Results; one that is there twice counts once.
    skipped : sequence of str, optional
        Messages of files that could not be used, which the page names.
    """
    kept, notes = without_repeats(runs, by_ranks=True)
    if not kept:
        raise InputError("there are no results to report on")
    once, _ = without_repeats(kept)
    sections = {
        "What was run": what_was_run(kept, [*skipped, *notes]),
        "Results": results(once, Layout()),
        "Figures": figures(kept),
        "Privacy": privacy(once, runs),
        "Theory": theory(once),
        "How to repeat it": repeat(kept),
    }
    present = {title: body for title, body in sections.items() if body}
    anchors = {title: title.lower().replace(" ", "-") for title in present}
    data = ", ".join(sorted({run.experiment.data for run in kept}))
    title = escaped(f"DP-μ²-FL on {data}: {len(once):,} run{'s' if len(once) > 1 else ''}")
    style = importlib.resources.files(__name__).joinpath("report.css").read_text("utf-8")
    return PAGE.format(
        title=title,
        style=style,
        version=__version__,
        links="".join(f'<a href="#{anchor}">{title}</a>' for title, anchor in anchors.items()),
        sections="\n".join(section(title, anchors[title], body) for title, body in present.items()),
    )
