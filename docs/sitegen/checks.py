"""What checks each requirement: tests, cases of the corpus, faulty checkpoints."""

import ast
import json
import pkgutil
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module

from nibblespec.conformance import suite
from nibblespec.conformance.examples.write import FAULTS
from nibblespec.spec.requirements import requirements

from sitegen.sources import ROOT

CORPUS = ROOT / "schemas" / "corpus"
TESTS = ROOT / "tests"


@dataclass(slots=True)
class Checks:
    """Everything that fails where one requirement is broken, or its check is."""

    suite: list[str] = field(default_factory=list)
    """Tests of the conformance suite, `file.py::function`."""
    corpus: list[str] = field(default_factory=list)
    """Manifests of the corpus that break it."""
    examples: list[str] = field(default_factory=list)
    """Faults of `nibblespec example` that break it, `format fault`."""
    tests: list[str] = field(default_factory=list)
    """Tests of the project that name it."""

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.suite) + len(self.corpus) + len(self.examples) + len(self.tests)


@cache
def checks() -> Mapping[str, Checks]:
    """Return what checks each requirement, for all of them, in the order of the text."""
    found: dict[str, Checks] = {id_: Checks() for id_ in requirements()}
    for kind, pairs in (
        ("suite", _of_suite()),
        ("corpus", _of_corpus()),
        ("examples", _of_examples()),
        ("tests", _of_tests()),
    ):
        named = defaultdict(list)
        for id_, name in pairs:
            named[id_].append(name)
        for id_, names in named.items():
            if id_ in found:
                setattr(found[id_], kind, sorted(set(names)))
    return found


def _of_suite() -> Iterator[tuple[str, str]]:
    for module in pkgutil.iter_modules(suite.__path__):
        if not module.name.startswith("test_"):
            continue
        for name, value in vars(import_module(f"{suite.__name__}.{module.name}")).items():
            if name.startswith("test_") and callable(value):
                for mark in getattr(value, "pytestmark", ()):
                    if mark.name == "requirement":
                        yield from ((id_, f"{module.name}.py::{name}") for id_ in mark.args)


def _of_corpus() -> Iterator[tuple[str, str]]:
    for path in CORPUS.glob("*valid/*/*.expected.json"):
        name = path.relative_to(CORPUS).as_posix().removesuffix(".expected.json")
        for finding in json.loads(path.read_text(encoding="utf-8"))["findings"]:
            yield finding["requirement"], name


def _of_examples() -> Iterator[tuple[str, str]]:
    for family, faults in FAULTS.items():
        for name, fault in faults.items():
            yield from ((id_, f"{family} {name}") for id_ in fault.requirements)


def _of_tests() -> Iterator[tuple[str, str]]:
    """Yield the tests that hold an id as a string of its own, or run over a table that does."""
    for path in sorted(TESTS.rglob("test_*.py")):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        tables = {
            target.id: set(_ids(node.value))
            for node in body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                run_over = [
                    inner.id
                    for decorator in node.decorator_list
                    for inner in ast.walk(decorator)
                    if isinstance(inner, ast.Name)
                ]
                for id_ in {
                    *_ids(node),
                    *(id_ for name in run_over for id_ in tables.get(name, ())),
                }:
                    yield id_, f"{path.relative_to(TESTS).as_posix()}::{node.name}"


def _ids(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and inner.value in requirements():
            yield str(inner.value)
