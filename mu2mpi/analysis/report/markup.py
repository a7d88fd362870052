"""Pieces of HTML; knows nothing of what they say."""

import base64
import html
import re
from collections.abc import Iterable, Sequence

from mu2mpi.analysis.formats import Block, Row

escaped = html.escape


def section(title: str, anchor: str, body: str) -> str:
    """Return a section with a heading that can be linked to."""
    return f'<section id="{escaped(anchor)}">\n<h2>{escaped(title)}</h2>\n{body}\n</section>'


def paragraph(text: str, kind: str = "") -> str:
    """Return a paragraph, perhaps of a class of the style sheet."""
    attribute = f' class="{escaped(kind)}"' if kind else ""
    return f"<p{attribute}>{escaped(text)}</p>"


def bullets(items: Iterable[str]) -> str:
    """Return a list."""
    return "<ul>" + "".join(f"<li>{escaped(item)}</li>" for item in items) + "</ul>"


def code(text: str) -> str:
    """Return text as it is, in a box."""
    return f"<pre><code>{escaped(text)}</code></pre>"


def table(header: Row, blocks: Sequence[Block], caption: str = "", kind: str = "") -> str:
    """Return a table that scrolls by itself where it is wider than the page, below its caption."""
    head = "".join(f'<th scope="col">{escaped(cell)}</th>' for cell in header)
    bodies = ""
    for block in blocks:
        rows = ("".join(f"<td>{escaped(cell)}</td>" for cell in row) for row in block)
        bodies += f"<tbody>{''.join(f'<tr>{row}</tr>' for row in rows)}</tbody>"
    table = f'<table class="{escaped(kind)}"><thead><tr>{head}</tr></thead>{bodies}</table>'
    return f'{paragraph(caption, "soft") if caption else ""}<div class="wide">{table}</div>'


def picture(light: bytes, dark: bytes, caption: str) -> str:
    """Return a figure from two SVG files, of which the reader sees the one that suits the screen."""
    day, night = (f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}" for svg in (light, dark))
    source = f'<source srcset="{night}" media="(prefers-color-scheme: dark)">'
    image = f'<img src="{day}" alt="{escaped(caption)}">'
    # Words for a terminal have formulas such as R^2 and x_T in plain letters.
    formulas = re.sub(r"\b(\w)\^(\w)", r"<i>\1</i><sup>\2</sup>", escaped(caption))
    formulas = re.sub(r"\b([a-z])_(\w)", r"<i>\1</i><sub>\2</sub>", formulas)
    return (
        f'<figure><div class="wide"><picture>{source}{image}</picture></div>'
        f"<figcaption>{formulas}</figcaption></figure>"
    )
