"""Every figure shows what is in the files, and nothing that is not there."""

import math
from dataclasses import replace
from itertools import product
from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers.summaries import METHODS, comparison_run, comparison_runs
from scipy.special import ndtr, ndtri

import mu2mpi
from mu2mpi.analysis.figures import FigureOptions, draw_figure, get_figure, render_figure
from mu2mpi.analysis.figures._encoding import dodged_places
from mu2mpi.analysis.setting_labels import select_runs
from mu2mpi.cli import main
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import known_names
from mu2mpi.results.reader import RunSummary, read_result, read_summary
from mu2mpi.results.records import History


@pytest.fixture(scope="module")
def runs(folder):
    return mu2mpi.load(folder).summaries


def made(seed=1, reached=None, **settings):
    """Return a summary as of a run on digits, without a file, with another loss for each of its settings."""
    experiment = Experiment(**{"data": "digits", "machines": 4, "rounds": 90, "seed": seed, **settings})
    exact = math.inf if experiment.rho == math.inf else 0.998 * (experiment.epsilon or experiment.rho)
    figures = {"epsilon_exact": exact, "ranks": 1, "elapsed_seconds": 1.0, "noise_seconds": 0.5}
    luck = np.random.default_rng(sum(map(ord, experiment.to_toml()))).random()
    loss = luck if reached is None else reached
    return RunSummary(Path(f"{luck}.h5"), experiment, "", loss, 0.5 * luck, figures)


def with_history(run, rounds, **columns):
    """Give a summary a history, as if it had been read."""
    nothing = {name: np.zeros(len(rounds)) for name in History.column_names()}
    vars(run)["history"] = History(**{**nothing, "round": np.array(rounds), **columns})
    return run


def on_ranks(ranks, machines, seed=1, elapsed=1.0, cores=4, **settings):
    """Return a summary as of a run on some ranks; a quarter of its time is waiting."""
    run = made(seed, machines=machines, rounds=100, **settings)
    times = {"elapsed_seconds": elapsed, "noise_seconds": 0.75 * elapsed, "waiting_seconds": 0.25 * elapsed}
    return replace(run, measurements={"ranks": ranks, "cores": cores, "evaluation_seconds": 0.0, **times})


