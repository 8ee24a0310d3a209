"""The guides: every block of code runs as it stands, and writes what the page says."""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.website.blocks import DOCS, ROOT, Block, blocks

ELSEWHERE = {
    "teeth.md",  # made from tests/teeth, and compared with it there
    "teeth_models.md",  # likewise
    "benchmarks.md",  # its commands take long: test_benchmarks.py runs them on small sizes
}
"""Pages whose code other tests run."""

GUIDES = sorted({page.name for page in DOCS.glob("*.md")} - ELSEWHERE)
"""Every page that is written by hand."""

CODE = {"sh", "python"}
DATA = {"text", "yaml", "json"}


@pytest.mark.parametrize("guide", GUIDES)
def test_every_block_is_code_data_or_the_output_of_the_one_before(guide: str) -> None:
    found = blocks(DOCS / guide)
    assert {block.kind for block in found} <= CODE | DATA
    for before, block in pairwise([None, *found]):
        if block is not None and block.kind == "text":
            assert before is not None
            assert before.kind in CODE
            assert not before.reason


@pytest.mark.parametrize("guide", GUIDES)
def test_every_fence_of_a_page_is_a_block(guide: str) -> None:
    fences = (DOCS / guide).read_text(encoding="utf-8").count("\n```")
    assert fences == 2 * len(blocks(DOCS / guide))


@pytest.mark.parametrize("guide", GUIDES)
def test_every_block_runs_and_writes_what_the_page_says(guide: str, tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    written = ""
    for block in blocks(DOCS / guide):
        if block.title:
            file = tmp_path / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
        elif block.kind == "text":
            assert written == block.text
        elif block.kind in CODE and not block.reason:
            written = run(block, tmp_path, environment)


def run(block: Block, folder: Path, environment: dict[str, str]) -> str:
    """Run a block in a folder and return what it writes; it has to succeed in silence."""
    shell = ["bash", "-eu", "-o", "pipefail"]
    program = shell if block.kind == "sh" else [sys.executable]
    done = subprocess.run(
        [*program, "-c", block.text],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, ""), f"{block.text}{done.stdout}"
    return done.stdout


def test_python_of_the_readme_runs_in_the_repository() -> None:
    (block,) = (one for one in blocks(ROOT / "README.md") if one.kind == "python")
    assert run(block, ROOT, dict(os.environ)) == ""
