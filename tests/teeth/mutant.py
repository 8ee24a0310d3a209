"""A mutant is the reference with one small change; this makes a backend of one."""

import importlib.util
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import ModuleType

import nibblespec.reference
from nibblespec.spec.operations import Backend

REFERENCE = Path(nibblespec.reference.__file__).parent
_numbers = count()


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault, as a change of the reference's text."""

    name: str
    operation: str
    """Whose tests have to reject it."""
    breaks: tuple[str, ...]
    """Requirements that the failing test has to name; those of the first are run."""
    fault: str
    """The fault in a line, as one would report it."""
    file: str = ""
    """Of the reference; none where only a claim is changed."""
    old: str = ""
    """Text that is in the file exactly once."""
    new: str = ""
    declares: Mapping[str, str | int | None] = field(default_factory=dict)
    """Arguments of `ReferenceBackend`: what the backend claims to compute."""


def broken_backend(mutant: Mutant) -> Backend:
    """Return the backend of a copy of the reference with the change made.

    Raises ValueError where the text to change is not there exactly once.
    """
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, f"broken_reference_{next(_numbers)}")
        shutil.copytree(REFERENCE, package, ignore=shutil.ignore_patterns("__pycache__"))
        if mutant.file:
            _change(package / mutant.file, mutant)
        for file in package.glob("*.py"):
            text = file.read_text(encoding="utf-8")
            file.write_text(re.sub(r"\bnibblespec\.reference\b", package.name, text), "utf-8")
        with _imported(package) as module:
            backend: Backend = module.ReferenceBackend(**mutant.declares, name=mutant.name)
            return backend


def _change(file: Path, mutant: Mutant) -> None:
    text = file.read_text(encoding="utf-8")
    found = text.count(mutant.old)
    if found != 1:
        raise ValueError(
            f"{mutant.name}: expected this text once in reference/{mutant.file}, found it {found} "
            f"times; the reference has changed, adapt the mutant to it:\n{mutant.old}"
        )
    file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")


@contextmanager
def _imported(package: Path) -> Iterator[ModuleType]:
    """Import the backend module of a package in a folder; forget the package's name at the end."""
    spec = importlib.util.spec_from_file_location(
        package.name, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[package.name] = module
    try:
        spec.loader.exec_module(module)
        yield sys.modules[f"{package.name}.backend"]
    finally:
        for name in [name for name in sys.modules if name.startswith(package.name)]:
            del sys.modules[name]