def legend(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def lines(panel):
    return [of for of in panel.get_lines() if len(of.get_xdata()) > 1 and of.get_linestyle() != "None"]


def points(panel):
    """Return the lines of means of a panel, as pairs of where they are and what they show."""
    return [container.lines[0].get_data(orig=False) for container in panel.containers]


def ticks(panel):
    return [text.get_text() for text in panel.get_xticklabels()]


def test_history_is_mean_and_band_over_seeds(runs):
    figure = draw_figure("history", runs)
    panels = np.array(figure.axes).reshape(2, 2)
    assert [panel.get_title(loc="left") for panel in panels[:, 0]] == ["untrusted server", "trusted server"]
    assert legend(figure) == ["ρ = 4", "ρ = 16", "M = 2", "M = 10", "band: ± 1 std"]
    members = [r for r in runs if r.experiment.server == "trusted" and r.experiment.rho == 4][:3]
    accuracies = np.array([read_result(run.path).history.test_accuracy for run in members])
    drawn = [line.get_ydata() for line in lines(panels[1, 1])]
    assert any(np.allclose(100 * accuracies.mean(axis=0), y) for y in drawn)
    bands = [collection.get_paths()[0].vertices[:, 1] for collection in panels[1, 1].collections]
    top = 100 * (accuracies.mean(axis=0) + accuracies.std(axis=0, ddof=1))
    assert any(np.isin(top.round(9), band.round(9)).all() for band in bands)
    samples = draw_figure("history", runs, x_axis="samples")
    assert {line.get_xdata()[-1] for line in lines(samples.axes[0])} == {120, 600}


def test_histories_are_joined_at_the_rounds_that_all_seeds_have():
    members = []
    for seed, at in enumerate(map(np.array, ([1, 2, 4, 8, 40, 100], [1, 4, 20, 40, 120])), 1):
        run = made(seed, participation="bernoulli:0.5", rounds=int(at[-1]))
        measured = {"test_loss": seed / at, "test_accuracy": at / 1000, "samples": 5 * seed * at}
        members.append(with_history(run, at, **measured))
    (line,) = draw_figure("history", members).axes[0].get_lines()
    # They end together, although at different rounds.
    np.testing.assert_array_equal(line.get_xdata(), [1, 4, 40, 110])
    np.testing.assert_allclose(line.get_ydata(), [1.5, 1.5 / 4, 1.5 / 40, (1 / 100 + 2 / 120) / 2])
    (line,) = draw_figure("history", members, x_axis="samples").axes[0].get_lines()
    np.testing.assert_array_equal(line.get_xdata(), [7.5, 30, 300, 850])


def test_tradeoff_against_any_number():
    grid = product(("untrusted", "trusted"), (1.0, 2.0, 4.0), (1, 3, 10, 30), (1, 2, 3))
    study = [made(s, server=v, epsilon=e, machines=M, rounds=1000 // M) for v, e, M, s in grid]
    figure = draw_figure("tradeoff", study, x_axis="machines")
    loss, accuracy = figure.axes
    assert legend(figure)[:5] == ["ε = 1", "ε = 2", "ε = 4", "untrusted server", "trusted server"]
    assert len(points(loss)) == len(points(accuracy)) == 6
    # Rounds change with M, and part no points.
    same = [r.test_loss for r in study if r.experiment.server == "trusted" and r.experiment.epsilon == 2]
    means = np.array(same).reshape(4, 3).mean(axis=1)
    assert any(np.allclose(y, means) for _, y in points(loss))
    # Lines are side by side, nearer to their own value than to any other.
    places = np.array([x for x, _ in points(loss)])
    assert len(np.unique(places)) == places.size
    np.testing.assert_allclose(places, np.tile([1, 3, 10, 30], (6, 1)), rtol=0.2)
    assert len(points(draw_figure("tradeoff", study, x_axis="rounds").axes[0])) == 6
    by_privacy = draw_figure("tradeoff", study).axes[0]
    assert by_privacy.get_xlabel().startswith("ε at δ = 1e-05")
    for x, _ in points(by_privacy):
        np.testing.assert_allclose(x, [1, 2, 4], rtol=0.15)
    by_rho = draw_figure("tradeoff", [made(rho=rho) for rho in (4.0, 8.0)], x_axis="epsilon").axes[0]
    assert [tuple(x) for x, _ in points(by_rho)] == [(0.998 * 4, 0.998 * 8)]


def test_privacy_by_rho_and_by_epsilon_is_one_setting():
    given = ({"rho": 4.0}, {"rho": 16.0}, {"epsilon": 2.0}, {"epsilon": 8.0})
    mixed = [with_history(made(machines=M, **one), [1, 90]) for one in given for M in (4, 8)]
    four = ["ρ = 4", "ρ = 16", "ε = 2", "ε = 8"]
    assert legend(draw_figure("tradeoff", mixed, x_axis="machines")) == four
    assert legend(draw_figure("history", mixed)) == [*four, "M = 4", "M = 8"]


def test_bars_are_drawn_of_several_seeds_alone_and_runs_without_noise_as_levels():
    for count, drawn in ((1, False), (3, True)):
        alone, _ = draw_figure(
            "tradeoff", [made(s, epsilon=e) for s in range(count) for e in (1.0, 2.0)]
        ).axes
        assert any(bar.get_segments() for bar in alone.collections) == drawn
    levels = [made(rho=rho, reached=2.0) for rho in (2.0, 4.0)] + [made(rho=math.inf, reached=1.5)]
    figure = draw_figure("tradeoff", levels)
    assert "without noise" in legend(figure)
    assert [tuple(x) for x, _ in points(figure.axes[0])] == [(2.0, 4.0)]
    assert figure.axes[0].get_lines()[-1].get_ydata() == [1.5, 1.5]
    with pytest.raises(InputError):
        draw_figure("tradeoff", levels[2:], x_axis="rho")


def test_more_lines_than_dashes_become_panels_and_more_colours_than_seven_none():
    servers = {"untrusted": (None,), "aggregated": (0, 1, 2), "shuffled": (0, 1, 2), "trusted": (None,)}
    many = [
        made(server=server, colluders=c, machines=M)
        for server, colluders in servers.items()
        for c in colluders
        for M in (4, 8, 16)
    ]
    panels = np.array(draw_figure("tradeoff", many, x_axis="rho").axes).reshape(-1, 2)
    assert "trusted server" in [panel.get_title("left") for panel in panels[:, 0]]
    assert sum(len(panel.containers) for panel in panels[:, 0]) == len(many)
    with pytest.raises(InputError, match="--where rho="):
        draw_figure("history", [made(rho=float(rho)) for rho in range(1, 23)])


def test_values_choose_the_panels(runs, folder, tmp_path):
    one = FigureOptions(values=["test_accuracy"])
    for name, rows in (("tradeoff", 1), ("history", 2)):
        panels = draw_figure(name, runs, options=one).axes
        assert len(panels) == rows
        assert panels[0].get_ylabel() == "test accuracy (%)"
    three = FigureOptions(values=["rho_spent", "test_loss", "message_norm"])
    labels = {panel.get_ylabel() for panel in draw_figure("history", runs, options=three).axes}
    assert labels >= {"rho spent", "test loss (nats)", "message norm"}
    for name, value in (("tradeoff", "test_los"), ("history", "auc"), ("scaling", "test_loss")):
        with pytest.raises(InputError):
            draw_figure(name, runs, options=FigureOptions(values=[value]))
    # A measurement that a run lacks, as one of an older version, leaves a gap.
    lacking = replace(runs[0], measurements=runs[0].measurements | {"auc": 0.5})
    del lacking.measurements["auc"]
    (panel,) = draw_figure("tradeoff", [lacking, *runs[1:]], options=FigureOptions(values=["auc"])).axes
    assert panel.get_ylabel() == "test AUC"
    output = tmp_path / "a.svg"
    assert main(["plot", "tradeoff", str(folder), "--values", "auc,test_loss", "-o", str(output)]) == 0
    assert output.exists()


def test_scales_are_free_by_row():
    """A bad method leaves the others their scale."""
    study = [
        with_history(made(server=server, rho=rho), [1, 90], test_loss=np.array([worst, 0.5]))
        for server, worst in (("untrusted", 900.0), ("trusted", 2.0))
        for rho in (1.0, 2.0)
    ]
    bad, good = draw_figure("history", study).axes[::2]
    assert bad.get_ylim()[1] > 900
    assert good.get_ylim()[1] < 3


def test_the_tradeoffs_of_methods_share_their_scale_unless_one_is_far_off():
    def limits(**losses):
        study = [
            made(method=method.replace("_", "-"), machines=machines, server=server, rho=rho,
                 reached=loss / rho + 0.01 * machines)
            for method, loss in losses.items()
            for machines in (2, 4)
            for server in ("untrusted", "aggregated", "trusted")
            for rho in (1.0, 2.0)
        ]  # fmt: skip
        panels = draw_figure("tradeoff", study, options=FigureOptions(values=["test_loss"])).axes
        assert len(panels) == len(losses)
        return [panel.get_ylim() for panel in panels]

    first, second = limits(mu2_sgd=1.0, anytime_sgd=1.4)
    assert first == second
    bad, good = limits(mu2_sgd=1.0, anytime_sgd=9.0)
    assert good[1] < 2 < 8 < bad[1]
    # Ranges of one width, but far from each other.
    first, second = limits(mu2_sgd=1.0, anytime_sgd=-1.0)
    assert first != second


def test_lines_are_moved_apart_by_a_fifth_of_the_distance_at_most():
    places = [dodged_places([0.5, 2.0, 8.0], k, 20, is_log=True)[0.5] for k in range(20)]
    assert 0.43 < places[0] < places[-1] < 0.58


def test_losses_without_a_unit_in_common_are_not_mixed():
    hinge, softmax, logistic = (
        made(data="synthetic", classes=2, loss=name) for name in ("smoothed-hinge", "softmax", "logistic")
    )
    for other in (softmax, logistic):
        with pytest.raises(
            InputError, match=r"--where loss=\.\.\. \(in Python: runs\.select\(loss=\.\.\.\)\)"
        ):
            draw_figure("tradeoff", [hinge, other], x_axis="loss")
    assert (
        draw_figure("tradeoff", [softmax, logistic], x_axis="loss").axes[0].get_ylabel() == "test loss (nats)"
    )


def test_scaling_has_medians_and_efficiencies_of_strong_and_weak_series():
    repeats = [
        on_ranks(p, 8, elapsed=(1.0 + luck) / p + 0.02 * p) for luck in (0.3, 0, -0.1) for p in (1, 2, 4, 8)
    ]
    figure = draw_figure("scaling", repeats + [on_ranks(p, 2 * p, elapsed=0.3 + 0.02 * p) for p in (1, 2, 8)])
    strong, _, strong_efficiency, weak_efficiency, stack, _ = figure.axes
    assert {"M = 8", "M = 2 per rank", "ideal", "hollow: more ranks than cores"} <= {*legend(figure)}
    ranks, times = np.array([1, 2, 4, 8]), np.array([10.2, 5.4, 3.3, 2.85])
    measured, ideal = lines(strong)
    np.testing.assert_allclose(measured.get_data(), [ranks, times])
    ends = [part[:, 1] for part in strong.collections[0].get_segments()]
    np.testing.assert_allclose(ends, times[:, None] + np.outer(10 / ranks, [-0.1, 0.3]))
    # With eight ranks on four cores, nothing is ideal.
    np.testing.assert_allclose(ideal.get_data(), [[1, 2, 4], 10.2 / ranks[:3]])
    (hollow,) = (line for line in strong.get_lines() if str(line.get_markerfacecolor()) == "white")
    assert list(hollow.get_xdata()) == [8]
    np.testing.assert_allclose(lines(strong_efficiency)[0].get_ydata(), 100 * 10.2 / (ranks * times))
    # Eight machines on four ranks are two on each.
    np.testing.assert_allclose(lines(weak_efficiency)[0].get_ydata(), 320 / np.array([3.2, 3.4, 3.3, 4.6]))
    for area, below, height in zip(stack.collections, (0, 75), (75, 25), strict=True):
        corners = {tuple(corner) for corner in area.get_paths()[0].vertices.round(9)}
        assert corners == {(p, y) for p in (1, 2, 4, 8) for y in (below, below + height)}
    for wrong in ([1], [1, 2]):
        with pytest.raises(InputError):
            draw_figure("scaling", [on_ranks(p, 8, rho=float(rho)) for p in wrong for rho in range(1, 10)])


def test_errors_of_gradients_are_means_over_seeds_on_logarithmic_axes(tmp_path):
    settings = {"data": "population", "features": 3, "machines": 2, "rounds": 200, "rho": math.inf}
    for estimator, seed in product(("corrected-momentum", "gradient"), (1, 2)):
        experiment = Experiment(**settings, estimator=estimator, seed=seed)
        mu2mpi.run(experiment, output=tmp_path / f"{estimator}-{seed}.h5")
    populations = mu2mpi.load(tmp_path).summaries
    options = FigureOptions(values=["estimate_error"])
    (panel,) = draw_figure("history", populations, options=options).axes
    assert (panel.get_xscale(), panel.get_yscale()) == ("log", "log")
    _, momentum = (line.get_ydata() for line in lines(panel))
    measured = [read_result(run.path).history.estimate_error for run in populations[:2]]
    np.testing.assert_allclose(momentum, np.mean(measured, axis=0))


@pytest.mark.parametrize("method", ["mu2-sgd", "storm", "accelerated-srgd", "parallel-sgd"])
@pytest.mark.parametrize("rho", [4.0, math.inf])
def test_signal_and_noise_of_a_method(tmp_path, method, rho):
    """In the last rounds, messages without noise are k_t times the gradient, and others are noise."""
    clip_norm = 5.0 if method == "storm" else None
    settings = {"machines": 4, "rounds": 60, "method": method, "clip_norm": clip_norm, "rho": rho}
    experiment = Experiment(data="population", server="trusted", diameter=0.1, seed=1, **settings)
    result = mu2mpi.run(experiment, output=tmp_path / "a.h5")
    history, run = result.history, read_summary(tmp_path / "a.h5")
    weight = 1 if method == "parallel-sgd" else history.round[-2]
    gradients = run.experiment.chosen_method.estimator.gradients_per_sample * run.experiment.rounds
    noise = math.sqrt(result.x.size) * result.privacy.mechanism.sigma
    noise *= gradients / run.measurements["gradient_evaluations"]  # the average over the samples of a round
    expected = np.hypot(noise, weight * result.theory.final_gradient_norm)
    np.testing.assert_allclose(history.message_norm[-2], expected, rtol=0.7)


def test_tradeoff_of_methods_against_samples_and_gradients():
    several = FigureOptions(values=["gradient_evaluations", "test_loss"])
    figure = draw_figure("tradeoff", comparison_runs()[::-1], options=several)
    gradients, loss = figure.axes
    assert (gradients.get_xlabel(), gradients.get_xscale(), gradients.get_yscale()) == (
        "samples n",
        "log",
        "log",
    )
    assert (loss.get_ylabel(), loss.get_yscale()) == ("test loss (nats)", "linear")
    entries = dict(text.split(": ") for text in legend(figure)[: len(METHODS)])
    for title, (_, factor, exponent) in METHODS.items():
        # The clipping norm that one method has is no setting of its own.
        assert entries[title] == f"{exponent:.2f}"
        line = next(c.lines[0] for c in gradients.containers if c.get_label() == title)
        sizes = np.array([1000, 4000, 16_000])
        np.testing.assert_allclose(line.get_ydata(orig=False), factor * sizes**exponent)
    figure = draw_figure("tradeoff", comparison_runs(), "gradient_evaluations")
    assert {*METHODS} < {*legend(figure)}
    for title, (_, factor, exponent) in METHODS.items():
        x, y = next(c.lines[0] for c in figure.axes[0].containers if c.get_label() == title).get_data(
            orig=False
        )
        np.testing.assert_allclose(x, factor * sizes**exponent)
        np.testing.assert_allclose(y, 1 / np.sqrt(sizes) + 0.02)


def test_points_against_a_measurement_are_means_over_seeds():
    members = [
        replace(run, measurements=run.measurements | {"gradient_evaluations": 100.0 * T + seed, "mu": mu})
        for T, mu in ((10, 1.0), (20, 2.0), (40, math.inf))
        for seed in (1, 3)
        for run in [made(seed, rounds=T, reached=1.0 / T + 0.001 * seed)]
    ]
    panel = draw_figure("tradeoff", members, "gradient_evaluations").axes[0]
    ((x, y),) = points(panel)
    np.testing.assert_allclose(x, [1002, 2002, 4002])
    np.testing.assert_allclose(y, [0.102, 0.052, 0.027])
    with pytest.raises(InputError, match="gradient_evaluations"):
        draw_figure("tradeoff", members, "gradient_evaluation")
    # Of several methods at one size and privacy, the costs are compared.
    several = [replace(comparison_run(1000, factor=f, method=m)) for f, m in ((1, "dp-sgd"), (2, "mu2-sgd"))]
    figure = draw_figure("tradeoff", several)
    assert [tuple(x) for x, _ in points(figure.axes[0])] == [(1000,), (2000,)]
    assert get_figure("tradeoff").is_in_report(several)


def test_times_against_ranks_are_those_of_all_repetitions():
    repeats = [on_ranks(p, 8, elapsed=luck / p) for luck in (1.0, 1.2) for p in (1, 2, 4)]
    figure = draw_figure("tradeoff", repeats, "ranks", FigureOptions(values=["elapsed_seconds"]))
    assert "measured: −1.00" in legend(figure)


def test_runs_are_chosen_by_their_settings(runs):
    assert {run.experiment.rho for run in select_runs(runs, ["rho=4", "server=trusted"])} == {4.0}
    assert select_runs(runs, ["clip_norm=unset"]) == runs
    for condition in ("rho", "roh=4", "rho=5"):
        with pytest.raises(InputError):
            select_runs(runs, [condition])


@pytest.mark.parametrize(
    ("kind", "x_axis"), [("pie", None), ("tradeoff", "machnes"), ("scaling", "machines")]
)
def test_no_such_figure_or_axis(runs, kind, x_axis):
    with pytest.raises(InputError, match=x_axis or kind):
        draw_figure(kind, runs, x_axis)


def test_a_report_leaves_out_what_says_nothing(runs):
    for members, absent in ((runs, set()), (runs[:2], {"tradeoff"})):
        figures = map(get_figure, known_names("figures"))
        assert {figure.name for figure in figures if not figure.is_in_report(members)} == absent


@pytest.mark.parametrize(("suffix", "head"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_formats_and_the_same_bytes_whatever_the_users_style(suffix, head):
    import matplotlib as mpl

    some = [made(rho=rho) for rho in (1.0, 2.0)]
    one = render_figure(draw_figure("tradeoff", some), suffix)
    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9, "figure.facecolor": "red"}):
        assert render_figure(draw_figure("tradeoff", some), suffix) == one
    assert one.startswith(head)


def test_plot_tells_of_several_versions_and_chooses_the_figure(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first, second = sorted(folder.glob("*.h5"))[:2]
    for path in (first, second):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    with h5py.File(tmp_path / second.name, "r+") as file:
        file.attrs["mu2mpi_version"] = "0.0.1"
    for x_axis, kind in (("machines", "tradeoff"), ("samples", "history")):
        assert main(["plot", str(tmp_path), "--x-axis", x_axis]) == 0
        said = capsys.readouterr()
        assert said.out == f"{kind}.png\n"
        assert "0.0.1" in said.err
    assert main(["plot", str(folder), "--against", "machnes"]) == 2


def test_tradeoff_curves_are_those_of_the_guarantees_and_pass_through_the_stated_rates(runs, tmp_path):
    figure = draw_figure("tradeoff-curve", runs)
    (panel,) = figure.axes
    *curves, guessing = panel.get_lines()
    assert (panel.get_xscale(), panel.get_yscale()) == ("log", "log")
    np.testing.assert_array_equal(*guessing.get_data())
    # Runs of equal rho share a line, whatever their machines and servers.
    assert legend(figure) == ["ρ = 4: μ = 4.001", "ρ = 16: μ = 16.01", "guessing"]
    for curve, rho in zip(curves, (4.0, 16.0), strict=True):
        x, y = curve.get_data()
        truth = ndtr(ndtri(x) + rho)
        assert np.all(y >= truth * (1 - 1e-12))
        assert np.all(y <= truth * 1.001)
        run = next(run for run in runs if run.experiment.rho == rho)
        stated = dict(zip(x.tolist(), y.tolist(), strict=True))
        assert stated[0.01] == pytest.approx(run.measurements["tpr"], rel=1e-3)
        assert [x[k] for k in curve.get_markevery()] == [0.001, 0.01, 0.1]
    (linear,) = draw_figure("tradeoff-curve", runs, options=FigureOptions(linear=True)).axes
    assert linear.get_xscale() == linear.get_yscale() == "linear"
    lacking = replace(runs[0], measurements={})
    assert not get_figure("tradeoff-curve").is_in_report([lacking])
    plain = Experiment(machines=2, rounds=3, data="digits", rho=math.inf, seed=1)
    run = mu2mpi.run(plain, output=tmp_path / "none.h5")
    (noiseless,) = mu2mpi.load(tmp_path).summaries
    assert legend(draw_figure("tradeoff-curve", [noiseless])) == ["μ = ∞", "guessing"]
    assert {*draw_figure("tradeoff-curve", [noiseless]).axes[0].get_lines()[0].get_ydata()} == {1.0}
    assert run.privacy.mu == math.inf
    assert not get_figure("tradeoff-curve").is_in_report([noiseless])
    many = [replace(runs[0], measurements={"mu": float(k)}) for k in range(1, 9)]
    many = [replace(run, experiment=made(seed=k).experiment) for k, run in enumerate(many)]
    with pytest.raises(InputError, match="8 guarantees"):
        draw_figure("tradeoff-curve", many)
