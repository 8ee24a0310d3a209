"""The guide to adapters and the protocol's chapter: what they show is so."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from nibblespec.conformance.exec.steps import ORDER, STEPS
from nibblespec.schemas import load_schema
from nibblespec.spec.exec_protocol import AXES, DTYPES, LINE_BYTES, SCALARS
from nibblespec.spec.operations import OPERATIONS

ROOT = Path(__file__).parent.parent
GUIDE = (ROOT / "docs" / "other_languages.md").read_text(encoding="utf-8")
CHAPTER = (ROOT / "spec" / "exec_protocol.md").read_text(encoding="utf-8")
LEFT_OUT = re.findall(r"not (\w+)", " ".join(re.findall(r'`-k "(.*)"`', GUIDE)))
"""What the guide advises to leave out first."""
LINES = re.findall(r'^    (\{"id".*\})$', CHAPTER, re.M)


def test_program_of_the_guide_speaks_the_protocol(tmp_path: Path) -> None:
    """It prints what the guide shows below it."""
    (program,) = re.findall(r"```python\n(.*?)```", GUIDE, re.S)
    (tmp_path / "adapter.py").write_text(program, encoding="utf-8")
    shown = GUIDE.partition("    $ nibblespec exec-check 'python3 adapter.py'\n")[2]
    expected = [line[4:] for line in shown.partition("\n\n")[0].splitlines()]
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from nibblespec.conformance.cli import main; main()"),
            *("exec-check", f"{shlex.quote(sys.executable)} adapter.py"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == expected, done.stderr


def test_guide_has_a_step_for_every_operation() -> None:
    steps = [row for row in GUIDE.splitlines() if re.match(r"\| \d+ \|", row)]
    claimed = [name for row in steps for name in re.findall(r"`([a-z_]+)`", row.split("|")[2])]
    assert sorted(claimed) == sorted(OPERATIONS)
    assert sorted(ORDER) == sorted(OPERATIONS)


def test_guide_has_the_steps_in_the_order_in_which_exec_check_names_them() -> None:
    rows = [row.split("|") for row in GUIDE.splitlines() if re.match(r"\| \d+ \|", row)]
    shown = [
        (tuple(re.findall(r"`([a-z_]+)`", row[2])), row[4].strip(" `").removeprefix("-k "))
        for row in rows
    ]
    assert tuple(shown) == STEPS


@pytest.mark.parametrize("select", [*re.findall(r"`-k (\w+)`", GUIDE), *LEFT_OUT])
def test_guide_names_tests_that_exist(select: str) -> None:
    """Whole names of files: `large` would also leave out tests of the largest magnitude."""
    assert (ROOT / "conformance" / "suite" / f"test_{select}.py").is_file()


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_line_of_the_chapter_is_what_the_schema_says(line: str) -> None:
    schema = jsonschema.Draft202012Validator(load_schema("exec-protocol"))
    assert list(schema.iter_errors(json.loads(line))) == []


def test_chapter_has_lines_of_calls_and_of_answers() -> None:
    assert sum('"call"' in line for line in LINES) == 3
    assert len(LINES) >= 6


def test_chapter_names_every_operation_argument_dtype_and_limit() -> None:
    for name in (*OPERATIONS, *SCALARS, *DTYPES):
        assert f"`{name}`" in CHAPTER
    assert f"{LINE_BYTES:,} bytes" in CHAPTER
    assert f"more than {AXES} axes" in CHAPTER
