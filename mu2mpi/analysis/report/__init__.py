"""One self-contained page of everything that a folder of results says: HTML with its style sheet."""

import base64
import html
import math
import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import tomli_w

from mu2mpi._version import __version__
from mu2mpi.analysis.aggregation import Layout
from mu2mpi.analysis.description import TEST_SHARE, in_numbers, trusted
from mu2mpi.analysis.figures import draw, find_figure, image
from mu2mpi.analysis.pivot import aligned, grids
from mu2mpi.analysis.privacy_reports import together
from mu2mpi.analysis.setting_labels import (
    MISSING,
    Words,
    by_rows,
    by_settings,
    grouped,
    sort_key,
    without_repeats,
)
from mu2mpi.analysis.tables import build_table
from mu2mpi.config.experiment_options import option_fields
from mu2mpi.core.errors import InputError, needed
from mu2mpi.core.registry import find, names, summary
from mu2mpi.results.reader import Summary, read_result
from mu2mpi.results.result import Result

# Facts that a file holds of where it was made, and their words
ENVIRONMENT = {
    "mu2mpi_version": "mu2mpi", "python_version": "Python", "numpy_version": "numpy", "hosts": "hosts",
    "processor": "processor", "mpi_library": "MPI library",
}  # fmt: skip
THEORY = ("minimum_loss", "excess_loss", "excess_loss_bound")

Rows = list[list[str]]


def build_report(runs: Sequence[Summary], skipped: Sequence[str] = ()) -> str:
    """Return a page of HTML that needs no network, no other file and no script, and names what is skipped."""
    jinja2 = needed("jinja2")
    kept, notes = without_repeats(runs, "ranks", "elapsed_seconds")
    once, _ = without_repeats(kept)
    noisy = [run for run in once if math.isfinite(run.experiment.rho)]
    table, results = build_table(once), {run.path: read_result(run.path) for run in runs}
    known = [run for run in once if "excess_loss" in run.figures]
    theory = grids(build_table(known, Layout(values=THEORY)).sections, Words()) if known else []
    servers = dict.fromkeys(trusted(run.experiment.server) for run in noisy)
    on_share = any(run.experiment.tests_on_a_share and not math.isnan(run.test_loss) for run in noisy)
    several = [
        f"Several runs: {re.sub('(rho|epsilon|delta)(?= = )', lambda name: Words().name(name[0]), sentence)}"
        for sentence in together(results.values())
    ]
    page, style = (files(__name__).joinpath(f"report.{kind}").read_text("utf-8") for kind in ("html", "css"))
    template = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(page)
    text: str = template.render(
        version=__version__,
        style=needed("markupsafe").Markup(style),
        files=kept,
        runs=once,
        noisy=noisy,
        settings=settings_of_all(kept),
        environments=_environments([results[run.path] for run in kept]),
        skipped=[*skipped, *notes],
        grids=grids(table.sections, Words()),
        theory=theory,
        aligned=lambda column: aligned(column, _blank),
        remarks=table.notes,
        figures=_figures(kept),
        seen=_who_sees(noisy),
        claims=claims(noisy),
        not_covered=[*several, *filter(None, servers), *[TEST_SHARE] * on_share],
        config=as_config(once),
    )
    return text.lstrip()


def _blank(text: str) -> str:
    """Return spaces as wide as the digits and points of a page."""
    return "".join("\u2007" if letter.isalnum() else "\u2008" for letter in text)


def settings_of_all(runs: Sequence[Summary]) -> Rows:
    """Return each setting that any run has, with all its values and what it means."""
    rows, words = [], Words()
    for name, field in option_fields().items():
        # A setting that is given in some runs is told of those, too, in which it follows from others.
        if [group.settings[name] for group in grouped(runs, [name])] != [None]:
            values = ", ".join(words.in_table(name, value) for (value,) in by_settings(runs, [name]))
            # Without the choices and the default, with which the help goes on.
            meaning = re.split(r"[:;\[]", field.title or str(field.description))[0].strip()
            rows.append([name, values, meaning])
    return rows


