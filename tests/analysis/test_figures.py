"""Every figure: what it shows is in the files, nothing covers anything, and it looks as it did.

The comparison with a picture uses matplotlib's own font and a small, coarse image, so that it finds a line
or label that went missing and not another rounding of a pixel.
"""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from made_up import comparison_runs, rate_runs, shared_runs, trust_runs
from matplotlib import image as pictures
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from missing import missing

import mu2mpi
from mu2mpi.analysis import figures
from mu2mpi.analysis.catalogue import FIGURES, KINDS
from mu2mpi.analysis.figures import draw, image
from mu2mpi.analysis.figures.noise import noise_norm, signal_norm
from mu2mpi.analysis.figures.scaling import seconds_per_round
from mu2mpi.analysis.figures.style import DARK, LIGHT
from mu2mpi.analysis.groups import chosen
from mu2mpi.analysis.settings import varying
from mu2mpi.config.experiment import Experiment
from mu2mpi.errors import InputError
from mu2mpi.federation.stopwatch import PHASES
from mu2mpi.results.reader import Summary, read_result, read_summary

BASELINES = Path(__file__).parent / "baselines"


@pytest.fixture(scope="module")
def runs(folder):
    return mu2mpi.load(folder).summaries


@pytest.fixture(scope="module")
def populations(tmp_path_factory):
    """Return runs of both estimators on a population."""
    folder = tmp_path_factory.mktemp("populations")
    settings = {"data": "population", "features": 3, "machines": 2, "rounds": 200, "rho": math.inf}
    for estimator in ("corrected-momentum", "gradient"):
        for seed in (1, 2):
            experiment = Experiment(**settings, estimator=estimator, seed=seed)
            mu2mpi.run(experiment, output=folder / f"{estimator}-{seed}.h5")
    return mu2mpi.load(folder).summaries


def made_up(ranks, machines, seed=1, elapsed=1.0, cores=4, **settings):
    """Return a summary as of a run on some ranks, without a file; a quarter of its time is waiting."""
    experiment = Experiment(data="digits", machines=machines, rounds=100, seed=seed, **settings)
    figures = {"ranks": ranks, "cores": cores, "elapsed_seconds": elapsed, "evaluation_seconds": 0.0}
    figures |= {"noise_seconds": 0.75 * elapsed, "waiting_seconds": 0.25 * elapsed}
    return Summary(Path(f"{machines}-{ranks}-{seed}.h5"), experiment, "", 2.0, 0.5, figures)


def scaling_runs():
    """Return three repeats of strong scaling, the second of which took the median time, and weak scaling."""
    strong = [
        made_up(p, 8, elapsed=(1.0 + luck) / p + 0.02 * p) for luck in (0.3, 0, -0.1) for p in (1, 2, 4, 8)
    ]
    return strong + [made_up(p, 2 * p, elapsed=0.3 + 0.02 * p) for p in (1, 2, 8)]


def lines(panel):
    return [
        line for line in panel.get_lines() if len(line.get_xdata()) > 1 and line.get_linestyle() != "None"
    ]


