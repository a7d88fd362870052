"""Figures as PGF, which LaTeX writes in the font of its document: without a TeX system, the same each time.

Matplotlib by itself asks a TeX system how long each text is. Here text is measured as in all other formats.
That says where the lines of a longer text go; what stands alone is anchored where it belongs, in any font.
"""

import io
from typing import Any

from matplotlib.backends.backend_pgf import RendererPgf

from mu2mpi.analysis.figures.sheet import Sheet
from mu2mpi.errors import InputError

HEAD = r"""%% In the preamble: \usepackage{{pgf}}. Where the figure goes: \input{{its name}}
\begingroup%
\providecommand{{\mathdefault}}[1]{{#1}}%
\makeatletter%
\begin{{pgfpicture}}%
\pgfpathrectangle{{\pgfpointorigin}}{{\pgfqpoint{{{width:f}in}}{{{height:f}in}}}}%
\pgfusepath{{use as bounding box, clip}}%
"""
TAIL = r"""\end{pgfpicture}%
\makeatother%
\endgroup%
"""

LETTERS = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "²": r"\textsuperscript{2}", "–": "--", "—": "---", "…": r"\dots{}",
    **{letter: rf"\ensuremath{{{command}}}" for letter, command in {
        "ρ": r"\rho", "ε": r"\varepsilon", "δ": r"\delta", "λ": r"\lambda", "η": r"\eta", "μ": r"\mu",
        "∇": r"\nabla", "‖": r"\Vert", "±": r"\pm", "→": r"\to", "−": "-", "∞": r"\infty", "|": "|", "<": "<",
        ">": ">", "●": r"\bullet",
    }.items()},
}  # fmt: skip
"""What LaTeX takes for a letter of text, whatever its engine and font."""


def as_pgf(sheet: Sheet) -> bytes:
    """Return a figure as PGF; an InputError if it has pictures, which PGF keeps in files of their own."""
    stream = io.StringIO()
    stream.write(HEAD.format(width=sheet.get_figwidth(), height=sheet.get_figheight()))
    sheet.draw(_Renderer(sheet, stream))
    stream.write(TAIL)
    return stream.getvalue().encode()


def escaped(text: str) -> str:
    """Return text with formulas between dollars as LaTeX; % and ^ are seen to by matplotlib."""
    parts = text.replace("q̃", "$\\tilde{q}$").split("$")
    # An odd number of dollars is none that parts formulas.
    formulas = len(parts) % 2
    table = str.maketrans(LETTERS)
    if not formulas:
        return r"\$".join(part.translate(table) for part in parts)
    return "".join(f"${part}$" if k % 2 else part.translate(table) for k, part in enumerate(parts))


class _Renderer(RendererPgf):
    """What draws as matplotlib's own, but asks nobody how long a text is."""

    def __init__(self, sheet: Sheet, stream: io.StringIO) -> None:
        super().__init__(sheet, stream)
        self._pen = sheet.pen

    def get_text_width_height_descent(self, s: Any, prop: Any, ismath: Any) -> tuple[float, float, float]:
        width, height, descent = self._pen.get_text_width_height_descent(s, prop, ismath)
        return width, height, descent

    def draw_text(
        self, gc: Any, x: Any, y: Any, s: str, prop: Any, angle: Any, ismath: Any = False, mtext: Any = None
    ) -> None:
        super().draw_text(gc, x, y, escaped(s), prop, angle, ismath, mtext)

    def draw_image(self, *_: Any, **__: Any) -> None:
        raise InputError("PGF takes no pictures such as those of this figure; write it as pdf, svg or png")
