"""Modules of docs/study/extending*.md, and their registration until a test ends."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from blocks import blocks

from mu2mpi.core import registry

PAGES = sorted((Path(__file__).parents[2] / "docs/study").glob("extending*.md"))
MODULES = {
    block.file: block.text
    for page in PAGES
    for block in blocks(page.read_text("utf-8"))
    if block.file and block.file.endswith(".py")
}
"""Their text by the names of their files."""


@pytest.fixture
def restored_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore the registry after a test.

    All built-in components are imported before it: a module registers its component only when it is imported.
    """
    for kind in registry._components:
        for name in registry._built_in_modules(kind):
            registry.lookup(kind, name)
    copies = {kind: dict(components) for kind, components in registry._components.items()}
    monkeypatch.setattr(registry, "_components", copies)
    monkeypatch.setattr(registry, "_imported_files", {})
    yield
    forget_imported_files()


def forget_imported_files() -> None:
    """Forget the files that `import_files` has imported, which can then be imported again."""
    for module in registry._imported_files:
        del sys.modules[module]
    registry._imported_files.clear()


@pytest.fixture
def extension(
    restored_registry: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[[str], Path]]:
    """Return a function that imports a module of the pages, and returns its file, until the test ends."""
    monkeypatch.syspath_prepend(tmp_path)
    modules: list[str] = []

    def imported(module: str) -> Path:
        path = tmp_path / f"{module}.py"
        path.write_text(MODULES[path.name], "utf-8")
        importlib.invalidate_caches()
        importlib.import_module(module)
        modules.append(module)
        return path

    yield imported
    for module in modules:
        del sys.modules[module]
