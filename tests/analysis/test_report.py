"""The report: whole, true, and without errors in a browser at every width and in both colour schemes."""

import html.parser
import math
import re
import shutil
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_up import rate_run
from missing import missing
from slowly import slow

import mu2mpi
from mu2mpi.analysis.figures import draw, image
from mu2mpi.analysis.figures.style import DARK, Page
from mu2mpi.analysis.report import build_report
from mu2mpi.analysis.report.night import COLOUR, at_night
from mu2mpi.analysis.report.repetition import repeat
from mu2mpi.analysis.report.sections import _claims, theory, what_was_run
from mu2mpi.config.experiment import Experiment
from mu2mpi.config.sweep import Sweep
from mu2mpi.execution.job import run
from mu2mpi.problem.practical import Facts
from mu2mpi.results.reader import Summary, read_result


@pytest.fixture(scope="module")
def runs(folder):
    return mu2mpi.load(folder).summaries


@pytest.fixture(scope="module")
def page(runs):
    return build_report(runs, ["bad.h5 is <damaged> & skipped"])


class Reader(html.parser.HTMLParser):
    """Collects text and links, and complains of tags that are not closed."""

    VOID = ("meta", "link", "img", "source", "br")

    def __init__(self):
        super().__init__()
        self.open, self.words, self.urls, self.tags = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        self.urls += [value for name, value in attributes if name in ("src", "srcset", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def read(page):
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    return reader


def text_of(page):
    return " ".join(" ".join(read(page).words).split())


def test_it_is_whole_and_needs_nothing_else(page):
    reader = read(page)
    assert {url.partition(",")[0].partition(";")[0] for url in reader.urls if not url.startswith("#")} == {
        "data:", "data:image/svg+xml"
    }  # fmt: skip
    assert {url for url in reader.urls if url.startswith("#")} == {
        f'#{anchor}' for anchor in re.findall(r'<section id="([^"]*)"', page)
    }  # fmt: skip
    assert "script" not in reader.tags
    assert not re.search(r"https?://", re.sub(r"data:[^\"]*", "", page))
    assert reader.tags.count("img") == reader.tags.count("source") == 5
    assert "bad.h5 is &lt;damaged&gt; &amp; skipped" in page


def test_it_says_what_was_run_and_what_came_out(page, runs):
    text = text_of(page)
    assert "DP-μ²-FL on digits: 24 runs" in text
    assert "number of machines M" in text
    cell = [
        r
        for r in runs
        if (r.experiment.server, r.experiment.rho, r.experiment.machines) == ("trusted", 4, 10)
    ]
    mean = sum(run.test_loss for run in cell) / 3
    assert f"{mean:.4f} ± " in text
    excess = sum(run.figures["excess_loss"] for run in cell) / 3
    assert f"{excess:.4g}" in text


def test_privacy_in_words(page):
    text = text_of(page)
    assert "nothing protects the people" not in text
    for words in (
        "Untrusted server: whoever sees everything that leaves the machines",
        "Trusted server: whoever sees everything that leaves the server, which itself sees sums",
        "replace-one adjacency",
        "What the guarantee does not cover",
        "24 of 24 runs have a seed",
        "Several runs: whoever sees what these 24 runs on digits released",
        "This page shows none of the diagnostics",
    ):
        assert words in text
    assert text.count("replace-one adjacency") == 1
    # 12 runs with rho = 4 and 12 with rho = 16.
    assert f"ρ = {math.ceil(100 * math.sqrt(12 * 16 + 12 * 256)) / 100:.2f}" in text
    assert "27.2 24.39" in re.sub(r"\s+", " ", text)


def claimed(settings):
    """Return the rows of the claims of runs with these settings, without files."""
    runs = []
    for own in settings:
        experiment = Experiment(**{"machines": 2, "rounds": 9, "server": "trusted", **own})
        for epsilon in (experiment.target_epsilon, experiment.target_epsilon + 0.001):
            figures = {"epsilon_exact": epsilon, "epsilon_paper": epsilon + 1}
            runs.append(Summary(Path("made-up.h5"), experiment, "", 2.0, 0.5, figures))
    rows = re.findall("<tr>(.*?)</tr>", _claims(runs))
    return [re.findall("<t[dh][^>]*>(.*?)</t", html.unescape(row)) for row in rows]


def test_each_epsilon_has_a_claim_of_its_own_and_none_is_understated():
    by_epsilon, by_rho = ([{name: value} for value in (1.0, 2.0, 4.0)] for name in ("epsilon", "rho"))
    header, *rows = claimed(by_epsilon)
    assert header == ["server", "ρ", "δ", "ε by the paper's lemma", "ε exactly"]
    assert [row[1] for row in rows] == ["0.2676", "0.5007", "0.9233"]
    assert [row[-1] for row in rows] == ["1.001", "2.001", "4.001"]
    assert [row[1] for row in claimed(by_rho)[1:]] == ["1", "2", "4"]
    mixed = claimed([*by_rho, *by_epsilon])[1:]
    assert [row[1] for row in mixed] == ["0.2676", "0.5007", "0.9233", "1", "2", "4"]
    assert float(mixed[-1][-1]) > 24.38


def test_claims_that_are_the_same_are_one_and_methods_are_named_where_they_differ():
    preset = {"method": "mu2-sgd", "preset": "practical", "epsilon": 2.0}
    assert len(claimed([preset, {"epsilon": 2.0}])) == 2
    header, *rows = claimed(
        [preset, {"method": "dp-sgd", "epsilon": 2.0}, {"method": "dp-gd", "epsilon": 2.0}]
    )
    assert header[1] == "method"
    assert [row[1] for row in rows] == ["DP-GD", "DP-SGD", "μ²-SGD"]
    assert rows[1][-1] == "2.001 (poisson)"


def test_it_names_methods_and_machines_in_words(page, runs):
    text = text_of(page)
    facts = read_result(runs[0].path).environment
    assert f"files mu2mpi Python numpy hosts processor MPI library 24 {mu2mpi.__version__} " in text
    assert facts["processor"] in text
    assert "method μ²-SGD" in text
    assert "server ρ M smallest loss" in text
    assert "unset" not in text


def test_excess_losses_stand_beside_the_privacy_that_was_given():
    given = ({"rho": None, "epsilon": epsilon} for epsilon in (1.0, 2.0))
    runs = [rate_run(1.0, 1, **privacy) for privacy in given]
    text = text_of(theory([replace(run, figures={**run.figures, "minimum_loss": 0.5}) for run in runs]))
    assert "server ε M smallest loss" in text
    assert "untrusted 1 4 0.5000 1 30 untrusted 2 4 0.5000 1 30" in text


def colours_of(svg):
    return np.array([[int(found[k : k + 2], 16) for k in (1, 3, 5)] for found in COLOUR.findall(svg)])


@pytest.mark.parametrize("kind", ["history", "timing", "weights"])
def test_a_figure_at_night_has_the_colours_of_one_that_is_drawn_for_it(runs, kind):
    page = Page(DARK)
    light, dark = image(draw(kind, runs), "svg"), image(draw(kind, runs, page=page), "svg", page)
    # To a step of the scale of 256 colours.
    assert np.abs(colours_of(at_night(light)) - colours_of(dark)).max() <= 4
    assert np.abs(colours_of(light) - colours_of(dark)).max() > 100
    pictures = [re.findall(rb"data:image/png;base64,[^\"]*", svg) for svg in (light, dark)]
    assert pictures[0] == pictures[1]


def test_only_runs_on_the_same_data_add_up(tmp_path):
    made_up = {"data": "synthetic", "samples": 60, "features": 3, "rounds": 20, "machines": 2, "seed": 1}
    for k, settings in enumerate(({"rho": 3.0}, {"rho": 4.0}, {"rho": 8.0, "data_seed": 1})):
        run(Experiment(**{**made_up, **settings}), output=tmp_path / f"{k}.h5")
    text = text_of(build_report(mu2mpi.load(tmp_path).summaries))
    assert "these 2 runs on synthetic data with data_seed = 0 released learns at most" in text
    assert "ρ = 5;" in text
    assert "these 3 runs" not in text


def test_a_test_set_that_is_not_protected_is_named(tmp_path):
    draw = np.random.default_rng(0)
    np.savez(tmp_path / "p.npz", X=draw.uniform(-1, 1, (100, 4)), y=draw.integers(0, 2, 100))
    run(Experiment(data=str(tmp_path / "p.npz"), machines=2, rounds=20), output=tmp_path / "a.h5")
    assert "nothing protects the people in it" in text_of(build_report(mu2mpi.load(tmp_path).summaries))


def test_diagnostics_stay_in_the_files(page, folder):
    text = text_of(page)
    for found in mu2mpi.load(folder)[:3]:
        assert f"{found.diagnostics.largest_increment_norm:.4g}" not in text


def test_runs_without_noise_have_no_guarantee(runs):
    silent = [
        Summary(r.path, r.experiment.model_copy(update={"rho": math.inf}), r.created, 2.0, 0.5, r.figures)
        for r in runs[:1]
    ]
    text = text_of(build_report(silent))
    assert "1 of 1 runs add no noise: for them there is no guarantee at all." in text
    assert "at most this" not in text


def test_formulas_of_captions_are_set_as_such(page):
    captions = re.findall("<figcaption>(.*?)</figcaption>", page)
    assert any("<i>R</i><sup>2</sup>" in caption for caption in captions)
    assert any("<i>x</i><sub>T</sub>" in caption for caption in captions)
    assert not any(mark in caption for caption in captions for mark in "^_")


def test_what_was_run_tells_what_follows_in_some_runs_and_short_times(runs):
    base = {"data": "digits", "machines": 2, "server": "trusted", "seed": 1}
    by_hand = Experiment(**base, rounds=718)
    made = Experiment(**base, method="dp-gd", preset="practical")
    chosen = made.by_preset(Facts(10, 64.0, 1436))
    figures = {"ranks": 1, "elapsed_seconds": 0.1}
    pair = [
        Summary(runs[0].path, by_hand, "2030", 2.0, 0.5, figures),
        Summary(runs[0].path, made.having(**chosen), "2030", 2.0, 0.5, figures, facts=Facts(10, 64.0, 1436)),
    ]
    text = text_of(what_was_run(pair, []))
    assert f" rounds {chosen['rounds']}, 718 number of rounds T" in text
    assert "practical chooses from public facts alone what is not given " in text
    assert "less than a second of rounds in all" in text


def toml_of(page):
    return html.unescape(re.search(r"<pre><code>(.*?)</code>", page, re.DOTALL)[1])


def test_the_sweep_that_repeats_the_runs(page, runs):
    sweep = Sweep(tomllib.loads(toml_of(page)))
    assert set(sweep.experiments) == {run.experiment for run in runs}
    assert "mu2mpi sweep sweep.toml" in page


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "mu2-sgd", "preset": "practical", "machines": [2, 4], "epsilon": [1.0, 2.0]},
        {"methods": ["mu2-sgd", "dp-gd"], "machines": [2, 4], "epsilon": 2.0},
    ],
)
def test_the_sweep_of_a_preset_leaves_out_what_it_chooses(settings, tmp_path):
    made_up = {"data": "synthetic", "samples": 80, "features": 3, "seed": 1}
    asked = Sweep({**made_up, **settings})
    found = mu2mpi.sweep({**made_up, **settings}, output=tmp_path, progress=False).summaries
    lines = toml_of(repeat(found))
    assert {*Sweep(tomllib.loads(lines)).experiments} == {*asked.experiments}
    assert "diameter" not in lines
    assert "rounds" not in lines
    # Of one run, all that was chosen is told.
    assert "diameter" in toml_of(repeat(found[:1]))