def _environments(results: Sequence[Result]) -> Rows:
    facts = [result.environment for result in results]
    columns = [name for name in ENVIRONMENT if any(name in of_run for of_run in facts)]
    made = Counter(tuple(str(of_run.get(name, MISSING)) for name in columns) for of_run in facts)
    rows = [[f"{count:,}", *values] for values, count in made.most_common()]
    return [["files", *map(ENVIRONMENT.__getitem__, columns)], *rows]


def _figures(runs: Sequence[Summary]) -> list[tuple[str, str, Any]]:
    """Return picture, words and caption of all figures that these runs allow and that may be shown."""
    drawn = []
    for name in names("figures"):
        if not find_figure(name).is_reported(runs):
            continue
        meaning = summary("figures", name)
        try:
            picture = base64.b64encode(image(draw(name, runs), "svg")).decode()
        except InputError:
            # The runs do not suit this figure.
            continue
        # Words for a terminal have formulas such as R^2 and x_T in plain letters.
        caption = re.sub(r"\b(\w)\^(\w)", r"<i>\1</i><sup>\2</sup>", html.escape(f"{meaning}."))
        caption = re.sub(r"\b([a-z])_(\w)", r"<i>\1</i><sub>\2</sub>", caption)
        drawn.append((picture, f"{meaning}.", needed("markupsafe").Markup(caption)))
    return drawn


def _who_sees(runs: Sequence[Summary]) -> list[str]:
    seen: dict[str, str] = {}
    for run in sorted(runs, key=lambda run: sort_key((run.experiment.server,))):
        server, mechanism = run.experiment.server, find("mechanisms", run.experiment.chosen_mechanism)
        alone = "" if mechanism.shows_messages else run.experiment.chosen_method.title
        seen.setdefault(mechanism.who_sees(server), alone or f"{server.capitalize()} server")
    return [f"{title}: {who[0].lower()}{who[1:].rstrip(',')}" for who, title in seen.items()]


def claims(runs: Sequence[Summary]) -> Rows:
    """Return what one run reveals at most: a header, and a row for each claim."""

    def row_of(run: Summary) -> dict[str, Any]:
        asked, mechanism = run.experiment, find("mechanisms", run.experiment.chosen_mechanism)
        spent = asked.rho if mechanism.spends == "rho" else None
        own = {"method": asked.chosen_method.title, "epsilon": asked.target_epsilon, "rho": spent}
        return {**run.row, **own, "account": mechanism.name}

    found = by_rows(runs, ["server", "method", "epsilon", "rho", "delta", "account"], row_of)
    shows_methods = len({method for _, method, *_ in found}) > 1
    rows = [["server", *["method"] * shows_methods, "ρ", "δ", "ε by the paper's lemma", "ε exactly"]]
    for (server, method, _, spent, delta, account), members in found.items():
        # What the sampler adds differs a little between runs of one claim: the most of all is true of each.
        most, by_lemma = (
            max(run.figures[name] for run in members) for name in ("epsilon_exact", "epsilon_paper")
        )
        rho, exactly, lemma = in_numbers(spent, most, by_lemma, account)
        row = [server, *[method] * shows_methods, rho, f"{delta:g}", lemma, exactly]
        rows += [row] if row not in rows else []
    return rows


def as_config(runs: Sequence[Summary]) -> str:
    """Return the TOML of an experiment or a sweep that repeats runs: in parts, what does not multiply."""
    experiments = dict.fromkeys(run.experiment for run in runs)
    rows = [tomllib.loads(experiment.to_toml()) for experiment in experiments]
    settings: dict[str, Any] = {}
    for name in rows[0]:
        others: dict[Any, list[dict[str, Any]]] = {}
        for row in rows:
            others.setdefault(row.get(name), []).append({n: v for n, v in row.items() if n != name})
        sets = [{frozenset(row.items()) for row in of_value} for of_value in others.values()]
        if None not in others and all(each == sets[0] for each in sets):
            rows = next(iter(others.values()))
            settings[name] = sorted(others) if len(others) > 1 else next(iter(others))
    parts = {} if rows == [{}] else {"part": rows}
    return tomli_w.dumps(settings | parts).strip()
