"""The report: whole, true, and without errors in a browser at every width and in both colour schemes."""

import html
import html.parser
import math
import re
import shutil
import subprocess
import tomllib
from dataclasses import replace
from itertools import product

import h5py
import pytest
from helpers.requirements import missing
from helpers.slow import slow

import mu2mpi
from mu2mpi.analysis.report import build_report, repeat_config, settings_table
from mu2mpi.config.experiment import Experiment
from mu2mpi.config.sweep import Sweep
from mu2mpi.core.errors import InputError
from mu2mpi.core.text import rounded_up
from mu2mpi.data.source import PublicFacts
from mu2mpi.execution.job import run
from mu2mpi.results.reader import read_result


@pytest.fixture(scope="module")
def runs(folder):
    return mu2mpi.load(folder).summaries


@pytest.fixture(scope="module")
def page(runs):
    return build_report(runs, ["bad.h5 is <damaged> & skipped"])


class Reader(html.parser.HTMLParser):
    """Collects text, links and tags, and complains of tags that are not closed."""

    def __init__(self, page):
        super().__init__()
        self.open, self.words, self.urls, self.tags = [], [], [], []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in ("meta", "link", "img"):
            self.open.append(tag)
        self.urls += [value for name, value in attributes if name in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def text_of(page):
    return " ".join(" ".join(Reader(page).words).split())


def test_it_is_whole_and_needs_nothing_else(page):
    reader = Reader(page)
    inner = {url for url in reader.urls if url.startswith("#")}
    assert {url.partition(",")[0].partition(";")[0] for url in {*reader.urls} - inner} == {
        "data:", "data:image/svg+xml"
    }  # fmt: skip
    assert inner == {f"#{anchor}" for anchor in re.findall(r'<section id="([^"]*)"', page)}
    assert "script" not in reader.tags
    assert not re.search(r"https?://", re.sub(r"data:[^\"]*", "", page))
    assert reader.tags.count("img") == 3
    assert "bad.h5 is &lt;damaged&gt; &amp; skipped" in page


def test_it_says_what_was_run_and_what_came_out(page, runs):
    text = text_of(page)
    assert "24 runs" in text
    wanted = ("trusted", 4, 10)
    cell = [r for r in runs if (r.experiment.server, r.experiment.rho, r.experiment.machines) == wanted]
    assert f"{sum(run.test_loss for run in cell) / 3:.4f} ± " in text
    assert f"{sum(run.measurements['excess_loss'] for run in cell) / 3:.4g}" in text
    assert f"by mu2mpi {runs[0].mu2mpi_version}" in text
    # A repeated release of 12 runs with rho = 4 and 12 with 16.
    assert f"ρ = {math.ceil(100 * math.sqrt(12 * 16 + 12 * 256)) / 100:.2f}" in text
    # Diagnostics stay in the files.
    assert not any(
        f"{read_result(run.path).diagnostics.largest_increment_norm:.4g}" in text for run in runs[:3]
    )


def test_each_guarantee_is_listed_once_with_who_sees_the_released_values(page, runs):
    text = text_of(page)
    assert text.count("at delta = 1e-05") == 4
    for server, rho in product(("trusted", "untrusted"), (4.0, 16.0)):
        members = [r for r in runs if (r.experiment.server, r.experiment.rho) == (server, rho)]
        (epsilon,) = {rounded_up(run.measurements["epsilon_exact"]) for run in members}
        assert text.count(f", {server} server: epsilon = {epsilon} at delta = 1e-05, rho = {rho:g}") == 1
        (adversary,) = {run.contents.privacy.adversary.rstrip(",") for run in members}
        assert text.count(f"{adversary} ({server} server)") == 1


def test_the_guarantee_of_an_accountant_without_rho_is_named(tmp_path):
    pytest.importorskip("dp_accounting")
    settings = {"method": "dp-sgd", "server": "trusted", "machines": 2, "rounds": 9, "epsilon": 2.0}
    run(Experiment(**settings), output=tmp_path / "a.h5")
    text = text_of(build_report(mu2mpi.load(tmp_path).summaries))
    epsilon = read_result(tmp_path / "a.h5").privacy.epsilon_exact
    assert f"trusted server: epsilon = {rounded_up(epsilon)} at delta = 1e-05" in text
    assert "at delta = 1e-05, rho" not in text


@pytest.mark.slow
def test_only_runs_on_the_same_data_add_up_and_a_share_for_testing_is_named(tmp_path):
    made_up = {"data": "synthetic", "samples": 60, "features": 3, "rounds": 20, "machines": 2, "seed": 1}
    for k, settings in enumerate(({"rho": 3.0}, {"rho": 4.0}, {"rho": 8.0, "data_seed": 1})):
        run(Experiment(**{**made_up, **settings}), output=tmp_path / f"{k}.h5")
    text = text_of(build_report(mu2mpi.load(tmp_path).summaries))
    assert "these 2 runs" in text
    assert "ρ = 5;" in text
    assert "these 3 runs" not in text


@pytest.mark.slow
def test_a_damaged_history_is_an_error_and_costs_no_figure(runs, tmp_path):
    path = tmp_path / "damaged.h5"
    shutil.copy(runs[0].path, path)
    with h5py.File(path, "r+") as file:
        del file["history/rho_spent"]
    damaged = mu2mpi.load(path).summaries
    with pytest.raises(InputError, match=r"damaged\.h5 is damaged"):
        build_report([*runs[1:], *damaged])


def test_runs_without_noise_have_no_guarantee(runs):
    silent = runs[0].experiment.model_copy(update={"rho": math.inf})
    text = text_of(build_report([replace(runs[0], experiment=silent)]))
    assert "1 of 1 runs add no noise" in text
    assert "at most this" not in text


def test_what_was_run_tells_what_follows_in_some_runs(runs):
    base = {"data": "digits", "machines": 2, "server": "trusted", "seed": 1}
    public_facts, preset = PublicFacts(10, 64.0, 1436), Experiment(**base, method="dp-gd", preset="practical")
    choice = preset.preset_settings(public_facts)
    pair = [
        replace(runs[0], experiment=Experiment(**base, rounds=718)),
        replace(runs[0], experiment=preset.replace(**choice), public_facts=public_facts),
    ]
    told = {name: values for name, values, _ in settings_table(pair)}
    assert told["rounds"] == f"{choice['rounds']}, 718"


def test_meanings_of_settings_are_those_of_the_methods_and_data_that_were_used(runs):
    common = {"server": "trusted", "machines": 2, "epsilon": 2.0}
    files = [
        Experiment(data="a.csv", method="dp-gd", batch=3, data_seed=1, **common),
        Experiment(data="a.csv", method="dp-sgd", batch=30, data_seed=1, **common),
    ]
    table = settings_table([replace(runs[0], experiment=experiment) for experiment in files])
    meanings = {name: meaning for name, _, meaning in table}
    assert meanings["data_seed"] == "seed of the test split"
    assert meanings["batch"] == "batch size of each machine; or expected batch size over all machines"
    assert meanings["epsilon"] == "privacy budget epsilon at --delta"


def test_the_sweep_that_repeats_the_runs(page, runs):
    toml = html.unescape(re.search(r"<pre><code>(.*?)</code>", page, re.DOTALL)[1])
    assert {*Sweep(tomllib.loads(toml)).experiments} == {run.experiment for run in runs}
    assert "mu2mpi sweep sweep.toml" in page
    settings = tomllib.loads(toml)
    assert len(settings["part"]) == len(runs)
    assert {*settings["part"][0]} == {"server", "rho", "machines", "seed"}
    # Runs without a seed have equal settings.
    first = replace(runs[0], experiment=runs[0].experiment.replace(seed=None))
    assert "part" not in tomllib.loads(repeat_config([first, first]))
    assert Experiment.from_settings(tomllib.loads(repeat_config([runs[0]]))) == runs[0].experiment


def test_runs_of_a_preset_are_repeated(tmp_path):
    shared = {"data": "synthetic", "samples": 80, "features": 3, "seed": [1, 2], "preset": "practical"}
    settings = {**shared, "methods": ["mu2-sgd", "dp-gd"], "server": "trusted", "epsilon": [2.0, 3.0]}
    found = mu2mpi.sweep(settings, output=tmp_path / "first", progress=False).summaries
    repeated = tomllib.loads(repeat_config(found))
    again = mu2mpi.sweep(repeated, output=tmp_path / "again", progress=False).summaries
    assert {run.experiment for run in again} == {run.experiment for run in found}


PROBE = """<html><body style="margin:0">
<iframe id="f" src="report.html" style="border:0;width:WIDTHpx;height:900px"></iframe><script>
window.onload = () => {
  const view = document.getElementById("f").contentWindow, page = view.document;
  const broken = [...page.images].filter(image => !image.naturalWidth).length;
  const colours = [page.body, page.images[0]].map(part => view.getComputedStyle(part).backgroundColor);
  document.title = `wide ${page.documentElement.scrollWidth} broken ${broken} paper ${colours.join(" ")}`;
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
    found = re.search(r"<title>wide (\d+) broken (\d+) paper (.*?)</title>", done.stdout)
    assert found, done.stdout[:500]
    # Nothing but tables and figures, which scroll by themselves, is wider than the screen.
    assert int(found[1]) <= width
    assert int(found[2]) == 0
    # Figures are light in both schemes.
    paper = "rgb(22, 24, 28)" if scheme == "dark" else "rgb(255, 255, 255)"
    assert found[3] == f"{paper} rgb(255, 255, 255)"
