"""RO-Crate of a study: published results, and the report, figures, tables and commands made from them."""

import base64
import json
import os
from collections.abc import Sequence
from contextlib import chdir
from importlib.resources import files
from pathlib import Path

from mu2mpi._version import __version__
from mu2mpi.analysis.description import privacy_summary
from mu2mpi.analysis.publication import publish
from mu2mpi.analysis.report import build_report, render_figures, repeat_config
from mu2mpi.analysis.runs import Runs, load
from mu2mpi.core.errors import InputError, import_extra
from mu2mpi.core.files import temporary_path
from mu2mpi.core.text import warn


def publish_crate(paths: Sequence[Path], output: Path, overwrite: bool = False, **flags: bool) -> list[str]:
    """Write published copies of results, and files made from them, as an RO-Crate; arguments of `publish`."""
    import_extra("rocrate", "crate")
    if output.exists() and not (overwrite and (output / "ro-crate-metadata.json").is_file()):
        raise InputError(f"the output {output} exists. Choose a new folder, or a crate with --overwrite.")
    sources, target = [path.absolute() for path in paths], Path(os.path.realpath(output))
    with temporary_path(target) as folder, temporary_path(target) as replaced:
        (folder / "results").mkdir(parents=True)
        with chdir(folder):  # Paths in all files are relative to the crate.
            lines = publish(sources, Path("results"), **flags)
            _write_crate(load("results"))
        if target.exists():
            os.replace(target, replaced)
        os.replace(folder, target)
    return lines


def _write_crate(runs: Runs) -> None:
    """Write all files but the results of runs, which are in results/, into the working directory."""
    jinja2, rocrate = import_extra("jinja2"), import_extra("rocrate.rocrate", "crate")
    figures, _ = render_figures(runs.summaries)
    citation = files("mu2mpi").joinpath("cli/citation.bib").read_text("utf-8")
    texts = {
        "experiments.toml": f"{repeat_config(runs.summaries)}\n",
        "citation.bib": citation.replace("VERSION", __version__),
        "report.html": build_report(runs.summaries),
        "table.csv": f"{runs.table(format='csv')}\n",
        "runs.csv": runs.to_dataframe().to_csv(index=False),
        **{f"figures/{name}.svg": base64.b64decode(image).decode() for name, image, *_ in figures},
    }
    facts = {"figures": figures, "runs": runs, "version": __version__, "privacy_summary": privacy_summary}
    templates = jinja2.Environment(loader=jinja2.PackageLoader("mu2mpi.analysis", "crate"), trim_blocks=True)
    metadata = json.loads(templates.get_template("metadata.json").render(facts))
    texts["README.md"] = templates.get_template("README.md").render(graph=metadata["@graph"])
    for name, text in texts.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text, "utf-8", errors="replace")
    if "license" not in metadata["@graph"][1]:
        warn("the crate has no license, which RO-Crate requires. Set MU2MPI_LICENSE to its name or URL")
    rocrate.ROCrate(metadata, gen_preview=True).write(".")
