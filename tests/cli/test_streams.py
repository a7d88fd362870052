"""Standard output and error that are closed, full, or read by nobody: no result is lost for them."""

import subprocess
import sys

import pytest
from helpers.slow import slow

from mu2mpi.cli import main
from mu2mpi.results.reader import read_result

BAD = {"closed": "{}>&-", "full": "{}>/dev/full", "only for reading": "{}</dev/null", "no reader": "{}>&9"}
"""How the shell redirects a number; 9 is a pipe whose reader has gone."""


def bash(line):
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=600, check=False)


def shell(words, *redirections):
    """Return the exit code, and what was written to standard output and error so far as that is possible."""
    line = f'exec 9> >(:); wait $!; exec "{sys.executable}" -m mu2mpi {words}'
    return bash(" ".join([line, *redirections]))


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    path = tmp_path_factory.mktemp("result") / "a.h5"
    assert main(["run", "--seed", "1", "--rounds", "20", "--output", str(path)]) == 0
    return path


@pytest.mark.parametrize("numbers", ["2", *slow("12")])
@pytest.mark.parametrize("kind", BAD)
def test_a_run_ends_well_whatever_becomes_of_what_it_says(kind, numbers, tmp_path):
    path = tmp_path / "a.h5"
    lost = [BAD[kind].format(number) for number in numbers]
    done = shell(f"run --seed 1 --rounds 20 --output '{path}'", *lost)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(read_result(path).history) > 1
    assert list(tmp_path.iterdir()) == [path]


WORDS = dict(zip(BAD, ("table '{}'", "show '{}'", "privacy --rho 1", "table '{}'"), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("kind", BAD)
def test_what_is_to_be_printed_and_cannot_be_is_a_failure(kind, result):
    words = WORDS[kind].format(result)
    whole = shell(words)
    assert (whole.returncode, whole.stderr) == (0, "")
    done = shell(words, BAD[kind].format(1))
    # Who has read what it wants is told nothing more.
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", int(kind != "no reader"))
    unheard = shell(words, BAD[kind].format(2))
    assert (unheard.returncode, unheard.stdout, unheard.stderr) == (0, whole.stdout, "")


@pytest.mark.slow
def test_errors_keep_their_code_where_nobody_hears_of_them(tmp_path):
    for redirection in BAD.values():
        assert shell(f"show '{tmp_path / 'absent.h5'}'", redirection.format(2)).returncode == 2


@pytest.mark.slow
def test_a_reader_that_goes_in_the_middle_ends_the_command_quietly(result, tmp_path):
    """More is printed than a pipe holds."""
    data = tmp_path / "new.csv"
    data.write_text("\n".join([",".join(f"f{k}" for k in range(64)), *[",".join(["1"] * 64)] * 3000]))
    line = f'"{sys.executable}" -m mu2mpi predict "{result}" "{data}" | head -1; echo ${{PIPESTATUS[0]}}'
    done = bash(line)
    assert done.stdout.splitlines()[0].startswith("prediction,score:")
    assert (done.stdout.splitlines()[1], done.stderr) == ("1", "")


def test_a_letter_that_cannot_be_shown_is_a_question_mark(result):
    line = f'PYTHONIOENCODING=ascii PYTHONUTF8=0 "{sys.executable}" -m mu2mpi show "{result}"'
    done = bash(line)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
