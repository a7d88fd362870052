"""A figure for dark screens from the one for light ones, as to draw it takes a hundred times as long."""

import re
from functools import cache

from mu2mpi.analysis.figures.style import DARK, LIGHT
from mu2mpi.extra import needed

COLOUR = re.compile(rb"#[0-9a-f]{6}\b")

STEPS = 2000
"""So finely are the colours of a figure told apart; those of the scale are 256."""


def at_night(svg: bytes) -> bytes | None:
    """Return an SVG with the colours of `LIGHT` replaced by those of `DARK`; None if it holds pictures."""
    if b"<image" in svg:
        return None
    colours = _colours()
    return COLOUR.sub(lambda found: colours.get(found[0], found[0]), svg)


@cache
def _colours() -> dict[bytes, bytes]:
    """Return the colours of dark figures by those that stand in their place in light ones."""
    to_hex = needed("matplotlib.colors").to_hex
    scale = zip(LIGHT.colours(STEPS), DARK.colours(STEPS), strict=True)
    pairs = [*scale, (LIGHT.ink, DARK.ink), (LIGHT.paper, DARK.paper)]
    return {to_hex(light).encode(): to_hex(dark).encode() for light, dark in pairs}
