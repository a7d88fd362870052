"""What a report says, section by section, each as a piece of HTML; empty where there is nothing to say."""

import math
import re
from collections import Counter
from collections.abc import Sequence

from mu2mpi.analysis.catalogue import FIGURES
from mu2mpi.analysis.cells import Key, by_settings, estimate, sort_key
from mu2mpi.analysis.figures import draw, image
from mu2mpi.analysis.formats import Dialect
from mu2mpi.analysis.grids import grids
from mu2mpi.analysis.groups import grouped, in_nats
from mu2mpi.analysis.report.markup import bullets, paragraph, picture, table
from mu2mpi.analysis.report.night import at_night
from mu2mpi.analysis.settings import privacy_of, varying
from mu2mpi.analysis.show import TEST_SHARE, in_numbers, trusted
from mu2mpi.analysis.tables import build_table
from mu2mpi.analysis.together import Release, together
from mu2mpi.analysis.words import Words
from mu2mpi.config.options import option_fields
from mu2mpi.errors import InputError
from mu2mpi.privacy.mechanisms.base import Mechanism
from mu2mpi.registry import find
from mu2mpi.results.reader import Summary, read_result

NUMBERS = Dialect(lambda text: "".join("\u2007" if letter.isalnum() else "\u2008" for letter in text))
"""Spaces as wide as the digits and points of a page."""

GUARANTEE = (
    "What is learned about any one sample of any one machine is at most this: if that sample were replaced "
    "by another (replace-one adjacency), the Rényi divergence of order a of all that is seen would be at "
    "most a ρ²/2, for every a > 1. In terms of (ε, δ) this is the ε below: once by the paper's lemma, and "
    "once exactly, which is the smallest that is true. Where samples are drawn at random there is no ρ, "
    "and ε is what the accountant that is named gives."
)

EXCESS = (
    "The excess loss is the test loss of the output minus the smallest that any point of the ball has. "
    "The theorem bounds its expectation, on fresh samples, for every problem with the same constants: "
    "it is far above what these data do, and shows how the loss changes with M, T and ρ. A dash: "
    "increments were clipped to less than the theorem's S, or the learning rate is not its own, and it "
    "says nothing; or the model is too large for the search."
)

WHERE = {
    "mu2mpi_version": "mu2mpi", "python_version": "Python", "numpy_version": "numpy", "hosts": "hosts",
    "processor": "processor", "mpi_library": "MPI library",
}  # fmt: skip
"""What a file says of where it was made, and what that is called."""

MOST_PLACES = 10


def what_was_run(runs: Sequence[Summary], remarks: Sequence[str]) -> str:
    """Return the settings of all runs, where they ran, and what was left out."""
    settings, words = [], Words()
    for name, field in option_fields().items():
        if [group.settings[name] for group in grouped(runs, [name])] != [None]:
            # Where it is said in some runs, it is told of those, too, in which it follows from others.
            values = [value for (value,) in by_settings(runs, [name])]
            # Without the choices and the default, with which the help goes on.
            meaning = re.split(r"[:;\[]", field.title or str(field.description))[0].strip()
            settings.append([name, ", ".join(words.in_table(name, value) for value in values), meaning])
    ranks = sorted({int(run.figures["ranks"]) for run in runs})
    seconds = sum(run.figures["elapsed_seconds"] for run in runs)
    # Published files hold no times.
    took = "" if math.isnan(seconds) else f"; {_duration(seconds)} of rounds in all"
    created = sorted(run.created for run in runs)
    written = (
        f"{len(runs):,} result files, written from {created[0][:16]} to {created[-1][:16]} UTC, on "
        f"{', '.join(map(str, ranks))} MPI rank{'s' if ranks != [1] else ''}{took}."
    )
    parts = [
        table(["setting", "values", "meaning"], [settings], kind="prose"),
        paragraph(written),
        _where(runs),
    ]
    if remarks:
        parts += [paragraph(f"{len(remarks):,} files were left out:", "warn"), bullets(remarks)]
    return "\n".join(parts)


def _duration(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole:,} second{'s' * (whole > 1)}" if whole else "less than a second"


def _where(runs: Sequence[Summary]) -> str:
    """Return the machines and versions of all files, each of which is a row with how many files it made."""
    facts = [read_result(run.path).environment for run in runs]
    names = [name for name in WHERE if any(name in of_run for of_run in facts)]
    made = Counter(tuple(str(of_run.get(name, "–")) for name in names) for of_run in facts)
    rows = [[f"{count:,}", *values] for values, count in made.most_common(MOST_PLACES)]
    more = len(made) - len(rows)
    return table(["files", *map(WHERE.__getitem__, names)], [rows], kind="prose") + (
        paragraph(f"{more:,} more such rows are left out.", "soft") if more else ""
    )


def results(runs: Sequence[Summary]) -> str:
    """Return the tables of `mu2mpi table`."""
    found = build_table(runs)
    parts = [
        table(grid.header, grid.blocks_of(grid.aligned(NUMBERS)), f"{grid.heading}. {grid.legend}")
        for grid in grids(found.sections, Words())
    ]
    return "\n".join([*parts, *(paragraph(f"Note: {note}.", "soft") for note in found.notes)])


