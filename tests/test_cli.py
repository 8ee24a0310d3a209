"""The command line: what it prints, and how it ends."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from nibblespec.conformance import Finding, InputError, validate
from nibblespec.conformance.cli import app
from nibblespec.schemas import load_schema, schema_text
from nibblespec.spec import operations
from nibblespec.spec.exec_protocol import ARGUMENTS
from nibblespec.spec.operations import OPERATIONS
from nibblespec.spec.requirements import requirements
from typer.testing import CliRunner, Result

ROOT = Path(__file__).parent.parent
DASHQ = ROOT / "examples" / "dashq_config.json"
BITNEST = ROOT / "examples" / "meta.json"
COMMAND = [sys.executable, "-c", "from nibblespec.conformance.cli import main; main()"]

Edit = Callable[[dict[str, Any]], object]


def run(*arguments: str | Path, stdin: bytes | None = None) -> Result:
    """Run the command line inside this process."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def process(
    *arguments: str | Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run the command line as a process of its own."""
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False, timeout=60, env=environment)


@pytest.fixture
def edited(tmp_path: Path) -> Callable[[Edit], Path]:
    """Write the dashq example with a change, and return its path."""

    def edit(change: Edit) -> Path:
        manifest = json.loads(DASHQ.read_bytes())
        change(manifest)
        path = tmp_path / "dashq_config.json"
        path.write_text(json.dumps(manifest))
        return path

    return edit


def in_every_module(**changes: object) -> Edit:
    def change(manifest: dict[str, Any]) -> None:
        for module in manifest["quantized_modules"].values():
            module.update(changes)

    return change


def test_both_examples_are_valid_without_warnings() -> None:
    result = run("validate", "--strict", DASHQ, BITNEST)
    assert result.exit_code == 0
    assert "valid manifest of dashq-packed-linear v1, 248 modules, 6,918,504,448 weights" in (
        result.stdout
    )
    assert "valid manifest of bitnest-package-v1, 197 layers" in result.stdout


def test_the_same_error_in_every_module_is_one_entry(edited: Callable[[Edit], Path]) -> None:
    result = run("validate", edited(in_every_module(nbits="4")))
    assert result.exit_code == 1
    assert result.stdout.count("error DQ1-FIELD-TYPE: `nbits` has the wrong type") == 1
    assert "248 modules, e.g. /quantized_modules/" in result.stdout


def test_warnings_fail_where_strict(edited: Callable[[Edit], Path]) -> None:
    path = edited(in_every_module(scale_zero_dtype="fp16"))
    assert run("validate", path).exit_code == 0
    assert run("validate", "--strict", path).exit_code == 1


def test_standard_input_is_read() -> None:
    result = run("validate", "-", stdin=BITNEST.read_bytes())
    assert result.exit_code == 0
    assert "standard input: valid manifest of bitnest-package-v1" in result.stdout


def test_a_folder_is_validated_through_its_manifest(tmp_path: Path) -> None:
    shutil.copy(BITNEST, tmp_path)
    result = run("validate", "--level", "manifest", tmp_path)
    assert result.exit_code == 0
    assert "valid manifest of bitnest-package-v1" in result.stdout.replace("\n", " ")


def test_a_folder_without_a_manifest_cannot_be_validated(tmp_path: Path) -> None:
    result = run("validate", tmp_path)
    assert result.exit_code == 2
    assert "no manifest in it: expected dashq_config.json or meta.json" in result.stderr


def test_a_folder_with_two_manifests_cannot_be_validated(tmp_path: Path) -> None:
    shutil.copy(BITNEST, tmp_path)
    shutil.copy(DASHQ, tmp_path)
    result = run("validate", tmp_path)
    assert result.exit_code == 2
    assert "expected one manifest, found dashq_config.json and meta.json" in result.stderr


@pytest.mark.parametrize("command", ["validate", "inspect"])
def test_the_empty_path_is_not_the_current_folder(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(BITNEST, tmp_path)
    monkeypatch.chdir(tmp_path)
    result = run(command, "")
    assert result.exit_code == 2
    assert "the path is empty" in result.stderr


def test_a_missing_file_cannot_be_validated(tmp_path: Path) -> None:
    result = run("validate", tmp_path / "nothing.json")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "No such file or directory" in result.stderr


def test_the_configuration_of_a_model_comes_with_the_path_to_give_instead(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    result = run("validate", tmp_path / "config.json")
    assert result.exit_code == 1
    assert "give its folder, or the manifest there, dashq_config.json or meta.json" in (
        " ".join(result.stdout.split())
    )


@pytest.mark.parametrize("command", ["validate", "inspect"])
def test_a_file_of_tensors_is_not_read_as_a_manifest(command: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"\0" * 16)
    path.chmod(0)
    result = run(command, path)
    assert result.exit_code == 2
    assert "holds tensors: give its folder, or the manifest there" in result.stderr


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_pipes_and_devices_are_not_opened(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "meta.json")
    for path in (tmp_path / "meta.json", tmp_path):
        result = run("validate", path)
        assert result.exit_code == 2
        assert "is a pipe or device" in result.stderr


def test_all_paths_are_reported_though_some_cannot_be_read(
    tmp_path: Path, edited: Callable[[Edit], Path]
) -> None:
    broken = edited(in_every_module(nbits="4"))
    result = run("validate", tmp_path / "nothing.json", broken, BITNEST)
    assert result.exit_code == 2
    assert f"✓ {BITNEST}" in result.stdout
    assert f"✗ {broken}" in result.stdout
    assert "1 valid, 1 with errors, 1 could not be read" in result.stdout


def test_a_hostile_file_name_is_escaped_in_complaints(tmp_path: Path) -> None:
    result = run("validate", tmp_path / "\x1b[31mred")
    assert r"\x1b[31mred" in result.stderr
    assert "\x1b" not in result.stderr


def test_json_output_follows_its_schema(edited: Callable[[Edit], Path]) -> None:
    result = run("validate", "--format", "json", DASHQ, edited(in_every_module(nbits="4")))
    document = json.loads(result.stdout)
    jsonschema.validate(document, load_schema("findings"))
    assert result.exit_code == 1
    assert len(document["reports"][1]["findings"]) == 248


def test_sarif_output_follows_the_published_schema(edited: Callable[[Edit], Path]) -> None:
    result = run("validate", "--format", "sarif", edited(in_every_module(nbits="4")))
    document = json.loads(result.stdout)
    schema = json.loads((ROOT / "tests/data/sarif-2.1.0.schema.json").read_text())
    jsonschema.validate(document, schema)
    assert {found["ruleId"] for found in document["runs"][0]["results"]} == {"DQ1-FIELD-TYPE"}


def test_an_unknown_format_is_a_usage_error() -> None:
    assert run("validate", "--format", "yaml", DASHQ).exit_code == 2


def test_an_unknown_level_is_refused() -> None:
    assert run("validate", "--level", "everything", DASHQ).exit_code == 2
    with pytest.raises(ValueError, match="level: expected manifest"):
        validate(DASHQ, level="everything")  # type: ignore[arg-type]  # that is the point


def test_python_gets_findings(edited: Callable[[Edit], Path]) -> None:
    findings = validate(edited(in_every_module(nbits="4")))
    assert len(findings) == 248
    assert isinstance(findings[0], Finding)
    assert findings[0].file == "dashq_config.json"


def test_python_gets_an_exception_where_there_is_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        validate(tmp_path / "nothing.json")


def test_explain_prints_the_statement_whatever_the_case() -> None:
    result = run("explain", "json-syntax")
    assert result.exit_code == 0
    assert "JSON-SYNTAX  MUST: breaking it is an error" in result.stdout
    assert requirements()["JSON-SYNTAX"].text in " ".join(result.stdout.split())
    assert "stated in   spec/files.md" in result.stdout


def test_explain_says_that_a_may_statement_informs_where_it_holds() -> None:
    assert "DQ1-LAYERS-COVERAGE  MAY: where this is so, an info" in (
        run("explain", "DQ1-LAYERS-COVERAGE").stdout
    )


def test_documents_that_are_shown_are_paths_in_the_repository() -> None:
    shown = [line for line in run("explain").stdout.splitlines() if line.endswith(".md")]
    assert shown
    assert [path for path in shown if not (ROOT / path).is_file()] == []


def test_explain_suggests_what_comes_close() -> None:
    result = run("explain", "JSON-SINTAX")
    assert result.exit_code == 2
    assert "did you mean JSON-SYNTAX" in result.stderr


@pytest.mark.parametrize("name", OPERATIONS)
def test_explain_prints_the_call_and_the_text_of_an_operation(name: str) -> None:
    shown = run("explain", name).stdout
    said = getattr(operations, name.title().replace("_", "")).__call__.__doc__
    assert shown.startswith(f"{name}({', '.join(ARGUMENTS[name])})\n")
    assert " ".join(said.split()) in " ".join(shown.split())


def test_explain_suggests_operations_too() -> None:
    result = run("explain", "dashq-reconstuct")
    assert result.exit_code == 2
    assert "no requirement or operation dashq-reconstuct; did you mean dashq_rec" in result.stderr


def test_explain_without_an_id_lists_all() -> None:
    listed = run("explain").stdout
    assert [name for name in requirements() if name not in listed] == []


@pytest.mark.parametrize("name", ["dashq-packed-linear", "bitnest-package-v1", "findings"])
def test_schema_prints_what_is_committed(name: str) -> None:
    result = run("schema", name)
    assert result.exit_code == 0
    assert json.loads(result.stdout) == json.loads(schema_text(name))


@pytest.mark.parametrize("name", ["dashq-packed-linear-v1", "bitnest-package-v1"])
def test_schema_of_a_format_is_found_by_the_name_of_its_file(name: str) -> None:
    committed = (ROOT / "schemas" / f"{name}.schema.json").read_text()
    assert run("schema", name).stdout == committed


def test_an_unknown_schema_is_refused_with_the_known_names() -> None:
    result = run("schema", "gguf")
    assert result.exit_code == 2
    assert "expected one of dashq-packed-linear, bitnest-package-v1, findings" in result.stderr


def test_inspect_shows_the_example() -> None:
    result = run("inspect", DASHQ)
    assert result.exit_code == 0
    assert "248 modules, 6,918,504,448 weights in 216,203,264 groups" in result.stdout


def test_inspect_writes_json() -> None:
    assert json.loads(run("inspect", BITNEST, "--format", "json").stdout)["layers"] == 197


def test_inspect_writes_a_path_that_is_no_text_as_one(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff.json")
    shutil.copy(DASHQ, path)
    written = process("inspect", path, "--format", "json").stdout
    assert json.loads(written)["path"] == f"{tmp_path}/\ufffd.json"


@pytest.mark.parametrize("text", ["", "[]", "{}", "{", '{"format": "bitnest-package-v1"}'])
def test_inspect_refuses_what_is_no_valid_manifest(text: str) -> None:
    result = run("inspect", "-", stdin=text.encode())
    assert result.exit_code == 1
    assert "no valid manifest" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("command", ["validate", "inspect"])
def test_absurd_sizes_end_at_once(command: str, edited: Callable[[Edit], Path]) -> None:
    huge = 10**300
    path = edited(in_every_module(in_features=huge, quant_in_features=huge, out_features=huge))
    result = process(command, path)
    assert result.returncode == 1
    assert b"Traceback" not in result.stderr


def test_the_version_is_printed() -> None:
    assert run("--version").stdout.startswith("nibblespec ")


@pytest.mark.parametrize("argument", ["explain", "--help"])
def test_a_reader_that_goes_away_is_no_error(argument: str) -> None:
    """`nibblespec explain | head`: quiet, whatever was left to say."""
    with subprocess.Popen(
        [*COMMAND, argument], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == b""
        assert child.wait(timeout=60) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["explain"], ["--help"], ["validate", "--help"], []])
def test_a_full_disk_is_one_clear_line(arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            [*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, check=False, timeout=60
        )
    assert result.returncode == 2
    assert result.stderr == b"nibblespec: cannot write the output: No space left on device\n"


def test_an_output_that_is_closed_is_no_error() -> None:
    """`nibblespec validate FILE >&- 2>&-`: all that counts is the exit status."""
    command = " ".join(
        [f"exec {sys.executable} -c '{COMMAND[2]}' validate", str(DASHQ), ">&- 2>&-"]
    )
    assert subprocess.run(["sh", "-c", command], check=False, timeout=60).returncode == 0


def test_an_output_that_is_ascii_gets_ascii(edited: Callable[[Edit], Path]) -> None:
    path = edited(in_every_module(runtime_backend=4))
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    for arguments in (["validate", path, DASHQ], ["inspect", DASHQ], ["explain"]):
        result = process(*arguments, environment=environment)
        assert result.stderr == b""
        assert result.stdout.isascii()


def test_an_interrupt_ends_quietly() -> None:
    """Ctrl-C, here while standard input is read."""
    program = (
        "import signal, sys\n"
        "from types import SimpleNamespace\n"
        "from nibblespec.conformance.cli import main\n"
        "read = lambda size: signal.raise_signal(signal.SIGINT)\n"
        "sys.stdin = SimpleNamespace(buffer=SimpleNamespace(read=read))\n"
        "main()\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, "validate", "-"],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (result.returncode, result.stdout, result.stderr) == (-signal.SIGINT, b"", b"")


@pytest.mark.parametrize(
    "arguments", [["validate", DASHQ], ["validate", BITNEST], ["inspect", DASHQ], ["explain"]]
)
def test_nothing_heavy_is_imported(arguments: list[str | Path]) -> None:
    """Manifests are validated without torch, pytest or numpy, which take long to import."""
    heavy = ("torch", "pytest", "numpy", "hypothesis", "transformers", "jsonschema")
    program = (
        "import sys\n"
        "from nibblespec.conformance.cli import app\n"
        "app(standalone_mode=False)\n"
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert result.stderr.strip() == b"[]"
