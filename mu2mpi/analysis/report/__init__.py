"""One self-contained page of everything that a folder of results says: HTML with its style sheet."""

from collections.abc import Sequence
from importlib.resources import files

from mu2mpi._version import __version__
from mu2mpi.analysis.catalogue import TIMES
from mu2mpi.analysis.cells import without_repeats
from mu2mpi.analysis.report.markup import escaped, section
from mu2mpi.analysis.report.repetition import repeat
from mu2mpi.analysis.report.sections import figures, privacy, results, theory, what_was_run
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary


def build_report(runs: Sequence[Summary], skipped: Sequence[str] = ()) -> str:
    """Return a page of HTML that needs nothing else: no network, no other file, no script.

    A result that is there twice counts once. What was `skipped`, as these messages say, the page names.
    """
    kept, notes = without_repeats(runs, "ranks", TIMES[0])
    if not kept:
        raise InputError("there are no results to report on")
    once, _ = without_repeats(kept)
    sections = {
        "What was run": what_was_run(kept, [*skipped, *notes]),
        "Results": results(once),
        "Figures": figures(kept),
        "Privacy": privacy(once, runs),
        "Theory": theory(once),
        "How to repeat it": repeat(kept),
    }
    anchors = {title: title.lower().replace(" ", "-") for title, body in sections.items() if body}
    data = ", ".join(sorted({run.experiment.data for run in kept}))
    title = escaped(f"DP-μ²-FL on {data}: {len(once):,} run{'s' if len(once) > 1 else ''}")
    folder = files(__name__)
    page, style = (folder.joinpath(f"report.{kind}").read_text("utf-8") for kind in ("html", "css"))
    return page.format(
        title=title,
        style=style,
        version=__version__,
        links="".join(f'<a href="#{anchor}">{title}</a>' for title, anchor in anchors.items()),
        sections="\n".join(section(title, anchor, sections[title]) for title, anchor in anchors.items()),
    )
