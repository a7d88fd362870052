"""RO-Crate of a study: published results, and the report, figures, tables and commands made from them."""

import os
import re
import shutil
from collections.abc import Sequence
from contextlib import chdir
from html import escape
from importlib.resources import files
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from mu2mpi._version import __version__
from mu2mpi.analysis.description import privacy_summary
from mu2mpi.analysis.publication import publish
from mu2mpi.analysis.report import build_report, render_figures, repeat_config
from mu2mpi.analysis.runs import Runs, load
from mu2mpi.core.errors import InputError, import_extra
from mu2mpi.core.files import temporary_path
from mu2mpi.core.text import warn
from mu2mpi.results.result_files import list_result_files

PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
DESCRIPTION = (
    "Published results of differentially private federated optimisation, without times, diagnostics and "
    "facts about computers, with a report, figures, tables and the commands that repeat them."
)
SOFTWARE_LICENSE = "https://spdx.org/licenses/BSD-3-Clause"
REPEAT_COMMAND = "mu2mpi sweep experiments.toml --output ../repeated"


class StudyFile(NamedTuple):
    """File of a crate: its content in memory, or an empty one for a result, which is there already."""

    path: str
    media_type: str
    description: str
    command: str = ""  # that makes it from results/
    content: str = ""


def publish_crate(paths: Sequence[Path], output: Path, overwrite: bool = False, **flags: bool) -> list[str]:
    """Write published copies of results, and files made from them, as an RO-Crate; arguments of `publish`."""
    import_extra("rocrate", "crate")
    if output.exists() and not (overwrite and (output / "ro-crate-metadata.json").is_file()):
        raise InputError(f"the output {output} exists. Name a new folder; --overwrite replaces a crate.")
    sources, target = [path.absolute() for path in paths], Path(os.path.realpath(output))
    if any(Path(os.path.realpath(file)).is_relative_to(target) for file in list_result_files(sources)):
        raise InputError(f"--output {output} contains results to publish. Choose another folder.")
    with temporary_path(target) as folder:
        (folder / "results").mkdir(parents=True)
        with chdir(folder):  # Paths in all files are relative to the crate.
            lines = publish(sources, Path("results"), **flags)
            _write_crate(load("results"))
        if overwrite and target.exists():
            os.replace(target, folder.with_suffix(".old"))  # It stays if the program is interrupted here.
        os.replace(folder, target)
        shutil.rmtree(folder.with_suffix(".old"), ignore_errors=True)
    return lines


def _write_crate(runs: Runs) -> None:
    """Write all files but the results of runs, which are in results/, into the working directory."""
    crate = import_extra("rocrate.rocrate", "crate").ROCrate(gen_preview=True, version="1.1")
    datasets = " ".join(", ".join(sorted({run.experiment.data for run in runs.summaries})).split())
    # ro-crate-py does not escape the name in its preview, nor does Markdown.
    crate.name = f"mu2mpi on {datasets}: {len(runs):,} run{'s' if runs[1:] else ''}".replace("<", "&lt;")
    crate.description, crate.datePublished = DESCRIPTION, runs.summaries[0].created[:10]
    profile = {"@id": PROFILE, "name": "Process Run Crate", "version": PROFILE.rpartition("/")[2]}
    crate.root_dataset["conformsTo"] = crate.add_jsonld({**profile, "@type": "CreativeWork"})
    licenses = _add_owners(crate, runs, "license", "license", "CreativeWork")
    _add_owners(crate, runs, "author", "creator_name", "Person")
    if not licenses:
        warn("the crate has no license, which RO-Crate requires. Set MU2MPI_LICENSE to its name or URL")
    results = _add_results(crate, runs)
    made = {file: _add_file(crate, file) for file in _derived_files(runs)}
    versions = sorted({__version__, *(run.mu2mpi_version for run in runs.summaries)})
    facts = {"name": "mu2mpi", "softwareVersion": ", ".join(versions), "citation": crate.get("citation.bib")}
    facts |= {"@id": "#mu2mpi", "@type": "SoftwareApplication", "license": SOFTWARE_LICENSE}
    software = crate.add_jsonld(facts)
    # Actions, each with the command, the files that it reads, and those that it makes.
    actions = [(file.path, file.command, results, [made[file]]) for file in made if file.command]
    actions.append(("results/", REPEAT_COMMAND, [crate.get("experiments.toml")], results))
    for target, command, inputs, outputs in actions:
        properties = {"name": f"Make {target}", "description": command}
        action = crate.add_action(software, f"#make-{target}", inputs, outputs, properties)
        crate.root_dataset.append_to("mentions", action)
    _add_readme(crate, [*made], [command for _, command, *_ in actions], licenses)
    crate.write(".")
    page, shown = Path(crate.preview.id), f"<dd>{crate.license}</dd>"  # a repr, which browsers hide
    text = page.read_text("utf-8").replace(shown, f"<dd>{escape(', '.join(licenses))}</dd>")
    page.write_text(text, "utf-8")


