"""What single figures show of folders as they come: any setting across, and nothing that is not there."""

import math
from dataclasses import replace
from itertools import product
from pathlib import Path

import h5py
import numpy as np
import pytest
from made_up import comparison_run, comparison_runs, rate_run, trust_runs

import mu2mpi
from mu2mpi.analysis.comparison import compare
from mu2mpi.analysis.figures import draw
from mu2mpi.analysis.figures.style import Page
from mu2mpi.analysis.figures.ticks import plain, round_numbers
from mu2mpi.analysis.layouts import Layout
from mu2mpi.analysis.rates import find_rates
from mu2mpi.analysis.tables import build_table
from mu2mpi.cli import main
from mu2mpi.config.experiment import Experiment
from mu2mpi.errors import InputError
from mu2mpi.problem.practical import Facts
from mu2mpi.results.reader import Summary
from mu2mpi.results.schema import History


def made(seed=1, reached=None, **settings):
    """Return a summary as of a run on digits, without a file, with another loss for each of its settings."""
    experiment = Experiment(**{"data": "digits", "machines": 4, "rounds": 90, "seed": seed, **settings})
    exact = math.inf if experiment.rho == math.inf else 0.998 * (experiment.epsilon or experiment.rho)
    figures = {"epsilon_exact": exact, "ranks": 1, "elapsed_seconds": 1.0, "noise_seconds": 0.5}
    luck = np.random.default_rng(sum(map(ord, experiment.to_toml()))).random()
    return Summary(
        Path(f"{luck}.h5"), experiment, "", luck if reached is None else reached, 0.5 * luck, dict(figures)
    )


