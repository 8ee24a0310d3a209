"""The command line: names that it takes."""

import subprocess
import sys
from pathlib import Path

from nibblespec.conformance.cli import app
from nibblespec.schemas import DOCUMENTS, schema_text
from nibblespec.spec.formats import FORMATS
from typer.testing import CliRunner

ROOT = Path(__file__).parent.parent


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