def figures(runs: Sequence[Summary]) -> str:
    """Return all figures that these runs allow and that may be shown, and say why others are not there."""
    parts, absent = [], []
    for name, kind in FIGURES.items():
        if not kind.reported(runs):
            continue
        try:
            light = image(draw(name, runs), "svg")
        except InputError as error:
            if "mu2mpi[analysis]" in str(error):
                raise
            absent.append(f"{name}: {error}")
        else:
            parts.append(picture(light, at_night(light), f"{kind.meaning[0].upper()}{kind.meaning[1:]}."))
    if absent:
        parts += [paragraph("Not drawn:", "soft"), bullets(absent)]
    return "\n".join(parts)


def privacy(runs: Sequence[Summary], files: Sequence[Summary]) -> str:
    """Say in words what the releases reveal, to whom, and what the guarantee does not cover.

    Each run is in `runs` once. Files that repeat one count, too, as what they sent may not be the same.
    """
    noisy = [run for run in runs if math.isfinite(run.experiment.rho)]
    parts = []
    if len(noisy) < len(runs):
        silent = f"{len(runs) - len(noisy):,} of {len(runs):,} runs"
        parts.append(paragraph(f"{silent} add no noise: for them there is no guarantee at all.", "warn"))
    if not noisy:
        return "\n".join(parts)
    seen: dict[str, str] = {}
    for run in sorted(noisy, key=lambda run: sort_key((run.experiment.server,))):
        server, mechanism = run.experiment.server, _mechanism(run)
        alone = "" if mechanism.shows_messages else run.experiment.chosen_method.title
        seen.setdefault(mechanism.who_sees(server), alone or f"{server.capitalize()} server")
    parts += [
        paragraph("What a run releases is seen by:"),
        bullets(f"{title}: {who[0].lower()}{who[1:].rstrip(',')}" for who, title in seen.items()),
        paragraph(GUARANTEE),
    ]
    parts.append(_claims(noisy))
    parts += ["<h3>What the guarantee does not cover</h3>", bullets(_not_covered(noisy, files))]
    return "\n".join(parts)


def _mechanism(run: Summary) -> type[Mechanism]:
    mechanism: type[Mechanism] = find("mechanisms", run.experiment.chosen_mechanism)
    return mechanism


def _claims(runs: Sequence[Summary]) -> str:
    """Return what one run reveals at most: a row for each claim, with its method where methods differ."""
    claims: dict[Key, list[Summary]] = {}
    for run in runs:
        asked = run.experiment
        spent = asked.rho if _mechanism(run).spends == "rho" else None
        key = asked.server, asked.chosen_method.title, asked.target_epsilon, spent, asked.delta
        claims.setdefault((*key, _mechanism(run).name), []).append(run)
    shows_methods = len({method for _, method, *_ in claims}) > 1
    rows = []
    for claim in sorted(claims, key=sort_key):
        server, method, _, spent, delta, account = claim
        # What the sampler adds differs a little between runs of one claim: the most of all is true of each.
        same = claims[claim]
        most, by_lemma = (max(r.figures[name] for r in same) for name in ("epsilon_exact", "epsilon_paper"))
        rho, exactly, lemma = in_numbers(spent, most, by_lemma, account)
        rows.append([server, *[method] * shows_methods, rho, f"{delta:g}", lemma, exactly])
    header = ["server", *["method"] * shows_methods, "ρ", "δ", "ε by the paper's lemma", "ε exactly"]
    distinct = list(map(list, dict.fromkeys(map(tuple, rows))))
    return table(header, [distinct], "What one run reveals at most; rounded up.")


def _not_covered(runs: Sequence[Summary], files: Sequence[Summary]) -> list[str]:
    seeded = sum(run.experiment.seed is not None for run in runs)
    releases = (Release.of(file.path, read_result(file.path)) for file in files)
    items = [f"Several runs: {sentence}" for sentence in together(releases, "ρ", "ε", "δ")]
    if seeded:
        items.append(
            f"{seeded:,} of {len(runs):,} runs have a seed that their files state. Anyone who knows it can "
            "compute their noise, and against them there is no guarantee: such runs are experiments, not "
            "protection."
        )
    items += filter(None, dict.fromkeys(trusted(run.experiment.server) for run in runs))
    if any(run.experiment.tests_on_a_share and not math.isnan(run.test_loss) for run in runs):
        items.append(TEST_SHARE)
    return [
        *items,
        "More than one sample: all samples of a machine together, or that a machine takes part at all.",
        "Times, here and in the files, and the diagnostics in the files (largest increment, share of clipped "
        "ones), which are computed from private data without noise. This page shows none of the diagnostics.",
        "The test set, on which loss and scores are measured without noise: it is taken to be public.",
        "The ranks of a job, which trust each other: a run simulates a federation in one program.",
    ]


def theory(runs: Sequence[Summary]) -> str:
    """Return measured excess losses beside the theorem's bound."""
    known = [run for run in runs if "excess_loss" in run.figures]
    if not known:
        return ""
    names = list(dict.fromkeys(["server", *privacy_of(known), "machines", *varying(known)]))
    measured = {"minimum_loss": "{:.4f}", "excess_loss": "{:.4g}", "excess_loss_bound": "{:.4g}"}
    rows, words = [], Words()
    for group in grouped(known, names):
        means = {name: estimate([run.figures[name] for run in group.runs]).mean for name in measured}
        numbers = ["–" if math.isnan(mean) else measured[name].format(mean) for name, mean in means.items()]
        rows.append([*(words.in_table(name, value) for name, value in group.settings.items()), *numbers])
    header = [*map(words.name, names), "smallest loss", "excess loss, measured", "theorem: at most"]
    unit = "In nats; means" if in_nats(known) else "Means"
    return paragraph(EXCESS) + table(header, [rows], f"{unit} over seeds.")
