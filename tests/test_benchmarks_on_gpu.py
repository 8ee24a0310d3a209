"""The script for a GPU machine: what it needs, what it runs and what it writes."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from nibblespec.optimized.benchmarks import on_gpu

ROOT = Path(__file__).parent.parent


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a device."""
    monkeypatch.setattr(on_gpu, "DEVICE", "print('a card')")


def part(name: str, command: list[str]) -> on_gpu.Part:
    """Return a part that is started once."""
    return on_gpu.Part(name, lambda *_: command, 60)


def test_all_packages_of_the_clone_can_be_imported(tmp_path: Path) -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert {f"nibblespec.{part}" for part in on_gpu.PARTS} == set(setuptools["package-dir"])
    environment = on_gpu.environment_for(tmp_path)
    code = "import nibblespec.conformance as it; print(it.__file__)"
    found, _ = on_gpu.output([sys.executable, "-c", code], environment)
    assert found == str(tmp_path / "nibblespec" / "conformance" / "__init__.py")


def test_the_clone_has_its_version_though_it_is_not_installed(tmp_path: Path) -> None:
    environment = on_gpu.environment_for(tmp_path)
    # Not the clone itself, in which an editable installation may have left something.
    code = (
        "import sys; sys.path.pop(0); from importlib import metadata; "
        "print(metadata.distribution('nibblespec')._path)"
    )
    found, _ = on_gpu.output([sys.executable, "-c", code], environment)
    about = tmp_path / "nibblespec-0.1.0.dist-info"
    assert found == str(about)
    assert metadata.PathDistribution(about).version == metadata.version("nibblespec")


def test_kernels_are_compiled_whatever_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert on_gpu.environment_for(tmp_path)["TRITON_INTERPRET"] == "0"


def test_what_the_clone_needs_is_looked_for() -> None:
    names = set(map(on_gpu.name_of, on_gpu.requirements()))
    assert names == {*on_gpu.HEAVY, *on_gpu.LIGHT, "nibblespec"}


def test_the_page_says_how_to_fetch_what_is_looked_for() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    _, _, command = page.partition("pip download --only-binary :all: --python-version 3.12 ")
    assert command.partition("\n")[0].split() == ["--dest", "FOLDER", *on_gpu.LIGHT]


