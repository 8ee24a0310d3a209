"""The suite in workers of pytest-xdist: the same results, and what is under test is said."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from nibblespec.conformance.suite.run import SUITE


def run(folder: Path, *arguments: str) -> tuple[str, dict[str, Any]]:
    """Run the tests of packing on the reference; return the output and the report."""
    report = folder / "report.json"
    files = str(SUITE / "test_packing.py"), "--report", str(report)
    command = ["pytest", "-p", "no:cacheprovider", *files]
    done = subprocess.run(
        [sys.executable, "-m", *command, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout, json.loads(report.read_text(encoding="utf-8"))


def test_workers_find_what_one_process_finds_and_it_is_said_of_what(tmp_path: Path) -> None:
    alone, expected = run(tmp_path)
    output, found = run(tmp_path, "-n", "2")
    assert found == expected
    under_test = "conformance: backend reference"
    assert alone.count(under_test) == 1
    assert output.count(under_test) == 1
