"""No text of a figure covers another, and none is cut off, whatever is drawn at whatever width."""

from itertools import combinations

import pytest
from awkward import FOLDERS
from matplotlib.transforms import Bbox
from slowly import slow

from mu2mpi.analysis.figures import draw, page_of

WIDTHS = ("column", "page")
EACH = [(name, kind, width) for name, of in FOLDERS.items() for kind in of.kinds for width in WIDTHS]
SOME = [(name, FOLDERS[name].kinds[0], WIDTHS[k % 2]) for k, name in enumerate(FOLDERS)]


def texts_of(figure):
    """Return all texts that are drawn."""
    found = [figure.heading, *(text for legend in figure.legends for text in legend.get_texts())]
    for panel in figure.axes:
        found += panel.texts
        if not panel.axison:
            continue
        found += [panel.title, panel.xaxis.label, panel.yaxis.label, panel._left_title]
        for axis in (panel.xaxis, panel.yaxis):
            found += [axis.get_offset_text(), *(tick.label1 for tick in axis._update_ticks())]
    return [text for text in found if text is not None and text.get_visible() and text.get_text().strip()]


def box_of(text, figure):
    box = text.get_window_extent(figure.pen)
    # A text has some air above its letters.
    return Bbox.from_extents(box.x0 + 0.5, box.y0 + 0.1 * box.height, box.x1 - 0.5, box.y1 - 0.1 * box.height)


def faults(figure):
    """Return which texts cover others or leave the figure, and which legends lie on panels."""
    figure.draw_without_rendering()
    page = figure.bbox
    boxes = [(text.get_text(), box_of(text, figure)) for text in texts_of(figure)]
    found = [
        f"{text!r} leaves the figure: {box} not in {page.size}" for text, box in boxes
        if box.x0 < page.x0 or box.x1 > page.x1 or box.y0 < page.y0 or box.y1 > page.y1
    ]  # fmt: skip
    found += [f"{a!r} covers {b!r}" for (a, one), (b, two) in combinations(boxes, 2) if one.overlaps(two)]
    for legend in figure.legends:
        box = legend.get_window_extent(figure.pen)
        found += [
            "the legend covers a panel" for p in figure.axes if box.overlaps(p.get_tightbbox(figure.pen))
        ]
    return found


@pytest.mark.parametrize(("name", "kind", "width"), [*SOME, *slow(*(one for one in EACH if one not in SOME))])
def test_all_texts_have_room(name, kind, width):
    folder = FOLDERS[name]
    figure = draw(kind, folder.runs(), folder.against, page_of(width, **folder.page))
    assert not faults(figure)