def test_a_missing_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(on_gpu, "LIGHT", ("pytest", "no-such-package"))
    assert on_gpu.main([str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "missing packages: no-such-package; give a folder" in error
    assert "--wheels FOLDER" in error


def test_without_a_device_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(on_gpu, "DEVICE", "raise RuntimeError('no driver')")
    assert on_gpu.main([str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        "error: expected a CUDA device that PyTorch can use, found none: RuntimeError: no driver\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_what_is_needed_is_installed_from_the_wheels_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def pip(command: list[str], check: bool) -> subprocess.CompletedProcess[str]:
        assert not check
        commands.append(command)
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(subprocess, "run", pip)
    said = on_gpu.provide(("ml_dtypes", "no-such-package"), tmp_path)
    assert said == f"pip could not install what is needed from {tmp_path}; see what it says above"
    ((_, *command),) = commands
    assert command[:3] == ["-m", "pip", "install"]
    wanted = ["ml_dtypes>=0.5", "no-such-package"]
    assert command[-5:] == ["--no-index", "--find-links", str(tmp_path), *wanted]


@pytest.mark.usefixtures("card")
def test_the_summary_says_how_each_part_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(status: int) -> list[str]:
        return [sys.executable, "-c", f"print('some\\nlast'); raise SystemExit({status})"]

    chosen = [part("good", ends(0)), part("bad", ends(3))]
    monkeypatch.setattr(on_gpu, "parts", lambda *_: chosen)
    assert on_gpu.main([str(tmp_path / "out")]) == 1
    summary = json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
    found = [(part["part"], part["status"], part["last_line"]) for part in summary["parts"]]
    assert found == [("good", 0, "last"), ("bad", 3, "last")]
    assert summary["versions"]["torch"]
    assert summary["device"] == "a card"
    assert summary["date"].startswith("20")
    assert (tmp_path / "out" / "bad.txt").read_text() == "some\nlast\n"
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "bad.txt",
        "good.txt",
        "summary.json",
    }


@pytest.mark.usefixtures("card")
def test_the_summary_is_there_before_the_last_part_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"print(open({str(tmp_path / 'summary.json')!r}).read())"
    chosen = [part("first", [sys.executable, "-c", ""]), part("last", [sys.executable, "-c", code])]
    monkeypatch.setattr(on_gpu, "parts", lambda *_: chosen)
    assert on_gpu.main([str(tmp_path)]) == 0
    summary = json.loads((tmp_path / "last.txt").read_text(encoding="utf-8"))
    assert [one["part"] for one in summary["parts"]] == ["first"]


@pytest.mark.usefixtures("card")
def test_a_part_that_crashes_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(_: float, again: bool) -> list[str]:
        code = "print('rest')" if again else "import os; print('begun', flush=True); os.abort()"
        return [sys.executable, "-c", code]

    monkeypatch.setattr(on_gpu, "parts", lambda *_: [on_gpu.Part("crashes", command, 60, 3)])
    assert on_gpu.main([str(tmp_path)]) == 1
    summary = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert [one["status"] for one in summary["parts"]] == [-signal.SIGABRT, 0]
    assert (tmp_path / "crashes.txt").read_text(encoding="utf-8") == "begun\nrest\n"


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize("status", [0, 1])
def test_a_part_that_comes_to_its_end_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    ends = [sys.executable, "-c", f"raise SystemExit({status})"]
    chosen = [on_gpu.Part("ends", lambda *_: ends, 60, 3)]
    monkeypatch.setattr(on_gpu, "parts", lambda *_: chosen)
    assert on_gpu.main([str(tmp_path)]) == status
    summary = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert len(summary["parts"]) == 1


def test_a_part_whose_time_is_over_can_say_what_it_knows(tmp_path: Path) -> None:
    code = "import time\ntry: time.sleep(60)\nexcept KeyboardInterrupt: print('so far')"
    result = on_gpu.run("slow", [sys.executable, "-c", code], 10, tmp_path, {})
    assert result.status is None
    assert result.last_line == "so far"


def test_what_runs_is_ended_with_the_script(tmp_path: Path) -> None:
    mark, out = tmp_path / "mark", tmp_path / "out"
    child = f"import time; print('begun', flush=True); time.sleep(4); open({str(mark)!r}, 'w')"
    code = (
        "import sys; from nibblespec.optimized.benchmarks import on_gpu; "
        f"part = on_gpu.Part('part', lambda *_: [sys.executable, '-c', {child!r}], 60); "
        f"on_gpu.parts = lambda *_: [part]; on_gpu.DEVICE = ''; "
        f"on_gpu.run_as_program([{str(out)!r}])"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    while not (out / "part.txt").exists() or not (out / "part.txt").read_text():
        assert process.poll() is None
        time.sleep(0.1)
    process.terminate()
    assert process.wait() == 128 + signal.SIGTERM
    time.sleep(4)
    assert not mark.exists()


def test_a_part_that_takes_too_long_is_stopped_with_what_it_started(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    child = f"import time; time.sleep(4); open({str(mark)!r}, 'w')"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    result = on_gpu.run("slow", [sys.executable, "-c", code], 2, tmp_path, {})
    assert result.status is None
    time.sleep(4)
    assert not mark.exists()


@pytest.mark.parametrize("on_cpu", [False, True])
def test_conformance_comes_first_and_the_benchmarks_get_the_rest(
    tmp_path: Path, on_cpu: bool
) -> None:
    parts = on_gpu.parts(tmp_path, on_cpu)
    assert [part.name for part in parts] == ["conformance", "tests", "benchmarks"]
    benchmarks = parts[2].command(100.0, False)
    assert benchmarks[-2:] == ["--limit", "80"]
    assert ("--cuda" in benchmarks) != on_cpu
    assert parts[2].command(100.0, True) == [*benchmarks, "--resume"]
    assert on_gpu.MOST_FOR_CONFORMANCE + on_gpu.MOST_FOR_TESTS < on_gpu.SECONDS - 90


def test_the_suite_reports_what_it_finds_through_the_links(tmp_path: Path) -> None:
    report, links = tmp_path / "report.json", tmp_path / "links"
    links.mkdir()
    test = "conformance/suite/test_packing.py::test_golden_words_are_unpacked"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test, "--report"]
    environment = on_gpu.environment_for(links)
    subprocess.run([*command, str(report)], cwd=ROOT, env=environment, check=True)
    assert json.loads(report.read_text(encoding="utf-8"))["summary"]["pass"] > 0


TESTS = """
import pytest

pytestmark = pytest.mark.filterwarnings("ignore")

def test_first() -> None:
    pass

@pytest.mark.parametrize("number", range(4))
def test_device(number: int) -> None:
    from nibblespec.optimized.benchmarks import lost_device
    if number == 0:
        lost_device.is_lost = lambda: True
    assert not lost_device.is_lost(), f"illegal access in test {number}"
"""


def test_a_worker_that_has_lost_its_device_makes_way_for_another(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS, encoding="utf-8")
    plugins = ["-p", "xdist.plugin", "-p", "nibblespec.optimized.benchmarks.lost_device"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "1", "-v", *plugins]
    done = subprocess.run(
        [*command, str(tmp_path)],
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # to start sooner
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "illegal access in test 0" in done.stdout
    assert "illegal access in test 1" not in done.stdout
    assert re.search(r"\b4 passed\b", done.stdout)
    assert done.returncode == 1
