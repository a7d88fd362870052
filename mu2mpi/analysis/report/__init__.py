"""Self-contained HTML report of results: settings, tables, figures, privacy and theory."""

import base64
import html
import math
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import tomli_w

from mu2mpi._version import __version__
from mu2mpi.analysis import setting_labels
from mu2mpi.analysis.aggregation import TableLayout
from mu2mpi.analysis.description import PRIVATE_TEST_WARNING, privacy_summary, trust_statement
from mu2mpi.analysis.figures import draw_figure, get_figure, render_figure
from mu2mpi.analysis.pivot import align_column, pivot_tables
from mu2mpi.analysis.privacy_reports import describe_composition
from mu2mpi.analysis.setting_labels import Labels, drop_repeated_runs
from mu2mpi.analysis.tables import build_table
from mu2mpi.config.experiment_options import option_fields
from mu2mpi.core.errors import InputError, import_extra
from mu2mpi.core.registry import component_summary, known_names
from mu2mpi.core.text import warn
from mu2mpi.core.toml import parse_toml
from mu2mpi.results.reader import RunSummary

THEORY_VALUES = ("minimum_loss", "excess_loss", "excess_loss_bound")
# Name, SVG image and caption of each figure, and a message on each that failed
RenderedFigures = tuple[list[tuple[str, bytes, str]], list[str]]


def build_report(
    runs: Sequence[RunSummary], skipped: Sequence[str] = (), figures: RenderedFigures | None = None
) -> str:
    """Return a report on runs as one HTML page.

    `skipped` lists result files that could not be read, and `figures` are those of `render_figures`, if they
    exist already.
    """
    jinja2 = import_extra("jinja2")
    for run in runs:  # A damaged file is an error, and no figure is left out for it.
        _ = run.history, run.contents
    kept, notes = drop_repeated_runs(runs, "ranks", "elapsed_seconds")
    distinct_runs, _ = drop_repeated_runs(kept)
    noisy = [run for run in distinct_runs if math.isfinite(run.experiment.rho)]
    images, failures = figures or render_figures(kept)
    table = build_table(distinct_runs)
    known = [run for run in distinct_runs if "excess_loss" in run.measurements]
    layout = TableLayout(values=THEORY_VALUES)
    theory = pivot_tables(build_table(known, layout).sections, Labels()) if known else []
    statements = [run.contents.privacy for run in noisy]
    servers = dict.fromkeys(trust_statement(privacy.server) for privacy in statements)
    adversaries = {f"{each.adversary.rstrip(',')} ({each.server} server)" for each in statements}
    private_runs = [run for run in noisy if run.experiment.has_unprotected_test_set]
    is_test_set_private = any(not math.isnan(run.test_loss) for run in private_runs)
    composed = [
        f"Several runs: {re.sub('(rho|epsilon|delta)(?= = )', lambda name: Labels().name(name[0]), sentence)}"
        for sentence in describe_composition(run.contents for run in runs)
    ]
    page, style = (files(__name__).joinpath(f"report.{kind}").read_text("utf-8") for kind in ("html", "css"))
    template = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(page)
    text: str = template.render(
        version=__version__,
        style=import_extra("markupsafe").Markup(style),
        files=kept,
        runs=distinct_runs,
        noisy=noisy,
        settings=settings_table(kept),
        skipped=[*skipped, *notes],
        tables=pivot_tables(table.sections, Labels()),
        theory=theory,
        # A figure space is as wide as a digit.
        align_column=lambda column: [text.replace(" ", "\u2007") for text in align_column(column)],
        notes=table.notes,
        figures=[(base64.b64encode(svg).decode(), text, _html_caption(text)) for _, svg, text in images],
        failed_figures=failures,
        adversaries=sorted(adversaries),
        # Concerns are listed below.
        claims=sorted({privacy_summary(privacy).partition("; but ")[0] for privacy in statements}),
        not_covered=[*composed, *filter(None, servers), *[PRIVATE_TEST_WARNING] * is_test_set_private],
        config=repeat_config(distinct_runs),
    )
    return text.lstrip()


def repeat_config(runs: Sequence[RunSummary]) -> str:
    """Return TOML of an experiment, or of a sweep with a part per run, that repeats runs."""
    rows = [parse_toml(run.experiment.to_toml(), str(run.path)) for run in runs]
    shared = {n: value for n, value in rows[0].items() if all(row.get(n) == value for row in rows)}
    parts = [{n: value for n, value in row.items() if n not in shared} for row in rows]
    distinct = [part for k, part in enumerate(parts) if part not in parts[:k]]
    return tomli_w.dumps(shared | ({"part": distinct} if distinct[1:] else {})).strip()


def settings_table(runs: Sequence[RunSummary]) -> list[list[str]]:
    """Return table rows with name, values and description of each setting that any run has."""
    rows, labels = [], Labels()
    for name in option_fields():
        # Computed values are included if any run gives the setting.
        if any(run.independent_settings[name] is not None for run in runs):
            groups = setting_labels.group_by_settings(runs, [name])
            values = (labels.table_value(name, value) for (value,) in groups)
            fields = filter(None, (run.experiment.declarations.get(name) for run in runs))
            texts = (re.split(r"[:;,\[]", field.title or str(field.description))[0] for field in fields)
            rows.append([name, ", ".join(values), "; or ".join(dict.fromkeys(map(str.strip, texts)))])
    return rows


def render_figures(runs: Sequence[RunSummary]) -> RenderedFigures:
    """Render the figures of a report, and warn of those that fail."""
    figures, failures = [], []
    for name in known_names("figures"):
        figure, meaning = get_figure(name), component_summary("figures", name)
        try:
            if not figure.is_in_report(runs):
                continue
            svg = render_figure(draw_figure(name, runs), "svg")
        except InputError:
            continue
        except Exception as error:  # A figure may be an extension, and must not cost the report.
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            failures.append(f"the figure {name} cannot be drawn ({reason}). See: mu2mpi plot {name}")
            continue
        figures.append((name, svg, f"{meaning}."))
    warn(*failures)
    return figures, failures


def _html_caption(text: str) -> Any:
    """Return a caption as HTML, with formulas such as R^2 and x_T."""
    caption = re.sub(r"\b(\w)\^(\w)", r"<i>\1</i><sup>\2</sup>", html.escape(text))
    caption = re.sub(r"\b([a-z])_(\w)", r"<i>\1</i><sub>\2</sub>", caption)
    return import_extra("markupsafe").Markup(caption)
