"""Benchmarks that ended early: what is written by then, and how another run goes on with it."""

import functools
import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from nibblespec.optimized.benchmarks import __main__ as program
from nibblespec.optimized.benchmarks import case, cases, cuda_cases, lost_device, machine, shapes
from nibblespec.optimized.benchmarks.__main__ import main

Maker = functools.partial[case.Case]


def broken(number: int) -> case.Case:
    """Fail, as a case that there is no memory for."""
    raise MemoryError(f"no room for {number}")


def good(number: int) -> case.Case:
    """Make a case of two contestants that do nothing."""
    contestants = tuple(case.Contestant(name, lambda: None, 1, 0) for name in ("ours", "theirs"))
    return case.Case("nothing", f"shape {number}", None, 0, contestants)


def ends(number: int) -> case.Case:
    """End the program, as a kernel that crashes it."""
    raise SystemExit(number)


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return a program that measures the given cases and writes `figures.json`."""
    monkeypatch.setattr(machine, "BYTES", 1 << 16)
    monkeypatch.setattr(machine, "EDGE", 64)
    arguments = ["--cpu", "--seconds", "0", "--json", str(tmp_path / "figures.json")]

    def run(*makers: Maker, options: tuple[str, ...] = ()) -> int:
        monkeypatch.setattr(cases, "all_cases", lambda _: iter(makers))
        return main([*arguments, *options])

    return run


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lose the device as soon as a case fails."""
    on_cpu = program.on_cpu

    def on_lost() -> program.Bench:
        bench = on_cpu()
        return program.Bench(bench.measure_machine, bench.all_cases, bench.time, lambda: True)

    monkeypatch.setattr(program, "on_cpu", on_lost)


def found(folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return the shapes that were measured, and what became of cases."""
    figures = json.loads((folder / "figures.json").read_text(encoding="utf-8"))
    return [line["shape"] for line in figures["lines"]], figures["cases"]


def test_figures_say_what_became_of_each_case(measure: Callable[..., int], tmp_path: Path) -> None:
    status = measure(functools.partial(broken, 1), functools.partial(good, 2))
    assert status == 1
    shapes_of_lines, ended = found(tmp_path)
    assert shapes_of_lines == ["shape 2", "shape 2"]
    assert ended == {"broken (1,)": "MemoryError: no room for 1", "good (2,)": "measured"}


def test_a_case_is_written_down_before_it_begins(
    measure: Callable[..., int], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit):
        measure(functools.partial(good, 1), functools.partial(ends, 2))
    assert found(tmp_path)[1] == {"good (1,)": "measured", "ends (2,)": program.BEGUN}


def test_a_run_goes_on_after_the_case_that_ended_another(
    measure: Callable[..., int], tmp_path: Path
) -> None:
    makers = [functools.partial(good, 1), functools.partial(ends, 2), functools.partial(good, 3)]
    with pytest.raises(SystemExit):
        measure(*makers)
    assert measure(*makers, options=("--resume",)) == 1
    shapes_of_lines, ended = found(tmp_path)
    assert shapes_of_lines == ["shape 1", "shape 1", "shape 3", "shape 3"]
    assert list(ended.values()) == ["measured", program.BEGUN, "measured"]


@pytest.mark.usefixtures("lost")
def test_nothing_is_begun_on_a_lost_device(
    measure: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    makers = [functools.partial(good, 1), functools.partial(broken, 1), functools.partial(good, 2)]
    status = measure(*makers)
    assert status == program.LOST
    assert list(found(tmp_path)[1]) == ["good (1,)", "broken (1,)"]
    assert "the device is lost since broken (1,): go on with --resume" in capsys.readouterr().err


def test_without_figures_to_go_on_with_all_cases_are_measured(
    measure: Callable[..., int], tmp_path: Path
) -> None:
    assert measure(functools.partial(good, 1), options=("--resume",)) == 0
    assert found(tmp_path)[1] == {"good (1,)": "measured"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[:-20], "JSONDecodeError"),
        (lambda text: text.replace('"name": "', '"name": "another '), "those of another"),
        (lambda text: text.replace('"cases"', '"others"'), "KeyError: 'cases'"),
    ],
    ids=["cut", "of another machine", "without cases"],
)
def test_figures_that_are_of_no_use_are_refused(
    measure: Callable[..., int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[str], str],
    message: str,
) -> None:
    assert measure(functools.partial(good, 1)) == 0
    figures = tmp_path / "figures.json"
    before = change(figures.read_text(encoding="utf-8"))
    figures.write_text(before, encoding="utf-8")
    with pytest.raises(SystemExit, match="2"):
        measure(functools.partial(good, 2), options=("--resume",))
    error = capsys.readouterr().err
    assert "--resume: expected figures of this machine" in error
    assert message in error
    assert figures.read_text(encoding="utf-8") == before


def test_to_go_on_needs_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--cpu", "--resume"])
    assert "expected also --json FILE" in capsys.readouterr().err


@pytest.mark.parametrize("all_cases", [cases.all_cases, cuda_cases.all_cases])
def test_no_two_cases_have_one_name(all_cases: Callable[..., Iterator[Maker]]) -> None:
    names = [program.name_of(make) for make in all_cases(shapes.ROWS)]
    assert len(set(names)) == len(names)


def test_a_file_is_whole_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "figures.json"
    target.write_text("before", encoding="utf-8")

    def full(_: Path, text: str, encoding: str) -> int:
        raise OSError(28, f"no space for {text} in {encoding}")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="no space"):
        program.write_whole(target, "after")
    assert target.read_text(encoding="utf-8") == "before"


def test_what_is_no_file_is_written_to_and_stays(tmp_path: Path) -> None:
    link = tmp_path / "null"
    link.symlink_to("/dev/null")
    program.write_whole(link, "text")
    assert stat.S_ISCHR(link.stat().st_mode)


@pytest.mark.parametrize("lost", [False, True])
def test_a_device_that_fails_whatever_is_asked_of_it_is_lost(
    monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    def synchronize() -> None:
        if lost:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    assert lost_device.is_lost() == lost
