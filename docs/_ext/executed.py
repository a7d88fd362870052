"""Sphinx: run the blocks of tutorials, and show below each what it printed.

``executed_pages`` in conf.py lists them. Each has a folder of its own below ``_run``; an image of a page is
found there if one of its blocks drew it.
"""

import os
import re
import shutil
from pathlib import Path
from typing import Any

from blocks import Block, BlockError, Session, blocks
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

FENCE = "`" * 8
"""Around what was printed, and longer than any fence that is printed."""

IMAGE = re.compile(r"(!\[[^\]]*\]\()([^)/]+\.(?:svg|png))\)")


def show_outputs(app: Sphinx, name: str, source: list[str]) -> None:
    """Run a tutorial, and put the output of each block behind it."""
    if name not in app.config.executed_pages:
        return
    folder = Path(app.srcdir) / "_run" / name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(Path(app.srcdir).parent / "jobs", folder / "jobs")
    lines = source[0].split("\n")
    with Session(folder) as session:
        shown = [(block, _output(name, session, block)) for block in blocks(source[0])]
    # From the last to the first, as what is put in moves all lines below.
    for block, output in reversed(shown):
        if output.strip():
            end = block.line - 1 + block.text.count("\n") + 1
            printed = output.rstrip().split("\n")
            lines[end:end] = ["", f"{FENCE}{{code-block}} text", ":class: output", "", *printed, FENCE]
    here = os.path.relpath(folder, (Path(app.srcdir) / name).parent)
    source[0] = IMAGE.sub(
        lambda image: f"{image[1]}{here}/{image[2]})" if (folder / image[2]).exists() else image[0],
        "\n".join(lines),
    )


def _output(name: str, session: Session, block: Block) -> str:
    try:
        return session.run(block)
    except BlockError as error:
        raise ExtensionError(f"{name}: {error}") from error


def setup(app: Sphinx) -> dict[str, Any]:
    """Have pages run when they are read."""
    app.add_config_value("executed_pages", [], "env")
    app.connect("source-read", show_outputs)
    return {"parallel_read_safe": True}
