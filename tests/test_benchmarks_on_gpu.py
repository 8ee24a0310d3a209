"""The script for a GPU machine: what it needs, what it runs and what it writes."""

import json
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from nibblespec.optimized.benchmarks import on_gpu

ROOT = Path(__file__).parent.parent


def test_all_packages_of_the_clone_can_be_imported(tmp_path: Path) -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert {f"nibblespec.{part}" for part in on_gpu.PARTS} == set(setuptools["package-dir"])
    environment = on_gpu.environment_for(tmp_path)
    code = "import nibblespec.conformance as it; print(it.__file__)"
    found = on_gpu.output([sys.executable, "-c", code], environment)
    assert found == str(tmp_path / "path" / "nibblespec" / "conformance" / "__init__.py")


def test_what_the_clone_needs_is_looked_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["optimized"], *extras["suite"]]
    names = {entry.partition(";")[0].partition(">")[0].partition("=")[0] for entry in needed}
    assert names == {*on_gpu.HEAVY, *on_gpu.LIGHT}


def test_a_missing_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(on_gpu, "LIGHT", ("pytest", "no-such-package"))
    assert on_gpu.main([str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "missing packages: no-such-package; give a folder" in error
    assert "--wheels FOLDER" in error


def test_what_is_missing_is_installed_from_the_wheels_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def pip(command: list[str], check: bool) -> subprocess.CompletedProcess[str]:
        assert not check
        commands.append(command)
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(subprocess, "run", pip)
    said = on_gpu.provide(("pytest", "no-such-package"), tmp_path)
    assert said == f"pip could not install no-such-package from {tmp_path}; see what it says above"
    ((_, *command),) = commands
    assert command[:3] == ["-m", "pip", "install"]
    assert command[-4:] == ["--no-index", "--find-links", str(tmp_path), "no-such-package"]


def test_the_summary_says_how_each_part_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(status: int) -> list[str]:
        return [sys.executable, "-c", f"print('some\\nlast'); raise SystemExit({status})"]

    chosen = [("good", lambda _: ends(0), 60), ("bad", lambda _: ends(3), 60)]
    monkeypatch.setattr(on_gpu, "parts", lambda *_: chosen)
    assert on_gpu.main([str(tmp_path / "out")]) == 1
    summary = json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
    found = [(part["part"], part["status"], part["last_line"]) for part in summary["parts"]]
    assert found == [("good", 0, "last"), ("bad", 3, "last")]
    assert summary["versions"]["torch"]
    assert summary["date"].startswith("20")
    assert (tmp_path / "out" / "bad.txt").read_text() == "some\nlast\n"


def test_a_part_that_takes_too_long_is_stopped_with_what_it_started(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    child = f"import time; time.sleep(3); open({str(mark)!r}, 'w')"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    result = on_gpu.run("slow", [sys.executable, "-c", code], 1, tmp_path, {})
    assert result.status is None
    time.sleep(3)
    assert not mark.exists()


@pytest.mark.parametrize("on_cpu", [False, True])
def test_conformance_comes_first_and_the_benchmarks_get_the_rest(
    tmp_path: Path, on_cpu: bool
) -> None:
    parts = on_gpu.parts(tmp_path, on_cpu)
    assert [name for name, *_ in parts] == ["conformance", "tests", "benchmarks"]
    benchmarks = parts[2][1](100.0)
    assert benchmarks[-2:] == ["--limit", "80"]
    assert ("--cuda" in benchmarks) != on_cpu
    assert on_gpu.MOST_FOR_CONFORMANCE + on_gpu.MOST_FOR_TESTS < on_gpu.SECONDS <= 360
