"""Every block of code of every page is run, in the order of its page, in a folder of its own.

Tutorials are run when the site is built (`executed_pages` in docs/conf.py), and pages that need more than a
folder by a test of their own, which says so here.
"""

import configparser
import dataclasses
import re
import runpy
import shutil
from pathlib import Path

import pytest
from blocks import Block, BlockError, Session, blocks
from helpers.page_commands import ON_MNIST, PIP, cheaper, make_sweeps_smaller
from helpers.requirements import missing

PROJECT = Path(__file__).parents[2]
DOCS = PROJECT / "docs"

ELSEWHERE = {"study/clusters": "tests/slurm/test_page.py"}
"""Pages that other tests run, and which."""

PROGRAMS = {"reference/result-file": ("ncdump", "Rscript")}
"""Programs that the blocks of a page run, and that a computer may lack."""

PAGES = {
    path.relative_to(DOCS).with_suffix("").as_posix(): path
    for path in sorted([*DOCS.glob("*.md"), *DOCS.glob("[!_]*/*.md")])
} | {name: PROJECT / f"{name}.md" for name in ("README", "CONTRIBUTING")}
FENCES = re.compile(r"^[ \t>]*(?:`{3,}|~{3,})", re.MULTILINE)
TUTORIALS = set(runpy.run_path(str(DOCS / "conf.py"))["executed_pages"])
HERE = [
    name for name, path in PAGES.items() if blocks(path.read_text()) and name not in TUTORIALS | {*ELSEWHERE}
]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in HERE if name not in ON_MNIST])
def test_a_page_does_what_it_shows(name, tmp_path):
    run_page(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ON_MNIST))
def test_a_page_of_the_paper_does_what_it_shows(name, mnist_dir, tmp_path):
    run_page(name, tmp_path)


def run_page(name: str, folder: Path) -> None:
    """Run the blocks of a page in a folder, on what stands for its data and its sweeps."""
    if lacking := [program for program in PROGRAMS.get(name, ()) if shutil.which(program) is None]:
        missing(f"{name} runs {' and '.join(lacking)}, not installed here")
    for part in ("jobs", "scripts"):
        shutil.copytree(
            PROJECT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "node_modules")
        )
    make_sweeps_smaller(folder / "jobs", name in ON_MNIST)
    with Session(folder, PIP) as session:
        for block in blocks(PAGES[name].read_text()):
            is_cheaper = block.language == "sh" and name not in ON_MNIST
            commands = cheaper(block.text) if is_cheaper else block.text
            session.run(dataclasses.replace(block, text=commands))


@pytest.mark.slow
def test_the_first_page_draws_the_figure_that_it_shows(tmp_path):
    run_page("index", tmp_path)
    (image,) = re.findall(r"^!\[[^\]]*\]\((\S+)\)$", PAGES["index"].read_text(), re.MULTILINE)
    assert (tmp_path / image).read_text().rstrip().endswith("</svg>")


def test_every_block_says_what_it_is():
    told = {"sh", "python", "toml", "csv", "text"}
    found = {name: {block.language for block in blocks(path.read_text())} for name, path in PAGES.items()}
    assert {name: languages - told for name, languages in found.items() if languages - told} == {}
    # Of any other form, a block would be shown and never run.
    fences = {name: FENCES.findall(path.read_text()) for name, path in PAGES.items()}
    assert {name: lines for name, lines in fences.items() if {*lines} - {"```"} or len(lines) % 2} == {}


def test_what_runs_in_the_background_is_waited_for():
    """bash forgets how a job ended that nobody waits for."""
    forgotten = [
        (name, block.line)
        for name, path in PAGES.items()
        for block in blocks(path.read_text())
        if block.language == "sh" and re.search(r"&$", block.text, re.MULTILINE) and "wait " not in block.text
    ]
    assert forgotten == []


def test_every_extra_that_is_installed_exists():
    setup = configparser.ConfigParser()
    setup.read(PROJECT / "setup.cfg")
    named = {
        (name, extra)
        for name, path in PAGES.items()
        for block in blocks(path.read_text())
        for extras in re.findall(r"pip install[^\n]*\[([\w,]+)\]", block.text)
        for extra in extras.split(",")
    }
    assert ("README", "mpich") in named
    assert {(name, extra) for name, extra in named if extra not in setup["options.extras_require"]} == set()


def test_a_page_that_others_run_is_there():
    assert [
        page for page, test in ELSEWHERE.items() if page not in PAGES or not (PROJECT / test).exists()
    ] == []


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("sh", "false\ntrue"),
        ("sh", "false | true"),
        ("python", "1 / 0"),
        ("python", "exit()"),
        ("python", "import os\nos._exit(0)"),
        ("python", 'import subprocess\nsubprocess.run(["echo", "false"])\n1 / 0'),
        ("sh", "false &\nwait $!"),
        ("toml", "# ../outside.toml\n"),
        ("sql", "select 1"),
    ],
)
def test_what_fails_is_noticed(language, text, tmp_path):
    with Session(tmp_path) as session, pytest.raises(BlockError, match="line 7"):
        session.run(Block(language, text, 7))


@pytest.mark.parametrize(
    ("language", "text"), [("sh", "sleep 60"), ("python", "import time\ntime.sleep(60)")]
)
def test_what_hangs_is_ended(language, text, tmp_path):
    with Session(tmp_path, timeout=0.5) as session, pytest.raises(BlockError, match="not done after"):
        session.run(Block(language, text, 1))


def test_blocks_are_run_in_one_folder_and_one_interpreter(tmp_path):
    page = "".join(
        f"Words.\n```{language}\n{text}\n```\n"
        for language, text in (
            ("toml", "# a/b.toml\nx = 1"),
            ("sh", "cat a/b.toml"),
            ("python", "y = 2"),
            ("python", 'print("z")\ny'),
        )
    )
    with Session(tmp_path) as session:
        printed = [session.run(block) for block in blocks(page)]
    assert printed == ["", "# a/b.toml\nx = 1\n", "", "z\n2\n"]
    assert [block.line for block in blocks(page)] == [3, 8, 12, 16]
