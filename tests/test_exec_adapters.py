"""The adapters in JavaScript and C pass what they claim; with one wrong line each, they do not."""

import shlex
import shutil
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

from tests.exec_runs import messages, results, started, suite
from tests.exec_variants import JAVASCRIPT, C, Variant

ADAPTERS = Path(__file__).parent.parent / "examples" / "adapters"
SCRIPTS = ("adapter.mjs", "codes.mjs")
NODE = shutil.which("node")
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
EXAMPLES = 2

node = pytest.mark.skipif(NODE is None, reason="there is no program node")
compiler = pytest.mark.skipif(COMPILER is None, reason="there is no compiler cc, gcc or clang")


def compiled(source: str, folder: Path) -> str:
    """Compile the adapter in C as its first lines say, without time for a faster program."""
    assert COMPILER is not None
    (folder / "adapter.c").write_text(source, encoding="utf-8")
    options = "-std=c11 -O1 -ffp-contract=off adapter.c -lm -o adapter"
    subprocess.run([COMPILER, *options.split()], cwd=folder, check=True)
    return shlex.quote(str(folder / "adapter"))


def c_source() -> str:
    return (ADAPTERS / "c" / "adapter.c").read_text(encoding="utf-8")


def changed(source: str, variant: Variant) -> str:
    """Put the wrong line in; it has to be there, once."""
    assert source.count(variant.line) == 1, variant.name
    return source.replace(variant.line, variant.instead)


def is_rejected(program: str, variant: Variant) -> bool:
    """Say whether a test fails that is about what the variant breaks; the others are not run."""
    module = import_module(f"nibblespec.conformance.suite.{Path(variant.file).stem}")
    about = [
        name
        for name, test in vars(module).items()
        for mark in getattr(test, "pytestmark", ())
        if mark.name == "requirement" and variant.requirement in mark.args
    ]
    outcome = suite(program, files=[variant.file], select=" or ".join(about), shrink=False)
    assert messages(outcome, "error") == []
    return any(
        variant.requirement in one.requirements for one in outcome.results if one.result == "fail"
    )


@node
def test_adapter_in_javascript_passes_what_it_claims() -> None:
    program = shlex.join([str(NODE), str(ADAPTERS / "javascript" / "adapter.mjs")])
    outcome = suite(program, files=[], max_examples=EXAMPLES)
    assert outcome.exit_status == 0, outcome.output
    assert list(results(outcome).values()).count("pass") > 90
    with started(program) as backend:
        assert len(backend.capabilities().operations) == 9


@compiler
def test_adapter_in_c_passes_what_it_claims(tmp_path: Path) -> None:
    program = compiled(c_source(), tmp_path)
    outcome = suite(program, files=[], max_examples=EXAMPLES)
    assert outcome.exit_status == 0, outcome.output
    assert list(results(outcome).values()).count("pass") > 120
    with started(program) as backend:
        assert len(backend.capabilities().operations) == 11


@node
@pytest.mark.parametrize("variant", JAVASCRIPT, ids=lambda variant: variant.name)
def test_adapter_in_javascript_with_a_wrong_line_is_rejected(
    variant: Variant, tmp_path: Path
) -> None:
    source = (ADAPTERS / "javascript" / "codes.mjs").read_text(encoding="utf-8")
    shutil.copy(ADAPTERS / "javascript" / "adapter.mjs", tmp_path)
    (tmp_path / "codes.mjs").write_text(changed(source, variant), encoding="utf-8")
    assert is_rejected(shlex.join([str(NODE), str(tmp_path / "adapter.mjs")]), variant)


@compiler
@pytest.mark.parametrize("variant", C, ids=lambda variant: variant.name)
def test_adapter_in_c_with_a_wrong_line_is_rejected(variant: Variant, tmp_path: Path) -> None:
    assert is_rejected(compiled(changed(c_source(), variant), tmp_path), variant)


def test_adapter_in_javascript_is_short_and_needs_nothing_but_node() -> None:
    texts = [(ADAPTERS / "javascript" / name).read_text(encoding="utf-8") for name in SCRIPTS]
    assert sum(len(text.splitlines()) for text in texts) < 400
    imported = [line for text in texts for line in text.splitlines() if line.startswith("import")]
    assert imported == [
        'import { readSync, writeSync } from "node:fs";',
        'import * as codes from "./codes.mjs";',
    ]