def legend_labels(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_history_is_mean_and_band_over_seeds(runs):
    figure = draw("history", runs)
    panels = np.array(figure.axes).reshape(2, 2)
    assert [panel.get_title(loc="left") for panel in panels[0]] == ["untrusted server", "trusted server"]
    assert panels[0, 0].get_ylabel() == "test loss (nats)"
    assert panels[1, 0].get_ylabel() == "test accuracy (%)"
    assert legend_labels(figure) == ["ρ = 4", "ρ = 16", "M = 2", "M = 10", "band: ± 1 standard deviation"]
    members = [r for r in runs if r.experiment.server == "trusted" and r.experiment.rho == 4][:3]
    assert {run.experiment.machines for run in members} == {10}
    accuracies = np.array([read_result(run.path).history.test_accuracy for run in members])
    drawn = [line.get_ydata() for line in lines(panels[1, 1])]
    assert any(np.allclose(100 * accuracies.mean(axis=0), y) for y in drawn)
    bands = [collection.get_paths()[0].vertices[:, 1] for collection in panels[1, 1].collections]
    top = 100 * (accuracies.mean(axis=0) + accuracies.std(axis=0, ddof=1))
    assert any(np.isin(top.round(9), band.round(9)).all() for band in bands)


def test_history_against_samples(runs):
    figure = draw("history", runs, against="samples")
    assert figure.axes[-1].get_xlabel() == "training samples used by all machines"
    assert {line.get_xdata()[-1] for line in lines(figure.axes[0])} == {120, 600}


def paper_cell(rho, seed):
    experiment = Experiment(data="mnist", machines=100, rounds=600, rho=rho, seed=seed)
    return Summary(Path(f"{rho}-{seed}.h5"), experiment, "", 2.28, 0.65, {"epsilon_exact": 5 * rho})


def test_tradeoff_has_every_cell_and_the_papers_values(runs):
    figure = draw("tradeoff", runs)
    loss, accuracy = figure.axes
    assert len(lines(loss)) == 4
    for run in runs[:1]:
        same = [r for r in runs if varying([r, run]) == []]
        mean = np.mean([100 * r.test_accuracy for r in same])
        assert any(
            np.isclose(mean, y).any()
            for y in (np.asarray(line.get_ydata(), float) for line in lines(accuracy))
        )
    assert "the paper's values" not in legend_labels(figure)
    paper = [paper_cell(rho, seed) for rho in (4.0, 8.0) for seed in (1, 2)]
    figure = draw("tradeoff", paper, against="epsilon")
    assert "the paper's values" in legend_labels(figure)
    points = {(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in figure.axes[0].get_lines()}
    assert {(20.0, 2.285), (40.0, 2.274)} <= points
    assert figure.axes[0].get_xlabel().startswith("exact ε at δ = 1e-05")


def test_weights_are_the_rows_of_x(runs):
    figure = draw("weights", runs)
    best = min(runs, key=lambda run: run.test_loss)
    x = read_result(best.path).x
    images = [axes.images[0].get_array() for axes in figure.axes if axes.images]
    assert len(images) == 10
    for k in range(10):
        np.testing.assert_array_equal(images[k].ravel(), x[k, :-1])
    assert "the run of smallest loss" in figure.get_suptitle()


def test_partition_shows_the_shares_of_classes(folder, tmp_path):
    for partition in ("iid", "labels:1"):
        experiment = Experiment(machines=5, rounds=9, seed=1, partition=partition)
        mu2mpi.run(experiment, output=tmp_path / f"{partition[0]}.h5")
    figure = draw("partition", mu2mpi.load(tmp_path).summaries)
    panels = figure.axes[:2]
    assert [panel.get_title(loc="left") for panel in panels] == ["iid", "labels:1"]
    for panel, name in zip(panels, "il", strict=True):
        counts = read_result(tmp_path / f"{name}.h5").class_counts
        np.testing.assert_allclose(panel.get_images()[0].get_array(), counts / 9)
        assert [text.get_text() for text in panel.get_xticklabels()] == [str(k) for k in range(10)]
    assert np.all((counts == 9).sum(axis=1) == 1)


@pytest.fixture(scope="module")
def away(tmp_path_factory):
    """Return a run of machines that are sometimes away, and one with epsilons alone."""
    folder = tmp_path_factory.mktemp("away")
    settings = {"data": "synthetic", "machines": 5, "rounds": 9, "seed": 1, "participation": "uniform:2"}
    mu2mpi.run(Experiment(**settings), output=folder / "a.h5")
    drawn = Experiment(method="noisy-minibatch-sgd", batch=60, epsilon=1.0, **settings)
    mu2mpi.run(drawn, output=folder / "b.h5")
    return mu2mpi.load(folder).summaries


def test_machines_are_drawn_from_the_least_to_the_most(away, runs):
    for run, private in zip(away, ("rho", "epsilon"), strict=True):
        accounts = read_result(run.path).accounts
        figure = draw("machines", [*runs, run])
        above, below = figure.axes
        samples, rounds = (line.get_ydata() for line in above.get_lines())
        np.testing.assert_array_equal(samples, np.sort(accounts.samples))
        np.testing.assert_array_equal(rounds, np.sort(accounts.rounds))
        np.testing.assert_array_equal(below.get_lines()[-1].get_ydata(), np.sort(getattr(accounts, private)))
        names = [int(text.get_text()) for text in below.get_xticklabels()]
        assert accounts.rounds[names].tolist() == rounds.tolist()
        assert "participation = uniform:2" in figure.get_suptitle()
        assert FIGURES["machines"].reported([*runs, run])
    with pytest.raises(InputError, match="in none of these runs machines differ"):
        draw("machines", runs)


def test_weights_that_are_no_image_are_strips(tmp_path):
    path = tmp_path / "a.h5"
    mu2mpi.run(Experiment(data="synthetic", samples=40, features=7, machines=2, seed=1), output=path)
    figure = draw("weights", mu2mpi.load(path).summaries)
    assert figure.axes[0].images[0].get_array().shape == (3, 7)


def test_noise_norms(runs):
    trusted = next(r for r in runs if r.experiment.server == "trusted" and r.experiment.machines == 10)
    untrusted = next(r for r in runs if r.experiment.server == "untrusted" and r.experiment.machines == 10)
    sigma, d = trusted.figures["sigma"], 650
    first = np.array([1])
    assert noise_norm(trusted, first) == pytest.approx(sigma * math.sqrt(d) / 10)
    assert noise_norm(untrusted, first) == pytest.approx(untrusted.figures["sigma"] * math.sqrt(d / 10))
    theory = read_result(trusted.path).theory
    np.testing.assert_allclose(
        signal_norm(trusted, np.array([1.0, 60.0])), [theory.first_slope, 60 * theory.last_slope]
    )
    figure = draw("noise", runs)
    assert legend_labels(figure)[-1] == "released q̃$_t$, measured"
    drawn = [line.get_ydata()[0] for line in lines(figure.axes[1]) if np.ptp(line.get_ydata()) == 0]
    assert any(np.isclose(y, noise_norm(trusted, first)[0]) for y in drawn)


def test_noise_of_runs_without_noise(tmp_path):
    path = tmp_path / "a.h5"
    mu2mpi.run(Experiment(machines=2, rounds=30, rho=math.inf, seed=1, evaluations=4), output=path)
    figure = draw("noise", mu2mpi.load(path).summaries)
    assert not any("noise" in label for label in legend_labels(figure))
    with pytest.raises(InputError, match="without noise"):
        draw("tradeoff", mu2mpi.load(path).summaries)


def test_timing_by_group_and_by_rank(runs, tmp_path):
    figure = draw("timing", runs)
    assert len(figure.axes[0].patches) == 8 * len(PHASES)
    one = draw("timing", runs[:1])
    assert [label.get_text() for label in one.axes[0].get_yticklabels()] == ["rank 0"]
    total = sum(patch.get_width() for patch in one.axes[0].patches)
    assert total == pytest.approx(sum(s.sum() for s in read_result(runs[0].path).timing.values()))


def test_times_of_earlier_versions_are_drawn_beside_those_of_this_one(runs, tmp_path):
    import h5py

    now, *others = runs
    path = tmp_path / "earlier.h5"
    path.write_bytes(now.path.read_bytes())
    with h5py.File(path, "r+") as file:
        del file.attrs["cores"]
        for phase in ("step", "data", "moving", "waiting"):
            del file["timing"][phase]
        file["timing/communication"] = [7.0]
    repeat = next(run for run in others if varying([now, run]) == [])
    another = next(run for run in others if varying([now, run]) != [])
    for beside, widest in ((repeat, 3.5), (another, 7.0)):
        figure = draw("timing", [read_summary(path), beside])
        assert {"communication", "moving", "waiting"} <= {*legend_labels(figure)}
        assert max(bar.get_width() for bar in figure.axes[0].patches) == pytest.approx(widest)


def test_scaling_finds_strong_and_weak_series():
    figure = draw("scaling", scaling_runs())
    strong, weak, strong_efficiency, weak_efficiency, *_ = figure.axes
    assert strong.get_title(loc="left").startswith("strong")
    assert weak.get_title(loc="left").startswith("weak")
    said = ["M = 8", "M = 2 per rank", "ideal", "bars: least to most", "hollow: more ranks than cores"]
    assert legend_labels(figure) == [*said, "noise", "waiting"]
    ranks, times = np.array([1, 2, 4, 8]), np.array([10.2, 5.4, 3.3, 2.85])
    measured, ideal = lines(strong)
    np.testing.assert_allclose(measured.get_xdata(), ranks)
    np.testing.assert_allclose(measured.get_ydata(), times)
    (bars,) = strong.collections
    np.testing.assert_allclose(
        [part[:, 1] for part in bars.get_segments()], times[:, None] + np.outer(10 / ranks, [-0.1, 0.3])
    )
    # With eight ranks on four cores, nothing is ideal.
    np.testing.assert_allclose(ideal.get_xdata(), [1, 2, 4])
    np.testing.assert_allclose(ideal.get_ydata(), 10.2 / ranks[:3])
    np.testing.assert_allclose(lines(strong_efficiency)[0].get_ydata(), 100 * 10.2 / (ranks * times))
    # Eight machines on four ranks are two on each.
    weak_share = 3.2 / np.array([3.2, 3.4, 3.3, 4.6])
    np.testing.assert_allclose(lines(weak_efficiency)[0].get_ydata(), 100 * weak_share)
    assert seconds_per_round(made_up(1, 8, elapsed=2.0)) == 0.02
    with pytest.raises(InputError, match=r"scaling\.sbatch"):
        draw("scaling", [made_up(1, 8), made_up(1, 8, seed=2)])
    with pytest.raises(InputError, match="--where"):
        draw("scaling", [made_up(p, 8, rho=float(rho)) for p in (1, 2) for rho in range(1, 10)])


def test_scaling_marks_more_ranks_than_cores_and_stacks_phases():
    figure = draw("scaling", scaling_runs())
    strong, *_, stack, _ = figure.axes
    (hollow,) = (line for line in strong.get_lines() if str(line.get_markerfacecolor()) == LIGHT.paper)
    assert list(hollow.get_xdata()) == [8]
    assert stack.get_title(loc="left") == "M = 8"
    bars = [[(bar.get_y(), bar.get_height(), bar.get_alpha()) for bar in of] for of in stack.containers]
    assert bars[0] == [(0, pytest.approx(75), alpha) for alpha in (None, None, None, 0.5)]
    assert bars[1] == [(pytest.approx(75), pytest.approx(25), alpha) for alpha in (None, None, None, 0.5)]
    enough = [made_up(p, 8, elapsed=1.0 / p, cores=8) for p in (1, 8)]
    assert not any("cores" in label for label in legend_labels(draw("scaling", enough)))


def test_errors_are_means_over_seeds_with_their_slopes(runs, populations):
    figure = draw("errors", populations)
    (panel,) = figure.axes
    plain, flat, momentum, slope = (line.get_ydata() for line in lines(panel))
    t = lines(panel)[2].get_xdata()
    of_momentum = [read_result(run.path).history.estimate_error for run in populations[:2]]
    np.testing.assert_allclose(momentum, np.mean(of_momentum, axis=0))
    np.testing.assert_allclose(slope, momentum[0] / t)
    assert np.all(flat == plain[0])
    assert momentum[-1] < 0.2 * plain[-1]
    assert "Anytime-SGD" in legend_labels(figure)
    with pytest.raises(InputError, match="population only"):
        draw("errors", runs)


def test_too_much_for_one_figure_says_what_to_choose():
    many = [made_up(1, 8, rho=float(rho)) for rho in range(1, 10)]
    with pytest.raises(InputError, match="--where rho="):
        draw("history", many)


def test_runs_are_chosen_by_their_settings(runs):
    assert {run.experiment.rho for run in chosen(runs, ["rho=4", "server=trusted"])} == {4.0}
    assert chosen(runs, ["clip_norm=unset"]) == runs
    for condition, word in (("rho", "no condition"), ("roh=4", "no condition"), ("rho=5", "rho is 4, 16")):
        with pytest.raises(InputError, match=word):
            chosen(runs, [condition])


@pytest.mark.parametrize(("kind", "against"), [("history", "rho"), ("noise", "round"), ("pie", None)])
def test_no_such_figure_or_axis(runs, kind, against):
    with pytest.raises(InputError, match=kind):
        draw(kind, runs, against)


def test_every_module_that_draws_is_in_the_catalogue():
    modules = Path(figures.__file__).parent.glob("[!_]*.py")
    assert {path.stem for path in modules if "\ndef draw(" in path.read_text()} == set(FIGURES)


def test_a_report_leaves_out_what_is_private_or_says_nothing(runs, populations):
    never = {"partition", "coefficients", "participation", "machines", "trust"}
    for members, absent in (
        (runs, {"errors", "comparison"}),
        (populations, {"tradeoff"}),
        (populations[:2], {"tradeoff", "comparison"}),
        ([*runs, *populations], set()),
    ):
        assert {kind for kind, facts in FIGURES.items() if not facts.reported(members)} == never | absent


def test_the_catalogue_costs_little():
    script = (
        "import sys, mu2mpi.analysis.catalogue\n"
        "print([m for m in ('numpy', 'h5py', 'pydantic', 'matplotlib') if m in sys.modules])"
    )
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert child.stdout == "[]\n"


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_covers_data_and_nothing_is_cut_off(runs, populations, away, kind):
    others = {
        "scaling": scaling_runs,
        "rates": rate_runs,
        "comparison": comparison_runs,
        "errors": lambda: populations,
        "machines": lambda: away,
        "participation": lambda: [*shared_runs(0.5), *shared_runs(0.2, noise_correlation=0.0)],
        "trust": lambda: [run for rho in (0.5, 1.0, 12.5) for run in trust_runs(rho=rho)],
    }
    figure = draw(kind, others[kind]() if kind in others else runs)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    page = figure.bbox
    for panel in figure.axes:
        box = panel.get_tightbbox(renderer)
        assert box.x0 >= page.x0 - 2
        assert box.x1 <= page.x1 + 2
    for legend in figure.legends:
        box = legend.get_window_extent(renderer)
        assert page.x0 <= box.x0
        assert box.x1 <= page.x1
        assert not any(box.overlaps(panel.get_tightbbox(renderer)) for panel in figure.axes)


def lightness(colour):
    return np.dot(to_rgb(colour), [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_tell_apart_in_grey(theme):
    for count in range(2, 8):
        grey = np.array([lightness(colour) for colour in theme.colours(count)])
        assert np.all(np.diff(grey) > 0.4 / count)
        assert np.all(np.abs(grey - lightness(theme.paper)) > 0.15)


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_formats_and_the_same_bytes_each_time(runs, suffix):
    one, two = (image(draw("tradeoff", runs), suffix) for _ in range(2))
    assert one == two
    assert one.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix])


def test_the_users_style_changes_nothing(runs):
    import matplotlib as mpl

    before = image(draw("timing", runs), "png")
    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9, "figure.facecolor": "red"}):
        assert image(draw("timing", runs), "png") == before
        assert mpl.rcParams["font.size"] == 30


