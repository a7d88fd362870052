"""Run the code blocks of a page, in their order and in one folder, as its reader would.

Tutorials are run when the site is built, which shows what they print, and every page by the tests.

- ``sh``: bash, which ends at the first command that fails.
- ``python``: one interpreter for the whole page. The value of a last expression is printed, as in a notebook.
- A block of any language whose first line is a comment with nothing but the name of a file is that file.
- ``text`` is what a program prints, or a drawing: nothing is run.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
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
import ast, contextlib, io, json, sys, traceback
# What the page prints must not mix with the answers.
answers, names = sys.stdout, {"__name__": "__main__"}
for line in sys.stdin:
    printed, failed = io.StringIO(), False
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
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
    print(json.dumps([printed.getvalue(), failed]), file=answers, flush=True)
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
        self._python: subprocess.Popen[str] | None = None

    def __enter__(self) -> "Session":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._python is not None:
            self._python.kill()
            self._python.communicate()

    def run(self, block: Block) -> str:
        """Run a block, or write the file that it is, and return what it printed."""
        if block.file is not None:
            path = self.folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
            return ""
        match block.language:
            case "text":
                return ""
            case "sh":
                return self._run_bash(block)
            case "python":
                return self._run_python(block)
        raise BlockError(f"line {block.line}: nobody knows how to run a block of {block.language!r}")

    def _run_bash(self, block: Block) -> str:
        try:
            done = subprocess.run(
                ["bash", "-e", "-o", "pipefail", "-c", block.text],
                cwd=self.folder,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                text=True,
                timeout=self.timeout,
            )
        except subprocess.TimeoutExpired as error:
            raise BlockError(f"line {block.line}: not done after {self.timeout:g} s\n{block.text}") from error
        return self._checked(block, done.stdout, done.returncode != 0)

    def _run_python(self, block: Block) -> str:
        if self._python is None:
            self._python = subprocess.Popen(
                [sys.executable, "-c", CHILD],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self._python.stdin is not None
        assert self._python.stdout is not None
        self._python.stdin.write(json.dumps(block.text) + "\n")
        self._python.stdin.flush()
        printed, failed = json.loads(self._python.stdout.readline())
        return self._checked(block, printed, failed)

    def _checked(self, block: Block, printed: str, failed: bool) -> str:
        if failed:
            raise BlockError(f"line {block.line}:\n{block.text}\n{printed}")
        return printed
