"""No text of a figure covers another, and none is cut off, whatever is drawn at whatever width."""

import io
from itertools import combinations, product

import pytest
from helpers.figure_cases import FOLDERS
from helpers.slow import slow
from matplotlib import image as pictures
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

import mu2mpi
from mu2mpi.analysis.figures import FigureOptions, draw_figure, render_figure
from mu2mpi.core.errors import InputError

WIDTHS = ("column", "page")
EACH = [(name, kind, width) for name, of in FOLDERS.items() for kind in of.kinds for width in WIDTHS]
LARGE = ("rates", "ranks", "forty bars", "colluders")
SOME = [(n, FOLDERS[n].kinds[0], WIDTHS[k % 2]) for k, n in enumerate(FOLDERS) if n not in LARGE][::3]


def texts_of(figure):
    """Return all texts that are drawn."""
    found = [figure._suptitle, *(text for legend in figure.legends for text in legend.get_texts())]
    for panel in figure.axes:
        found += [*panel.texts, panel.title, panel._left_title]
        if not panel.axison:
            continue
        found += [panel.xaxis.label, panel.yaxis.label]
        for axis in (panel.xaxis, panel.yaxis):
            found += [axis.get_offset_text(), *(tick.label1 for tick in axis._update_ticks())]
    return [text for text in found if text is not None and text.get_visible() and text.get_text().strip()]


def box_of(text, figure):
    box = text.get_window_extent(figure._get_renderer())
    # A text has some air above its letters.
    return Bbox.from_extents(box.x0 + 0.5, box.y0 + 0.1 * box.height, box.x1 - 0.5, box.y1 - 0.1 * box.height)


def faults(figure):
    """Return which texts cover others or leave the figure, and which legends lie on panels."""
    figure.draw_without_rendering()
    page, renderer = figure.bbox, figure._get_renderer()
    boxes = [(text.get_text(), box_of(text, figure)) for text in texts_of(figure)]
    found = [
        f"{text!r} leaves the figure: {box} not in {page.size}" for text, box in boxes
        if box.x0 < page.x0 or box.x1 > page.x1 or box.y0 < page.y0 or box.y1 > page.y1
    ]  # fmt: skip
    found += [f"{a!r} covers {b!r}" for (a, one), (b, two) in combinations(boxes, 2) if one.overlaps(two)]
    for legend, panel in product(figure.legends, figure.axes):
        if legend.get_window_extent(renderer).overlaps(panel.get_tightbbox(renderer)):
            found.append("the legend covers a panel")
    return found


@pytest.mark.parametrize(("name", "kind", "width"), [*SOME, *slow(*(one for one in EACH if one not in SOME))])
def test_all_texts_have_room(name, kind, width):
    folder = FOLDERS[name]
    figure = draw_figure(kind, folder.runs(), folder.x_axis, FigureOptions(width, **folder.page))
    assert not faults(figure)
    # The panels of many rates hold text, and many exponents make a long legend.
    assert figure.get_figheight() <= (5 if kind == "rates" or name == "colluders" else 4.05)
    ticks = [tick.label1 for p in figure.axes for a in (p.xaxis, p.yaxis) for tick in a.get_major_ticks()]
    assert {tick.get_fontsize() for tick in ticks} == {8.0}


def study():
    return FOLDERS["epsilon"].runs()


def test_a_figure_has_the_width_type_size_and_axes_that_are_asked_for():
    linear = draw_figure("tradeoff", study(), options=FigureOptions(linear=True))
    assert {(p.get_xscale(), p.get_yscale()) for p in linear.axes} == {("linear", "linear")}
    assert draw_figure("tradeoff", study()).axes[0].get_xscale() == "log"
    # A notebook shows a figure by itself.
    assert linear._repr_png_().startswith(b"\x89PNG")
    for width, inches in (("column", 3.3), (5.5, 5.5)):
        figure = draw_figure("tradeoff", study(), options=FigureOptions(width))
        assert {text.get_fontsize() for text in texts_of(figure)} == {8.0}
        picture = pictures.imread(io.BytesIO(render_figure(figure, "png")))
        assert picture.shape[1] == round(200 * inches)
    for wrong in ("coloumn", "0.5", "nan"):
        with pytest.raises(InputError):
            FigureOptions(wrong)


def test_own_labels_take_the_place_of_symbols():
    page = FigureOptions(labels={"epsilon=1": "strong", "server": "seen by", "epsilon=2": "weak"})
    (legend,) = draw_figure("tradeoff", study(), options=page, x_axis="machines").legends
    assert {"strong", "weak"} <= {text.get_text() for text in legend.get_texts()}
    with pytest.raises(InputError, match=r"'eps'"):
        FigureOptions(labels={"eps=1": "strong"})


def test_a_style_sheet_has_the_last_word_but_for_the_width(tmp_path):
    sheet = tmp_path / "own.mplstyle"
    sheet.write_text("font.size: 6\nsavefig.bbox: tight\nsavefig.facecolor: ff0000\n")
    page = FigureOptions("column", style=sheet)
    figure = draw_figure("tradeoff", study(), options=page)
    assert {text.get_fontsize() for text in texts_of(figure)} == {6.0}
    picture = pictures.imread(io.BytesIO(render_figure(figure, "png", page)))
    assert picture.shape[1] == 660
    assert picture[0, 0, :3].tolist() == [1, 0, 0]
    sheet.write_text("font.size: large and more\n")
    for wrong in (sheet, tmp_path / "none.mplstyle"):
        with pytest.raises(InputError):
            FigureOptions(style=wrong)


def test_own_axes_are_drawn_into_and_nothing_else(folder):
    runs = mu2mpi.load(folder)
    figure = Figure(figsize=(5, 2))
    one, other = figure.subplots(1, 2)
    other.plot([1, 2], [3, 4])
    assert runs.plot("tradeoff", ax=one) is one
    assert one.get_legend() is not None
    assert (figure.get_size_inches().tolist(), figure.legends, figure.get_suptitle()) == ([5, 2], [], "")
    assert len(other.lines) == 1
    both = runs.plot("history", ax=Figure().subplots(1, 2), title="all")  # one for each server
    assert both[0].get_ylabel() == both[1].get_ylabel() == one.get_ylabel() == "test loss (nats)"
    assert "untrusted server, M = 10, ρ = 4" in {line.get_label() for line in both[0].get_lines()}
    four = Figure().subplots(2, 2)
    runs.plot("history", ax=four)
    assert four[1, 1].get_ylabel() == "test accuracy (%)"
    with pytest.raises(InputError):
        runs.plot("history", ax=[*four.flat][:3])
