"""What a report says, section by section, as values for its template."""

import base64
import html
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from mu2mpi.analysis.catalogue import KINDS, find_figure
from mu2mpi.analysis.cells import estimate
from mu2mpi.analysis.figures import draw, image
from mu2mpi.analysis.grids import grids
from mu2mpi.analysis.settings import Key, by_settings, grouped, in_nats, privacy_of, sort_key, varying
from mu2mpi.analysis.show import TEST_SHARE, in_numbers, trusted
from mu2mpi.analysis.tables import build_table
from mu2mpi.analysis.together import Release, together
from mu2mpi.analysis.words import Words
from mu2mpi.config.options import option_fields
from mu2mpi.errors import InputError
from mu2mpi.extra import needed
from mu2mpi.privacy.mechanisms.base import Mechanism
from mu2mpi.registry import find
from mu2mpi.results.reader import Summary, read_result

ENVIRONMENT = {
    "mu2mpi_version": "mu2mpi", "python_version": "Python", "numpy_version": "numpy", "hosts": "hosts",
    "processor": "processor", "mpi_library": "MPI library",
}  # fmt: skip
"""Facts that a file holds of where it was made, and their words."""

Rows = list[list[str]]


def blank(text: str) -> str:
    """Return spaces as wide as the digits and points of a page."""
    return "".join("\u2007" if letter.isalnum() else "\u2008" for letter in text)


def what_was_run(runs: Sequence[Summary]) -> dict[str, Any]:
    """Return the settings of all runs, and where they ran."""
    settings, words = [], Words()
    for name, field in option_fields().items():
        # A setting that is given in some runs is told of those, too, in which it follows from others.
        if [group.settings[name] for group in grouped(runs, [name])] != [None]:
            values = [value for (value,) in by_settings(runs, [name])]
            # Without the choices and the default, with which the help goes on.
            meaning = re.split(r"[:;\[]", field.title or str(field.description))[0].strip()
            settings.append([name, ", ".join(words.in_table(name, value) for value in values), meaning])
    ranks = sorted({int(run.figures["ranks"]) for run in runs})
    created = sorted(run.created for run in runs)
    written = (
        f"{len(runs):,} result files, written from {created[0][:16]} to {created[-1][:16]} UTC, on "
        f"{', '.join(map(str, ranks))} MPI rank{'s' if ranks != [1] else ''}"
    )
    seconds = sum(run.figures["elapsed_seconds"] for run in runs)
    # Published files hold no times.
    took = "" if math.isnan(seconds) else f"; {max(0.1, seconds):,.1f} seconds of rounds in all"
    facts = [read_result(run.path).environment for run in runs]
    names = [name for name in ENVIRONMENT if any(name in of_run for of_run in facts)]
    made = Counter(tuple(str(of_run.get(name, "–")) for name in names) for of_run in facts)
    rows = [[f"{count:,}", *values] for values, count in made.most_common()]
    environments = [["files", *map(ENVIRONMENT.__getitem__, names)], *rows]
    return {"settings": settings, "written": f"{written}{took}.", "environments": environments}


def results(runs: Sequence[Summary]) -> dict[str, Any]:
    """Return the tables of `mu2mpi table`."""
    found = build_table(runs)
    tables = [
        (grid.header, grid.blocks_of(grid.aligned(blank)), f"{grid.heading}. {grid.legend}")
        for grid in grids(found.sections, Words())
    ]
    return {"tables": tables, "notes": found.notes}


def figures(runs: Sequence[Summary]) -> dict[str, Any]:
    """Return all figures that these runs allow and that may be shown."""
    drawn = []
    for name, meaning in KINDS.items():
        if not getattr(find_figure(name), "is_reported", lambda _: True)(runs):
            continue
        try:
            picture = base64.b64encode(image(draw(name, runs), "svg")).decode()
        except InputError:
            # The runs do not suit this figure.
            continue
        # Words for a terminal have formulas such as R^2 and x_T in plain letters.
        caption = re.sub(r"\b(\w)\^(\w)", r"<i>\1</i><sup>\2</sup>", html.escape(f"{meaning}."))
        caption = re.sub(r"\b([a-z])_(\w)", r"<i>\1</i><sub>\2</sub>", caption)
        drawn.append((picture, f"{meaning}.", needed("markupsafe").Markup(caption)))
    return {"figures": drawn}


