"""What the page on studies says of its files, on fewer runs; the site's build runs it as it is."""

import dataclasses
from pathlib import Path

import pytest
from blocks import Session, blocks

DOCS = Path(__file__).parents[2] / "docs"

FEWER = {"[1, 2, 4]": "[1, 4]", "[1, 3, 10, 30, 100]": "[1, 10]", "[1, 2, 3]": "[1, 2]"}
"""Sixteen runs in place of ninety."""


def fewer(text: str) -> str:
    for values, instead in FEWER.items():
        text = text.replace(values, instead)
    return text


def rows(latex: str) -> list[str]:
    return [line for line in latex.splitlines() if line.endswith(r"\\")]


@pytest.mark.slow
def test_a_study_from_sweep_to_paper(tmp_path):
    page = blocks((DOCS / "study/sweep-to-figure.md").read_text())
    commands = [block for block in page if block.language != "python"]
    code = [block for block in page if block.language == "python"]
    with Session(tmp_path) as session:
        for block in commands:
            session.run(dataclasses.replace(block, text=fewer(block.text)))
        latex = (tmp_path / "study.tex").read_text()
        printed = [session.run(dataclasses.replace(block, text=fewer(block.text))) for block in code]
    # The best of each column, and those that are as good.
    assert latex.count(r"\textbf{") >= 2
    assert r"\caption{Accuracy on digits}" in latex
    assert (tmp_path / "study.svg").read_text().lstrip().startswith("<?xml")
    # All runs were there.
    assert "16 of 16 runs are finished" in printed[0]
    assert (tmp_path / "study.pdf").read_bytes().startswith(b"%PDF")
    assert rows(latex) == rows((tmp_path / "study.tex").read_text())
    assert (tmp_path / "cost.svg").exists()
