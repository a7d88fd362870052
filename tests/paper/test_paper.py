"""The paper's numbers come from paper/make.py, which is run in small; its text is as JOSS demands."""

import importlib.util
import json
import os
import re
import sys
from pathlib import Path

import pytest
from helpers.launch import run_command
from helpers.requirements import missing

PAPER = Path(__file__).parents[2] / "paper"
SECTIONS = [
    "Summary",
    "Statement of need",
    "State of the field",
    "Software design",
    "Research impact statement",
    "Limitations",
    "AI usage disclosure",
    "Acknowledgements",
    "References",
]
SETTINGS = {"1", "100", "60,000", "1e-5", "2026"}
"""Numbers of the text that are chosen, not measured: epsilon, machines, samples, delta, the year."""


@pytest.fixture(scope="module")
def make():
    """Return paper/make.py as a module."""
    spec = importlib.util.spec_from_file_location("paper_make", PAPER / "make.py")
    module = importlib.util.module_from_spec(spec)
    path, names = list(sys.path), set(sys.modules)
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = path
    for name in {"accuracy", "figures", "speed"} - names:
        sys.modules.pop(name, None)


def body(text: str) -> str:
    """Return a text without its metadata."""
    return text.split("\n---\n", 1)[1]


def make_in_small(folder: Path, *options: str) -> dict:
    """Run paper/make.py in small, and return its numbers."""
    outputs = ["--runs", str(folder / "runs"), "--output", str(folder)]
    done = run_command([sys.executable, PAPER / "make.py", "--small", *options, *outputs], 300, {})
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "numbers.json").read_text())


def test_the_text_is_the_template_with_the_measured_numbers(make):
    numbers = json.loads((PAPER / "numbers.json").read_text())
    assert (PAPER / "paper.md").read_text() == make.render((PAPER / "template.md").read_text(), numbers)


def test_every_other_number_of_the_template_is_a_setting_or_a_version(make):
    template = make.PLACEHOLDER.sub("", body((PAPER / "template.md").read_text()))
    template = re.sub(r"@\w+", "", template)
    versions = set(re.findall(r"^\| [\w -]+? (\d+\.\d+) \[", template, re.MULTILINE))
    assert len(versions) >= 4
    found = re.findall(r"(?<![\w.])\d[\d,.]*(?:e-?\d+)?", template)
    assert {number.rstrip(",.") for number in found} <= SETTINGS | versions


def test_compared_versions_are_those_that_are_measured():
    pins = dict(line.split("==") for line in (PAPER / "rivals.txt").read_text().splitlines() if "==" in line)
    numbers, template = json.loads((PAPER / "numbers.json").read_text()), (PAPER / "template.md").read_text()
    measured = {task["rival"] for task in numbers["speed"]["tasks"].values()}
    assert measured == {f"{name} {pins[name]}" for name in ("pfl", "jax-privacy")}
    for title, name in (("pfl-research", "pfl"), ("JAX Privacy", "jax-privacy")):
        assert f"{title} {pins[name].rpartition('.')[0]} [" in template


def test_a_number_that_was_not_measured_leaves_the_text_unchanged(make, tmp_path, capsys):
    make.write(tmp_path, {})
    assert not (tmp_path / "paper.md").exists()
    assert "has not been measured" in capsys.readouterr().err


@pytest.mark.slow
def test_accuracies_in_small(make, mnist_dir, tmp_path):
    numbers = make_in_small(tmp_path, "--accuracy")
    private = numbers["accuracy"]["private"]
    assert len(private) == 8
    assert all(cell["seeds"] == 2 and 0 <= cell["mean"] <= 100 for cell in private.values())
    assert private["4 trusted 8"]["mean"] > private["4 untrusted 1"]["mean"] + 20
    assert numbers["accuracy"]["without_noise"]["4"]["mean"] > private["4 trusted 8"]["mean"]
    assert numbers["tables"]["cells"] == 2
    assert 0 < numbers["tables"]["largest_loss_difference"] < 0.002
    found = make.render("{{accuracy-4-trusted-8}}, {{accuracy-4-no-noise}}, {{tables-loss}}", numbers)
    assert re.fullmatch(r"\d\d\.\d ± \d+\.\d, \d\d\.\d, 0\.00\d\d", found)
    assert (tmp_path / "accuracy.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_speed_in_small(make, tmp_path):
    """Both packages learn the same from the same: accuracies of almost no noise are close."""
    python = os.environ.get("MU2MPI_RIVALS_PYTHON")
    if not python:
        missing("MU2MPI_RIVALS_PYTHON does not name a Python with the packages of paper/rivals.txt")
    tasks = make_in_small(tmp_path, "--speed", "--rivals", python, "--repeats", "2")["speed"]["tasks"]
    assert list(tasks) == ["trusted", "untrusted", "full_batch", "dp_sgd"]
    for task in tasks.values():
        assert task["ratio"] > 0
        assert len(task["ratios"]) == 2
        own, other = task["accuracy"]
        assert own > 70
        assert own == pytest.approx(other, abs=5)
    found = make.render("{{speed-trusted}} {{speed-dp_sgd-rival}}", {"speed": {"repeats": 2, "tasks": tasks}})
    assert re.fullmatch(r"[\d.e+]+ [\d.]+", found)
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")


def test_speed_needs_the_python_of_the_other_packages():
    done = run_command([sys.executable, PAPER / "make.py", "--speed"], 60, {})
    assert done.returncode == 2
    assert "--speed needs --rivals PYTHON" in done.stderr


def test_sections_are_those_that_the_journal_demands():
    text = (PAPER / "paper.md").read_text()
    assert re.findall(r"^# (.*)$", text, re.MULTILINE) == SECTIONS
    text_alone = re.sub(r"^\|[^\n]*$|@\w+", "", body(text), flags=re.MULTILINE)
    words = re.findall(r"[^\W\d_]+", text_alone)
    assert 750 <= len(words) <= 1750
    disclosure = text.split("# AI usage disclosure")[1].split("# Acknowledgements")[0]
    assert "TO BE WRITTEN BY THE OWNER" in disclosure


def test_references_are_cited_and_citations_have_references():
    cited = set(re.findall(r"@(\w+)", body((PAPER / "paper.md").read_text())))
    assert cited == set(re.findall(r"^@\w+\{(\w+),", (PAPER / "paper.bib").read_text(), re.MULTILINE))


def test_figures_are_small_and_shown():
    for name in ("accuracy.png", "speed.png"):
        assert (PAPER / name).stat().st_size < 200_000
        assert f"]({name})" in (PAPER / "paper.md").read_text()