def privacy(runs: Sequence[Summary], files: Sequence[Summary]) -> dict[str, Any]:
    """Return what the releases reveal, to whom, and what the guarantee does not cover.

    Each run is in `runs` once. Files that repeat one count, too, as what they sent may not be the same.
    """
    noisy = [run for run in runs if math.isfinite(run.experiment.rho)]
    found: dict[str, Any] = {"silent": len(runs) - len(noisy), "count": f"{len(runs):,}"}
    if not noisy:
        return found
    seen: dict[str, str] = {}
    for run in sorted(noisy, key=lambda run: sort_key((run.experiment.server,))):
        server, mechanism = run.experiment.server, _mechanism(run)
        alone = "" if mechanism.shows_messages else run.experiment.chosen_method.title
        seen.setdefault(mechanism.who_sees(server), alone or f"{server.capitalize()} server")
    words = [f"{title}: {who[0].lower()}{who[1:].rstrip(',')}" for who, title in seen.items()]
    return found | {"seen": words, "claims": claims(noisy), "not_covered": _not_covered(noisy, files)}


def _mechanism(run: Summary) -> type[Mechanism]:
    mechanism: type[Mechanism] = find("mechanisms", run.experiment.chosen_mechanism)
    return mechanism


def claims(runs: Sequence[Summary]) -> Rows:
    """Return what one run reveals at most: a header, and a row for each claim."""
    members: dict[Key, list[Summary]] = {}
    for run in runs:
        asked = run.experiment
        spent = asked.rho if _mechanism(run).spends == "rho" else None
        key = asked.server, asked.chosen_method.title, asked.target_epsilon, spent, asked.delta
        members.setdefault((*key, _mechanism(run).name), []).append(run)
    shows_methods = len({method for _, method, *_ in members}) > 1
    rows = [["server", *["method"] * shows_methods, "ρ", "δ", "ε by the paper's lemma", "ε exactly"]]
    for claim in sorted(members, key=sort_key):
        server, method, _, spent, delta, account = claim
        # What the sampler adds differs a little between runs of one claim: the most of all is true of each.
        most, by_lemma = (
            max(r.figures[n] for r in members[claim]) for n in ("epsilon_exact", "epsilon_paper")
        )
        rho, exactly, lemma = in_numbers(spent, most, by_lemma, account)
        row = [server, *[method] * shows_methods, rho, f"{delta:g}", lemma, exactly]
        rows += [row] if row not in rows else []
    return rows


def _not_covered(runs: Sequence[Summary], files: Sequence[Summary]) -> list[str]:
    releases = (Release.of(file.path, read_result(file.path)) for file in files)
    items = [f"Several runs: {sentence}" for sentence in together(releases, "ρ", "ε", "δ")]
    if seeded := sum(run.experiment.seed is not None for run in runs):
        items.append(
            f"{seeded:,} of {len(runs):,} runs have a seed that their files state. Anyone who knows it can "
            "compute their noise, and against them there is no guarantee: such runs are experiments, not "
            "protection."
        )
    items += filter(None, dict.fromkeys(trusted(run.experiment.server) for run in runs))
    on_share = any(run.experiment.tests_on_a_share and not math.isnan(run.test_loss) for run in runs)
    return items + [TEST_SHARE] * on_share


def theory(runs: Sequence[Summary]) -> Rows:
    """Return measured excess losses beside the theorem's bound: a header, and a row for each setting."""
    known = [run for run in runs if "excess_loss" in run.figures]
    if not known:
        return []
    names = list(dict.fromkeys(["server", *privacy_of(known), "machines", *varying(known)]))
    measured = {"minimum_loss": "{:.4f}", "excess_loss": "{:.4g}", "excess_loss_bound": "{:.4g}"}
    words = Words()
    header = ["smallest loss", "excess loss, measured", "theorem: at most"]
    rows = [[*map(words.name, names), *(f"{h} (nats)" if in_nats(known) else h for h in header)]]
    for group in grouped(known, names):
        means = {name: estimate([run.figures[name] for run in group.runs]).mean for name in measured}
        numbers = ["–" if math.isnan(mean) else measured[name].format(mean) for name, mean in means.items()]
        rows.append([*(words.in_table(name, value) for name, value in group.settings.items()), *numbers])
    return rows