@pytest.mark.slow
def test_runs_that_are_no_sweep_are_listed_one_by_one(runs):
    page = build_report([runs[0], runs[-1]])
    found = re.findall(r"<pre><code>(.*?)</code>", page, re.DOTALL)
    experiments = {Experiment.make(tomllib.loads(html.unescape(toml))) for toml in found}
    assert experiments == {runs[0].experiment, runs[-1].experiment}


PROBE = """<html><body style="margin:0">
<iframe id="f" src="report.html" style="border:0;width:WIDTHpx;height:900px"></iframe><script>
window.onload = () => {
  const view = document.getElementById("f").contentWindow, page = view.document;
  const broken = [...page.images].filter(image => !image.naturalWidth).length;
  const dark = [...page.images].filter(image => image.currentSrc !== image.src).length;
  const colour = view.getComputedStyle(page.body).backgroundColor;
  document.title = `wide ${page.documentElement.scrollWidth} broken ${broken} dark ${dark} paper ${colour}`;
};
</script></body></html>"""


@pytest.mark.parametrize(
    ("width", "scheme"), [(360, "dark"), *slow((360, "light"), (1200, "light"), (1200, "dark"))]
)
def test_in_a_browser(page, tmp_path, width, scheme):
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        missing("no browser is installed (on Debian: apt install chromium)")
    (tmp_path / "report.html").write_text(page)
    (tmp_path / "probe.html").write_text(PROBE.replace("WIDTH", str(width)))
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--allow-file-access-from-files", "--enable-logging=stderr", "--virtual-time-budget=5000",
        f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}",
        f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", f"file://{tmp_path / 'probe.html'}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr
    found = re.search(r"<title>wide (\d+) broken (\d+) dark (\d+) paper (.*?)</title>", done.stdout)
    assert found, done.stdout[:500]
    # Nothing but tables and figures, which scroll by themselves, is wider than the screen.
    assert int(found[1]) <= width
    assert int(found[2]) == 0
    assert int(found[3]) == (5 if scheme == "dark" else 0)
    assert found[4] == ("rgb(22, 24, 28)" if scheme == "dark" else "rgb(255, 255, 255)")
