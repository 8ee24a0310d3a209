"""The command line: names that it takes, and the empty one, which it refuses."""

import subprocess
import sys
from pathlib import Path

import pytest
from nibblespec.conformance.cli import app
from nibblespec.schemas import DOCUMENTS, schema_text
from nibblespec.spec.formats import FORMATS
from typer.testing import CliRunner

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["explain"], "expected the id of a requirement or an operation"),
        (["example"], "expected a folder that is new or empty"),
        (["vectors", "export"], "expected a folder that is new or empty"),
        (["vectors", "check"], "expected the folder with the outputs"),
    ],
)
def test_an_empty_name_is_refused_in_quotes(
    arguments: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, [*arguments, ""])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"nibblespec: {expected}")
    assert result.stderr.endswith("found an empty name: ''\n")
    assert list(tmp_path.iterdir()) == []


def test_the_help_of_schema_names_every_schema() -> None:
    shown = CliRunner().invoke(app, ["schema", "--help"], env={"COLUMNS": "200"}).stdout
    committed = {file.name.removesuffix(".schema.json") for file in ROOT.glob("schemas/*.json")}
    manifests = {known.schema_name.removesuffix(".schema.json") for known in FORMATS}
    assert set(DOCUMENTS) == committed - manifests
    for name in (*(known.id for known in FORMATS), *DOCUMENTS):
        assert name in shown
        assert schema_text(name)


def test_the_help_of_schema_needs_no_models() -> None:
    """Help is written at every start: the models would make each start slower."""
    program = (
        "import sys\n"
        "from nibblespec.conformance.cli import app\n"
        "assert 'nibblespec.spec.formats' not in sys.modules\n"
        "app(['schema', '--help'])"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, capture_output=True)