def _add_results(crate: Any, runs: Runs) -> list[Any]:
    entities = []
    for result in runs:
        if re.search(r"[\x00-\x1f\x7f\ud800-\udfff]", path := str(result.path)):
            raise InputError(f"the name {path!r} is not one line of text in UTF-8. Rename the file.")
        settings = ", ".join(f"{name} = {value}" for name, value in result.experiment.settings().items())
        text = f"{settings}; {privacy_summary(result.privacy, result.accounts)}"
        entities.append(_add_file(crate, StudyFile(path, "application/x-hdf5", text)))
    return entities


def _derived_files(runs: Runs) -> list[StudyFile]:
    """Return the files that are made from results."""
    citation = files("mu2mpi").joinpath("citation.bib").read_text("utf-8").replace("VERSION", __version__)
    config, table = f"{repeat_config(runs.summaries)}\n", f"{runs.table(format='csv')}\n"
    figures, report_command = render_figures(runs.summaries), "mu2mpi report results/ -o report.html"
    report = build_report(runs.summaries, figures=figures)
    table_command = "mu2mpi table results/ --format csv > table.csv"
    derived = [
        StudyFile("experiments.toml", "application/toml", "Settings of all runs", content=config),
        StudyFile("citation.bib", "application/x-bibtex", "mu2mpi and its paper", content=citation),
        StudyFile("report.html", "text/html", "Report on all runs", report_command, report),
        StudyFile("table.csv", "text/csv", "Mean and deviation over seeds", table_command, table),
    ]
    for name, svg, text in figures[0]:
        path = f"figures/{name}.svg"
        command = f"mu2mpi plot {name} results/ -o {path}"
        derived.append(StudyFile(path, "image/svg+xml", text, command, svg.decode()))
    return derived


def _add_file(crate: Any, file: StudyFile) -> Any:
    properties = {"name": file.path, "encodingFormat": file.media_type, "description": file.description}
    source = StringIO(file.content) if file.content else Path(file.path)
    return crate.add_file(source, file.path, properties=properties)


def _add_readme(crate: Any, made: list[StudyFile], commands: list[str], licenses: list[str]) -> None:
    text = files(__name__).joinpath("README.md").read_text("utf-8")
    text = text.format(
        name=crate.name,
        description=DESCRIPTION,
        files="\n".join(f"| `{file.path}` | {file.description} |" for file in made),
        commands="\n".join(commands),
        license=", ".join(licenses).replace("<", "&lt;") or "not stated by the publisher",
    )
    _add_file(crate, StudyFile("README.md", "text/markdown", "Files, and commands", content=text))


def _add_owners(crate: Any, runs: Runs, role: str, attribute: str, entity_type: str) -> list[str]:
    """Add the licenses or authors that results name in an attribute; return them."""
    environments = [run.contents.environment for run in runs.summaries]
    names = sorted({" ".join(str(each[attribute]).split()) for each in environments if attribute in each})
    for name in names:
        is_url = name.startswith(("https://", "http://"))
        identifier = quote(name, "%/:=&?~#+!$,;'@()*[]") if is_url else f"#{role}-{quote(name)}"
        entity = {"@id": identifier, "@type": entity_type, "name": name}
        crate.root_dataset.append_to(role, crate.get(identifier) or crate.add_jsonld(entity), compact=True)
    return names
