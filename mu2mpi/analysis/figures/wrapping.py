"""Text in lines as long as there is room, measured as it is drawn."""

import re
from collections.abc import Callable

from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.text import Text

PIECES = re.compile(r"(?:\$[^$]*\$| = |= | =|[^\s$]|\$)+\s*")
"""Words with what follows them: formulas are in one piece, and so is a setting with its value."""

PARTS = re.compile(r"\$[^$]*\$|[^-_/.,:]*[-_/.,:]|[^-_/.,:]+")
"""Where a word that is too long may be parted."""


def wrapped(text: Text, words: str, room: float, pen: RendererAgg) -> str:
    """Return words in lines no longer than so many inches, as `text` would draw them."""

    def fits(line: str) -> bool:
        text.set_text(line)
        box = text.get_window_extent(pen)
        return max(box.width, box.height) <= room * pen.dpi if "\n" not in line else False

    return "\n".join(line for part in words.split("\n") for line in _lines(part, fits))


def wrap(text: Text, words: str, room: float, pen: RendererAgg) -> bool:
    """Wrap what a text of a figure says, and return whether that changed it."""
    before = text.get_text()
    text.set_text(wrapped(text, words, room, pen))
    return text.get_text() != before


def shorten(text: Text, room: float, pen: RendererAgg) -> None:
    """Leave out the middle of a text that is longer than so many inches."""
    words = text.get_text()
    for kept in range(len(words) - 1, 1, -1):
        box = text.get_window_extent(pen)
        if max(box.width, box.height) <= room * pen.dpi:
            return
        text.set_text(f"{words[: -(-kept // 2)]}…{words[len(words) - kept // 2 :]}")


def _lines(words: str, fits: Callable[[str], bool]) -> list[str]:
    """Return a line in as few lines as fit."""
    if fits(words) or not words:
        return [words]
    lines = [""]
    for piece in _pieces(words, fits):
        if lines[-1] and not fits((lines[-1] + piece).rstrip()):
            lines.append("")
        lines[-1] += piece
    return [line.rstrip() for line in lines]


def _pieces(words: str, fits: Callable[[str], bool]) -> list[str]:
    """Return the parts between which lines may break: words, parts of long ones, and letters if need be."""
    pieces = []
    for word in PIECES.findall(words):
        if fits(word.rstrip()):
            pieces.append(word)
            continue
        for part in PARTS.findall(word):
            pieces += [part] if fits(part.rstrip()) or "$" in part else [*part]
    return pieces
