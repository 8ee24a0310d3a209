"""The guides: every block of code runs as it stands, and writes what the page says."""

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
GUIDES = ("validating.md",)

_BLOCK = re.compile(r"^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.M | re.S)


def blocks(guide: str) -> list[tuple[str, str]]:
    """Return the blocks of a page with what they are, in their order."""
    text = (DOCS / guide).read_text(encoding="utf-8")
    return [(match["kind"], match["text"]) for match in _BLOCK.finditer(text)]


@pytest.mark.parametrize("guide", GUIDES)
def test_every_block_is_code_or_the_output_of_the_one_before(guide: str) -> None:
    kinds = [kind for kind, _ in blocks(guide)]
    assert set(kinds) <= {"sh", "python", "text"}
    assert ("text", "text") not in pairwise(kinds)
    assert kinds[0] != "text"


@pytest.mark.parametrize("guide", GUIDES)
def test_every_block_runs_and_writes_what_the_page_says(guide: str, tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    written = ""
    for kind, text in blocks(guide):
        if kind == "text":
            assert written == text
            continue
        program = ["bash", "-eu", "-o", "pipefail"] if kind == "sh" else [sys.executable]
        done = subprocess.run(
            [*program, "-c", text],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert (done.returncode, done.stderr) == (0, ""), text
        written = done.stdout
