"""Comparison of two sets of results: settings, environments, and bits of the models."""

from collections.abc import Iterable, Sequence

from mu2mpi.analysis import setting_labels
from mu2mpi.analysis.setting_labels import MISSING, RowGetter, varying_settings
from mu2mpi.config.experiment_options import option_fields
from mu2mpi.core.text import text_table
from mu2mpi.results.reader import RunSummary
from mu2mpi.results.records import IDENTITY_ATTRIBUTES

ComparedRuns = tuple[list[RunSummary], list[RunSummary]]  # A and B


def compare(first: Sequence[RunSummary], second: Sequence[RunSummary]) -> str:
    """Compare two sets of runs, A and B, and return text."""
    a, b = (setting_labels.drop_repeated_runs(side, "ranks")[0] for side in (first, second))
    compared, runs = (a, b), [*a, *b]
    given = [n for n in option_fields() if any(run.independent_settings[n] is not None for run in runs)]
    facts = dict.fromkeys(name for run in runs for name in run.contents.environment)
    facts_of_runs = [name for name in facts if name not in IDENTITY_ATTRIBUTES]
    settings = _differences("setting", given, compared, lambda run: run.settings)
    where = _differences("where they ran", facts_of_runs, compared, lambda r: r.contents.environment)
    blocks = [settings or "Settings: the same.", where or "Versions and machines: the same."]
    return "\n\n".join(filter(None, [*blocks, _identical_models(compared)]))


def _differences(title: str, names: Iterable[str], compared: ComparedRuns, get_row: RowGetter) -> str:
    """Return a table of the named values of both sides, where they differ; empty if nowhere."""
    rows = []
    for name in names:
        a, b = (
            setting_labels.join_values(get_row(run).get(name, MISSING) for run in side) for side in compared
        )
        rows += [[name, a, b]] if a != b else []
    return text_table([title, "A", "B"], [rows]) if rows else ""


def _identical_models(compared: ComparedRuns) -> str:
    """Return a sentence on runs of both sides with the same seed and settings that vary within a side."""
    # Settings that differ only between the sides do not tell runs apart.
    names = sorted({"seed", *(name for side in compared for name in varying_settings(side))})
    digests_a, digests_b = (
        {tuple(run.settings[name] for name in names): run.contents.model_digest for run in side}
        for side in compared
    )
    seeded = [key for key in digests_a.keys() & digests_b.keys() if key[names.index("seed")] is not None]
    if not seeded:
        return ""
    equal = sum(digests_a[key] == digests_b[key] for key in seeded)
    return f"{equal:,} of {len(seeded):,} models of the same seed are equal to the last bit."
