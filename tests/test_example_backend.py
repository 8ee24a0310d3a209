"""The example of a third-party backend conforms, and shares nothing with the reference."""

import ast
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parent.parent / "examples" / "int4_backend.py"


def run(*arguments: str, folder: Path = EXAMPLE.parent) -> subprocess.CompletedProcess[str]:
    command = "from nibblespec.conformance.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", command, "conformance", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_example_passes_what_it_claims() -> None:
    done = run("--backend", "int4_backend:backend", "--max-examples", "10")
    assert done.returncode == 0, done.stdout
    assert "int4-example 1 on cpu" in done.stdout
    assert " passed, " in done.stdout
    assert " not-claimed" in done.stdout
    assert "failed" not in done.stdout


def test_example_fails_when_one_nibble_order_is_wrong(tmp_path: Path) -> None:
    source = EXAMPLE.read_text(encoding="utf-8")
    swapped = source.replace("pairs % 16", "pairs // 16", 1)
    assert swapped != source
    (tmp_path / "int4_backend.py").write_text(swapped, encoding="utf-8")
    done = run("--backend", "int4_backend:backend", "-k", "unpacked", folder=tmp_path)
    assert done.returncode == 1
    assert "DQ1-PACKING-ORDER (MUST;" in done.stdout


def test_example_imports_neither_the_reference_nor_the_suite() -> None:
    tree = ast.parse(EXAMPLE.read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {
        "nibblespec.spec.dashq_packed_linear.v1.manifest",
        "nibblespec.spec.operations",
    }


def test_example_is_a_few_dozen_lines() -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) < 70
