"""What single figures show of folders as they come: any setting across, and nothing that is not there."""

import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from mu2mpi.analysis.figures import draw
from mu2mpi.analysis.figures.style import Page
from mu2mpi.config.experiment import Experiment
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary


def made(seed=1, loss=None, **settings):
    """Return a summary as of a run on digits, without a file, with another loss for each of its settings."""
    experiment = Experiment(**{"data": "digits", "machines": 4, "rounds": 90, "seed": seed, **settings})
    exact = math.inf if experiment.rho == math.inf else 0.998 * (experiment.epsilon or experiment.rho)
    figures = {"epsilon_exact": exact, "ranks": 1, "elapsed_seconds": 1.0, "noise_seconds": 0.5}
    luck = np.random.default_rng(sum(map(ord, experiment.to_toml()))).random()
    return Summary(
        Path(f"{luck}.h5"), experiment, "", luck if loss is None else loss, 0.5 * luck, dict(figures)
    )


def study():
    """Return a study of M at three epsilons, with both servers and three seeds."""
    grid = product(("untrusted", "trusted"), (1.0, 2.0, 4.0), (1, 3, 10, 30), (1, 2, 3))
    return [made(s, server=v, epsilon=e, machines=M, rounds=1000 // M) for v, e, M, s in grid]


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
    runs = [made(rho=rho, loss=2.0) for rho in (2.0, 4.0)] + [made(rho=math.inf, loss=1.5)]
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