def small(png: bytes) -> np.ndarray:
    """Return a picture in grey, reduced to blocks of about 10 pixels."""
    import io

    grey = pictures.imread(io.BytesIO(png))[..., :3].mean(axis=-1)
    rows, columns = (length // 10 for length in grey.shape)
    return grey[: rows * 10, : columns * 10].reshape(rows, 10, columns, 10).mean(axis=(1, 3))


@pytest.mark.parametrize("kind", ["tradeoff", "scaling"])
def test_figures_look_as_they_did(kind):
    """Against tests/analysis/baselines, drawn from made-up numbers; see make_baselines below."""
    path = BASELINES / f"{kind}.png"
    if not path.exists():
        missing(f"{path} does not exist; make it with make_baselines")
    baseline = pictures.imread(path)[..., 0]
    now = small(image(draw(kind, baseline_runs(kind)), "png"))
    assert now.shape == baseline.shape
    assert np.mean(np.abs(now - baseline)) < 0.01
    # Each block for itself, with room for a line that moved by a pixel.
    assert np.quantile(np.abs(now - baseline), 0.99) < 0.12


def baseline_runs(kind):
    return scaling_runs() if kind == "scaling" else [
        baseline_run(server, rho, M, seed)
        for server in ("untrusted", "trusted")
        for rho in (4.0, 8.0, 16.0)
        for M in (1, 10, 100)
        for seed in (1, 2, 3)
    ]  # fmt: skip


def baseline_run(server, rho, M, seed):
    experiment = Experiment(data="mnist", server=server, machines=M, rounds=60_000 // M, rho=rho, seed=seed)
    loss = 2.25 + (0.1 + 0.005 * seed) * (M if server == "untrusted" else 1) ** 0.5 / rho / 10
    path = Path(f"{server}-{rho}-{M}-{seed}.h5")
    return Summary(path, experiment, "", loss, 0.7 - 0.02 * seed / rho, {"epsilon_exact": 5.0 * rho})


def make_baselines() -> None:
    """Draw the baselines anew: cd tests/analysis; PYTHONPATH=.. python -c 'import test_figures as t; ...'."""
    BASELINES.mkdir(exist_ok=True)
    for kind in ("tradeoff", "scaling"):
        picture = small(image(draw(kind, baseline_runs(kind)), "png"))
        pictures.imsave(BASELINES / f"{kind}.png", picture, cmap="gray", vmin=0, vmax=1)