def study():
    """Return a study of M at three epsilons, with both servers and three seeds."""
    grid = product(("untrusted", "trusted"), (1.0, 2.0, 4.0), (1, 3, 10, 30), (1, 2, 3))
    return [made(s, server=v, epsilon=e, machines=M, rounds=1000 // M) for v, e, M, s in grid]


def with_history(run, rounds, **columns):
    """Give a summary a history, as if it had been read."""
    nothing = {name: np.zeros(len(rounds)) for name in History.columns()}
    vars(run)["history"] = History(**{**nothing, "round": np.array(rounds), **columns})
    return run


def words(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def points(panel):
    """Return the lines of means of a panel, as pairs of where they are and what they show."""
    return [container.lines[0].get_data(orig=False) for container in panel.containers]


def ticks(panel):
    return [text.get_text() for text in panel.get_xticklabels()]


def test_losses_are_drawn_against_any_number():
    runs = study()
    figure = draw("tradeoff", runs, against="machines")
    loss, accuracy = figure.axes
    assert (loss.get_xscale(), loss.get_xlabel()) == ("log", "machines M")
    assert words(figure)[:5] == ["ε = 1", "ε = 2", "ε = 4", "untrusted server", "trusted server"]
    assert len(points(loss)) == len(points(accuracy)) == 6
    # Rounds change with M, and part no points.
    means = [
        np.mean([run.test_loss for run in runs if run.experiment.server == server
                 and (run.experiment.epsilon, run.experiment.machines) == (2.0, M)])
        for server, M in product(("untrusted", "trusted"), (1, 3, 10, 30))
    ]  # fmt: skip
    for server in (means[:4], means[4:]):
        assert any(list(x) == [1, 3, 10, 30] and np.allclose(y, server) for x, y in points(loss))
    assert draw("tradeoff", runs, "machines", Page(linear=True)).axes[0].get_xscale() == "linear"
    # Rounds are as good as M to be across, which changes with them then.
    assert len(points(draw("tradeoff", runs, against="rounds").axes[0])) == 6


def test_names_have_places_without_lines():
    runs = [made(s, method=m, machines=M) for s in (1, 2) for m in ("mu2-sgd", "dp-gd") for M in (4, 8)]
    loss, _ = draw("tradeoff", runs, against="method").axes
    assert sorted(ticks(loss)) == ["DP-GD", "μ²-SGD"]
    assert [container.lines[0].get_linestyle() for container in loss.containers] == ["None", "None"]
    places = np.array([x for x, _ in points(loss)])
    np.testing.assert_array_equal(places.round(), [[0, 1], [0, 1]])
    assert len(np.unique(places)) == 4
    some = [made(), made(clip_norm=1.0), made(clip_norm=0.5)]
    assert ticks(draw("tradeoff", some, against="clip_norm").axes[0]) == ["C = S", "0.5", "1"]


@pytest.mark.parametrize("width", [3.3, 7.0])
def test_no_name_is_left_out(width):
    methods = ("accelerated-srgd", "anytime-dp-mf", "anytime-sgd", "dp-gd", "dp-sgd", "mu2-sgd",
               "noisy-minibatch-sgd", "parallel-sgd", "snowball-sgd", "storm")  # fmt: skip
    runs = [made(method=m, server="trusted", clip_norm=1.0 if m == "storm" else None) for m in methods]
    figure = draw("tradeoff", runs, against="method", page=Page(width=width))
    for panel in figure.axes:
        assert len([name for name in ticks(panel) if name]) == len(methods)


@pytest.mark.parametrize(
    ("low", "high"), [(0.58, 2.7), (0.0085, 0.019), (1700, 13_000), (1, 1437), (0.97, 1.02)]
)
def test_logarithmic_axes_have_several_plain_numbers(low, high):
    numbers = round_numbers(low, high)
    assert 3 <= len(numbers) <= 8
    assert all(low <= number <= high and "e" not in plain(number) for number in numbers)
    assert max(numbers) / min(numbers) > (high / low) ** 0.4
    assert [plain(n) for n in (0.3, 1437.0, 20_000.0, 2e8)] == [
        "0.3",
        "1,437",
        "20,000",
        "$2 \\times 10^{8}$",
    ]


def test_rounds_are_plain_numbers():
    runs = [with_history(made(rounds=1437), [1, 1437])]
    assert ticks(draw("history", runs).axes[1]) == ["1", "10", "100", "1,000"]


def test_privacy_by_rho_and_by_epsilon_is_one_setting():
    given = ({"rho": 4.0}, {"rho": 16.0}, {"epsilon": 2.0}, {"epsilon": 8.0})
    runs = [made(machines=M, **one) for one in given for M in (4, 8)]
    four = ["ρ = 4", "ρ = 16", "ε = 2", "ε = 8"]
    assert words(draw("tradeoff", runs, against="machines")) == four
    runs = [with_history(run, [1, 90]) for run in runs]
    assert words(draw("history", runs)) == [*four, "M = 4", "M = 8"]
    table = build_table(runs, Layout(("machines",), ("epsilon", "rho"), ("test_loss",))).render()
    assert "δ = 1e-05" in table
    assert "unset" not in table


def test_points_without_others_at_their_place_are_on_its_tick_and_seeds_are_counted():
    runs = [made(s, method=m, epsilon=e) for s in (1, 2, 30) for m, e in (("mu2-sgd", 1.0), ("dp-gd", 2.0))]
    loss, _ = draw("tradeoff", runs, against="method").axes
    assert sorted(float(x[0]) for x, _ in points(loss)) == [0.0, 1.0]
    assert draw("tradeoff", runs, against="seed").axes[0].get_xscale() == "linear"
    # No deviation of one seed is drawn as if it were 0.
    for count, drawn in ((1, False), (3, True)):
        alone, _ = draw("tradeoff", [made(s, epsilon=e) for s in range(count) for e in (1.0, 2.0)]).axes
        (container,) = alone.containers
        caps = container.lines[1]
        assert bool(len(caps) and np.isfinite(caps[0].get_ydata()).any()) == drawn


def test_privacy_is_across_as_it_was_set():
    figure = draw("tradeoff", study())
    loss, _ = figure.axes
    assert loss.get_xlabel() == "ε at δ = 1e-05  (less private →)"
    assert {tuple(x) for x, _ in points(loss)} == {(1.0, 2.0, 4.0)}
    assert words(figure)[:6] == ["M = 1", "M = 3", "M = 10", "M = 30", "untrusted server", "trusted server"]
    by_rho = [made(rho=rho, machines=M) for rho in (2.0, 4.0) for M in (4, 8)]
    assert draw("tradeoff", by_rho).axes[0].get_xlabel().startswith("privacy ρ")
    exact = draw("tradeoff", by_rho, against="epsilon").axes[0]
    assert exact.get_xlabel().startswith("exact ε")
    assert tuple(points(exact)[0][0]) == pytest.approx((1.996, 3.992))
    assert draw("tradeoff", by_rho[:2]).axes[0].get_xlabel() == "machines M"


def test_points_of_several_epsilons_are_joined_whose_rounds_follow_from_these():
    lengths = {1.0: 300, 2.0: 200, 4.0: 100}
    chosen = [made(method="noisy-minibatch-sgd", epsilon=e, rounds=T, batch=T) for e, T in lengths.items()]
    usual = [made(epsilon=e) for e in lengths]
    figure = draw("tradeoff", [*chosen, *usual])
    assert words(figure) == ["μ²-SGD", "noisy minibatch SGD"]
    assert [tuple(x) for x, _ in points(figure.axes[0])] == [(1.0, 2.0, 4.0)] * 2


def test_runs_without_noise_are_a_level_beside_privacy():
    runs = [made(rho=rho, reached=2.0) for rho in (2.0, 4.0)] + [made(rho=math.inf, reached=1.5)]
    figure = draw("tradeoff", runs)
    loss, _ = figure.axes
    assert "without noise" in words(figure)
    assert [tuple(x) for x, _ in points(loss)] == [(2.0, 4.0)]
    assert loss.get_lines()[-1].get_ydata() == [1.5, 1.5]
    assert "without noise" not in words(draw("tradeoff", runs[:2]))


def test_more_lines_than_dashes_become_panels():
    servers = {"untrusted": (None,), "aggregated": (0, 1, 2), "shuffled": (0, 1, 2), "trusted": (None,)}
    runs = [
        made(server=server, colluders=c, machines=M)
        for server, colluders in servers.items()
        for c in colluders
        for M in (4, 8, 16)
    ]
    figure = draw("tradeoff", runs, against="rho")
    panels = np.array(figure.axes).reshape(2, -1)
    assert "trusted server" in [panel.get_title("left") for panel in panels[0]]
    assert sum(len(panel.containers) for panel in panels[0]) == len(runs)
    with pytest.raises(InputError, match=r"9 values of rho, too many for colours.*--where rho="):
        draw("history", [made(rho=float(rho)) for rho in range(1, 10)])


@pytest.mark.parametrize(
    ("kind", "against", "said"),
    [
        ("tradeoff", "machnes", "is drawn against a setting, and machnes is none"),
        ("history", "machines", "drawn against round or samples or gradient_evaluations, not machines"),
        ("weights", "machines", "leaves no choice of what is across"),
    ],
)
def test_what_cannot_be_across_is_said(kind, against, said):
    with pytest.raises(InputError, match=said):
        draw(kind, study(), against)


def test_scaling_of_options_that_one_run_has_and_another_has_not():
    def on(ranks, **settings):
        run = made(**settings)
        return replace(run, figures={**run.figures, "ranks": ranks, "elapsed_seconds": 1 / ranks})

    for option in ({"preset": "practical"}, {"clip_norm": 1.0}, {"partition": "sorted"}):
        figure = draw("scaling", [on(ranks, **given) for ranks in (1, 2) for given in ({}, option)])
        series = [text for text in words(figure) if text.startswith("M = 4")]
        assert len(set(series)) == 2


def test_histories_are_joined_at_the_rounds_that_all_seeds_have():
    runs = []
    for seed, rounds in ((1, [1, 2, 4, 8, 40, 100]), (2, [1, 4, 20, 40, 120])):
        run, at = made(seed, participation="bernoulli:0.5", rounds=rounds[-1]), np.array(rounds)
        measured = {"test_loss": seed / at, "test_accuracy": at / 1000, "samples": 5 * seed * at}
        runs.append(with_history(run, at, **measured))
    loss, _ = draw("history", runs).axes
    (line,) = loss.get_lines()
    # They end together, although at different rounds.
    np.testing.assert_array_equal(line.get_xdata(), [1, 4, 40, 110])
    np.testing.assert_allclose(line.get_ydata(), [1.5, 1.5 / 4, 1.5 / 40, (1 / 100 + 2 / 120) / 2])
    assert line.get_marker() == "o"
    samples, _ = draw("history", runs, against="samples").axes
    np.testing.assert_array_equal(samples.get_lines()[0].get_xdata(), [7.5, 30, 300, 850])


def test_losses_without_a_unit_in_common_are_not_mixed():
    for pair in (("softmax", "smoothed-hinge"), ("logistic", "smoothed-hinge")):
        runs = [of_loss(name) for name in pair]
        with pytest.raises(InputError, match=r"no unit in common.*--where loss="):
            draw("tradeoff", runs, against="loss")
    together = [of_loss(name) for name in ("softmax", "logistic")]
    assert draw("tradeoff", together, against="loss").axes[0].get_ylabel() == "test loss (nats)"


def of_loss(name):
    return made(data="synthetic", classes=2, loss=name)


def test_noise_that_is_not_drawn_is_not_in_the_legend():
    drawn = {}
    for participation in (None, "uniform:2"):
        run = with_history(made(participation=participation), [1, 90], message_norm=np.ones(2))
        run.figures.update(sigma=2.0, parameters=30, first_slope=1.0, last_slope=0.5)
        drawn[participation] = any("noise Y" in said for said in words(draw("noise", [run])))
    assert drawn == {None: True, "uniform:2": False}


def test_a_comparison_of_one_size_has_no_slopes():
    of_one = [run for run in comparison_runs(seeds=(1, 2)) if run.figures["samples_used"] == 1000]
    figure = draw("comparison", of_one)
    assert len(figure.axes) == 2
    assert not any("slope" in said for said in words(figure))
    assert words(draw("comparison", [comparison_run(n, s) for n in (10, 20) for s in (1, 2)])) == [
        "μ²-SGD", "bars: ± 1 standard deviation",
    ]  # fmt: skip
    flat = [comparison_run(n, exponent=1.0) for n in (10, 20, 40)]
    assert "slope 1" in words(draw("comparison", flat))
    steep = [comparison_run(n, exponent=1.5, method="noisy-minibatch-sgd") for n in (10, 20, 40)]
    assert "slopes 1 and 3/2" in words(draw("comparison", [*flat, *steep]))


def completed(run):
    """Return a summary as of a file, which holds what a preset chose."""
    facts = Facts(3, 1.0, run.experiment.samples)
    return replace(run, experiment=run.experiment.having(**run.experiment.by_preset(facts)), facts=facts)


def test_methods_are_compared_whose_presets_choose_other_settings():
    runs = [
        completed(comparison_run(size, method=method, preset="practical"))
        for method in ("mu2-sgd", "dp-sgd")
        for size in (1000, 2000)
    ]
    assert len({run.row["tail"] for run in runs}) == 2
    assert len(compare(runs)) == 2
    with pytest.raises(InputError, match=r"all runs need the same tail, and here it is 0\.25, unset"):
        compare([comparison_run(1000), comparison_run(1000, method="dp-gd", tail=0.25)])
    # The usual way to deal samples is the same whether it is said or not.
    compare([comparison_run(1000), comparison_run(2000, partition="iid")])


def test_rates_of_a_share_of_machines_that_may_collude():
    runs = trust_runs()
    lines = [
        (rate.settings["server"], rate.settings["colluders"])
        for rate in find_rates(runs)
        if rate.axis.symbol == "M"
    ]
    assert {("aggregated", said) for said in ("0", "M/10", "3M/4")} <= {*lines}
    assert sum(len(rate.runs) for rate in find_rates(runs)) == len(runs)
    assert not any("make no line" in said for said in words(draw("rates", runs)))
    alone = rate_run(1.0, 1, server="trusted", machines=20, rounds=77)
    assert f"1 of {len(runs) + 1} runs make no line of 3 points" in words(draw("rates", [*runs, alone]))


def test_rates_of_runs_by_epsilon():
    runs = [rate_run(1 / epsilon, 1, epsilon=epsilon) for epsilon in (1.0, 2.0, 4.0)]
    (rate,) = find_rates(runs)
    assert (rate.axis.symbol, rate.is_private) == ("ρ", True)
    assert draw("rates", runs).axes[0].get_xlabel() == "ρ  (privacy)"
    (across,) = find_rates([rate_run(1 / M, 1, epsilon=2.0, machines=M) for M in (4, 8, 16)])
    assert across.is_private
    assert across.theorem == -0.5


def test_trust_of_runs_by_epsilon_is_told_by_epsilon():
    runs = [rate_run(1 / M, 1, epsilon=2.0, server="trusted", machines=M) for M in (4, 8, 16)]
    (panel,) = draw("trust", runs).axes
    assert panel.get_title("left") == "population\nε = 2"


def test_weights_have_the_names_of_features_and_epsilon_where_it_was_set(tmp_path):
    rows = ["age,height,weight,label"]
    rng = np.random.default_rng(0)
    rows += [",".join(map(str, [*rng.random(3).round(3), k % 3])) for k in range(60)]
    (tmp_path / "people.csv").write_text("\n".join(rows))
    experiment = Experiment(data=str(tmp_path / "people.csv"), machines=2, epsilon=2.0, seed=1)
    mu2mpi.run(experiment, output=tmp_path / "a.h5")
    figure = draw("weights", mu2mpi.load(tmp_path).summaries)
    assert ticks(figure.axes[0]) == ["age", "height", "weight"]
    assert "ε = 2" in figure.get_suptitle()
    assert "ρ" not in figure.get_suptitle()
    assert figure.axes[1].get_ylabel() == "weight"


def test_files_of_several_versions_are_told(folder, tmp_path, capsys):
    first, second = sorted(folder.glob("*.h5"))[:2]
    for path, version in ((first, None), (second, "0.0.1")):
        copy = tmp_path / path.name
        copy.write_bytes(path.read_bytes())
        if version is not None:
            with h5py.File(copy, "r+") as file:
                file.attrs["mu2mpi_version"] = version
    outputs = ["-o", str(tmp_path / "a.png")]
    assert main(["plot", "tradeoff", str(tmp_path), *outputs]) == 0
    assert f"made by versions 0.0.1 and {mu2mpi.__version__} of mu2mpi" in capsys.readouterr().err
    assert main(["plot", "tradeoff", str(tmp_path / first.name), *outputs, "--overwrite"]) == 0
    assert "versions" not in capsys.readouterr().err


def test_what_is_across_chooses_the_figure(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    one = str(next(folder.glob("*.h5")))
    for against, kind in (("machines", "tradeoff"), ("samples", "history")):
        assert main(["plot", one, "--against", against]) == 0
        assert capsys.readouterr().out == f"{kind}.png\n"
    assert main(["plot", str(folder), "--against", "machnes"]) == 2
    assert "machnes" in capsys.readouterr().err


def test_what_a_preset_chose_is_not_called_unset():
    runs = [made(s, **given) for s in (1, 2) for given in ({}, {"clip_norm": 1.0}, {"preset": "practical"})]
    said = words(draw("tradeoff", runs, against="machines"))
    assert any("C = S" in line for line in said)
    assert not any("practical" in line and "C = " in line for line in said)
