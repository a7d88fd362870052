"""Run the code blocks of a page, in their order and in one folder, as its reader would.

Tutorials are run when the site is built, which shows what they print, and every page by the tests.

- ``sh``: bash, which ends at the first command that fails. What runs in the background is waited for by name.
- ``python``: one interpreter for the whole page. The value of a last expression is printed, as in a notebook.
- A block of any language whose first line is a comment with nothing but the name of a file is that file.
- ``text`` is what a program prints, or a drawing: nothing is run.
"""

import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (?P<name>[\w./-]+\.\w+)\n")
MADE = ("{toctree}", "{include}", "{literalinclude}", "{eval-rst}", "{glossary}", "{figure}", "{image}")
"""Directives, of which the site makes something else than code."""


@dataclass(frozen=True)
class Block:
    """A block of code: its language, its text, and the line of the page on which the text begins."""

    language: str
    text: str
    line: int

    @property
    def file(self) -> str | None:
        """The name of the file that the block is, or None where it is run."""
        named = FILE.match(self.text)
        return named["name"] if named and self.language != "text" else None


def blocks(page: str) -> list[Block]:
    """Return the blocks of code of a page in Markdown, in their order."""
    found = [Block(m[1], m[2], page[: m.start(2)].count("\n") + 1) for m in FENCE.finditer(page)]
    return [block for block in found if not block.language.startswith(MADE)]


class BlockError(Exception):
    """A block that failed, with what it printed."""


CHILD = """
import ast, json, os, sys, traceback
# Pipes of their own, so that nothing that is printed mixes with the answers.
questions, answers = os.fdopen(int(sys.argv[1])), os.fdopen(int(sys.argv[2]), "w")
names, sys.argv[1:] = {"__name__": "__main__"}, []
for line in questions:
    failed = False
    try:
        body = ast.parse(json.loads(line)).body
        last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), "<page>", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<page>", "eval"), names)
            if value is not None:
                print(repr(value))
    except BaseException:
        traceback.print_exc()
        failed = True
    sys.stdout.flush()
    print(json.dumps(failed), file=answers, flush=True)
"""


class Session:
    """A folder in which the blocks of one page are run, one after the other.

    Parameters
    ----------
    folder : Path
        Where they are run, and where their files are written.
    environment : mapping of str to str, optional
        Variables beside those of this process. The commands of this Python come first in ``PATH``.
    timeout : float
        Seconds after which a block has failed.
    """

    def __init__(
        self, folder: Path, environment: Mapping[str, str] | None = None, timeout: float = 600
    ) -> None:
        self.folder, self.timeout = folder, timeout
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path, **(environment or {})}
        self._python: Interpreter | None = None

    def __enter__(self) -> "Session":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._python is not None:
            self._python.end()

    def run(self, block: Block) -> str:
        """Run a block, or write the file that it is, and return what it printed."""
        if block.file is not None:
            path = (self.folder / block.file).resolve()
            if not path.is_relative_to(self.folder.resolve()):
                raise BlockError(f"line {block.line}: {block.file} is outside of the page's folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
            return ""
        match block.language:
            case "text":
                return ""
            case "sh":
                return self._checked(block, *self._run_bash(block))
            case "python":
                if self._python is None:
                    self._python = Interpreter(self.folder, self.environment)
                return self._checked(block, *self._python.run(block.text, self.timeout))
        raise BlockError(f"line {block.line}: nobody knows how to run a block of {block.language!r}")

    def _run_bash(self, block: Block) -> tuple[str, str]:
        process = subprocess.Popen(
            ["bash", "-e", "-o", "pipefail", "-c", block.text],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )
        try:
            printed, _ = process.communicate(timeout=self.timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed, _ = process.communicate()
            return printed, f"not done after {self.timeout:g} s"
        return printed, f"code {process.returncode}" if process.returncode else ""

    @staticmethod
    def _checked(block: Block, printed: str, fault: str) -> str:
        if fault:
            raise BlockError(f"line {block.line}, {fault}:\n{block.text}\n{printed}")
        return printed


class Interpreter:
    """A Python in a process of its own, which keeps its names from one block to the next."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        asks, self._questions = os.pipe()
        self._answers, tells = os.pipe()
        # What its own children print is in the file, too, in the order of printing.
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115, closed by `end`
        self._process = subprocess.Popen(
            [sys.executable, "-u", "-c", CHILD, str(asks), str(tells)],
            cwd=folder,
            env=environment,
            pass_fds=(asks, tells),
            stdin=subprocess.DEVNULL,
            stdout=self._printed,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        os.close(asks)
        os.close(tells)

    def run(self, text: str, timeout: float) -> tuple[str, str]:
        """Run code, and return what it printed, and what went wrong: nothing, if the words are empty."""
        self._printed.seek(0)
        self._printed.truncate()
        # It goes on from the beginning as well, since our place in the file is its place.
        os.write(self._questions, f"{json.dumps(text)}\n".encode())
        ready, _, _ = select.select([self._answers], [], [], timeout)
        answer = os.read(self._answers, 100) if ready else None
        self._printed.seek(0)
        printed = self._printed.read().decode(errors="replace")
        if answer is None:
            return printed, f"not done after {timeout:g} s"
        faults = {b"false\n": "", b"true\n": "an error"}
        return printed, faults.get(answer, "the interpreter has ended")

    def end(self) -> None:
        """End it with all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._questions)
        os.close(self._answers)
        self._printed.close()
