"""The compiled CPU kernels: equal to plain PyTorch in every form; to be had, or done without."""

import ctypes
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from nibblespec.optimized import portable
from nibblespec.optimized.cpu import build
from nibblespec.optimized.cpu.kernels import compiled
from nibblespec.optimized.cpu.library import Library, _parallel_for, library
from nibblespec.optimized.layout import DashqLayout
from nibblespec.optimized.operations import Operations
from nibblespec.spec.operations import OPERATIONS

from tests.torch_samples import Call, bounded_calls, exact_calls, same_bits

EXACT = tuple(exact_calls())
BOUNDED = tuple(bounded_calls())

FORMS = {
    "native": build.NATIVE,
    "AVX-512": (("-march=skylake-avx512", "-O1"),),
    "AVX2": (("-march=x86-64-v3", "-O1"),),
    "generic": (("-O1",),),
}
"""Kernels for this processor, and those that other processors get."""

NEEDED = {"AVX-512": "avx512vl", "AVX2": "avx2"}
"""What a processor must have to run them."""


@pytest.fixture(scope="module", params=FORMS)
def kernels(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Operations:
    """Compile one form of the kernels."""
    if NEEDED.get(request.param, "") not in build._processor():
        pytest.skip(f"{request.param}: this processor has none")
    cache = None if request.param == "native" else tmp_path_factory.mktemp("cache")
    try:
        path = build.built_library(FORMS[request.param], cache)
    except build.BuildError as error:
        pytest.skip(f"{request.param}: {error}")
    found = Library(path)
    if request.param not in ("native", found.instructions):
        pytest.skip(f"{request.param}: the compiler made {found.instructions}")
    return compiled(found)


@pytest.mark.parametrize("call", EXACT, ids=str)
def test_exact_results_are_those_of_plain_pytorch(call: Call, kernels: Operations) -> None:
    expected = getattr(portable.OPERATIONS, call.operation)(*call.arguments)
    assert same_bits(getattr(kernels, call.operation)(*call.arguments), expected)


@pytest.mark.parametrize("operation", ["dashq_reconstruct", "nested_reconstruct"])
def test_memory_to_write_to_has_to_fit(operation: str, kernels: Operations) -> None:
    call = next(call for call in EXACT if call.operation == operation)
    expected = getattr(kernels, operation)(*call.arguments)
    out = torch.empty_like(expected)
    assert getattr(kernels, operation)(*call.arguments, out=out) is out
    assert same_bits(out, expected)
    rows, columns = expected.shape
    for wrong in (out[:-1], out.double(), out.to("meta"), out.new_empty(rows, 2 * columns)[:, ::2]):
        with pytest.raises((TypeError, ValueError), match="out: expected"):
            getattr(kernels, operation)(*call.arguments, out=wrong)


@pytest.mark.parametrize("call", BOUNDED, ids=str)
def test_sums_are_near_those_of_plain_pytorch(call: Call, kernels: Operations) -> None:
    expected = getattr(portable.OPERATIONS, call.operation)(*call.arguments)
    found = getattr(kernels, call.operation)(*call.arguments)
    accuracy = 2e-2 if expected.dtype == torch.bfloat16 else 2e-3
    size = expected.to(torch.float64).abs().max()
    assert found.dtype == expected.dtype
    assert ((found.to(torch.float64) - expected.to(torch.float64)).abs() <= accuracy * size).all()


def test_the_samples_reach_every_compiled_operation() -> None:
    reached = {call.operation for call in (*EXACT, *BOUNDED)}
    assert reached == {*OPERATIONS, "quantize_transformed"} - {
        "pack_words",
        "unpack_words",
        "pack_planes",
        "unpack_planes",
    }


@pytest.fixture
def threads() -> Iterator[None]:
    """Put the number of threads back."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("call", [*EXACT[::5], *BOUNDED], ids=str)
def test_the_number_of_threads_changes_no_bit(call: Call) -> None:
    found = library()
    if found is None:
        pytest.skip("no compiled kernels here")
    operation = getattr(compiled(found), call.operation)
    torch.set_num_threads(1)
    alone = operation(*call.arguments)
    torch.set_num_threads(2)
    assert same_bits(operation(*call.arguments), alone)


def test_the_threads_are_pytorchs_own() -> None:
    assert _parallel_for() is not None


def test_work_is_shared_out_to_several_threads() -> None:
    address = _parallel_for()
    assert address is not None
    body_type = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    loop = ctypes.CFUNCTYPE(
        ctypes.c_int32,
        ctypes.c_int64,
        ctypes.c_int64,
        ctypes.c_int64,
        body_type,
        ctypes.c_void_p,
    )(address)
    parts = []
    assert loop(0, 100, 1, body_type(lambda begin, end, _: parts.append((begin, end))), None) == 0
    assert sorted(parts)[0][0] == 0
    assert sum(end - begin for begin, end in parts) == 100
    assert len(parts) == torch.get_num_threads()


def test_subnormal_numbers_count_whatever_the_thread_is_set_to() -> None:
    code = """
import json
import torch
from nibblespec.optimized.pytorch import operations
x = torch.full((1, 2), 3e-39)
scale = torch.full((1, 1), 1e-39)
hi = torch.full((1, 1), 0xFF, dtype=torch.uint8)
before = operations.hadamard(x, None, torch.bfloat16), operations.kv_dequantize(
    hi, None, scale[0], "draft")
assert torch.set_flush_denormal(True)
after = operations.hadamard(x, None, torch.bfloat16), operations.kv_dequantize(
    hi, None, scale[0], "draft")
torch.set_flush_denormal(False)
print(json.dumps([float(t.flatten()[0]) for t in (*before, *after)]))
"""
    if library() is None:
        pytest.skip("no compiled kernels here")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    sums, codes, sums_after, codes_after = json.loads(done.stdout)
    assert sums == sums_after != 0
    assert codes == codes_after != 0


def available_memory() -> int:
    """Return bytes of memory that are free, 0 where nobody says."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    (line,) = (line for line in lines if line.startswith("MemAvailable"))
    return int(line.split()[1]) * 1024


@pytest.mark.skipif(available_memory() < 12 << 30, reason="needs 6 GB of memory")
def test_offsets_go_beyond_32_bits() -> None:
    found = library()
    if found is None:
        pytest.skip("no compiled kernels here")
    rows, columns = 4 * 1024 * 1024 + 3, 512  # 2^31 and a little more
    layout = DashqLayout(1, 512, rows, columns, columns)
    words = torch.zeros(rows * columns // 32, dtype=torch.int32)
    words[-columns // 32 :] = -1
    scale = torch.ones(rows, 1, dtype=torch.float16)
    zero = torch.zeros(rows, 1, dtype=torch.float16)
    weight = compiled(found).dashq_reconstruct(words, scale, zero, layout, torch.float16)
    assert weight[-1].tolist() == [1.0] * columns
    assert not weight[-2].any()
    assert not weight[0].any()


def test_without_a_compiler_one_line_is_logged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", "/nowhere/c++")
    monkeypatch.delenv("NIBBLESPEC_CPU_KERNELS", raising=False)
    with caplog.at_level(logging.WARNING, logger="nibblespec.optimized"):
        assert library.__wrapped__() is None
    (record,) = caplog.records
    assert "plain PyTorch is used instead" in record.getMessage()
    assert "no C++ compiler found (/nowhere/c++)" in record.getMessage()


def test_kernels_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIBBLESPEC_CPU_KERNELS", "off")
    assert library.__wrapped__() is None


def test_a_cached_library_needs_no_compiler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_compiler(monkeypatch, tmp_path, 'for out; do :; done; echo made > "$out"')
    path = build.built_library(cache=tmp_path / "cache")
    monkeypatch.setenv("CXX", "/nowhere/c++")
    assert build.built_library(cache=tmp_path / "cache") == path
    assert path.read_text() == "made\n"


def fake_compiler(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """Make CXX a shell script."""
    program = folder / "compiler"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("CXX", str(program))


def test_flags_that_the_compiler_refuses_are_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = 'case "$*" in *native*) exit 1;; esac; for out; do :; done; echo "$*" > "$out"'
    fake_compiler(monkeypatch, tmp_path, script)
    assert "-ffp-contract=off" in build.built_library(cache=tmp_path / "cache").read_text()


def test_what_the_compiler_says_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_compiler(monkeypatch, tmp_path, "echo no disk left >&2; exit 3")
    with pytest.raises(build.BuildError, match="cannot compile the CPU kernels: no disk left"):
        build.built_library(cache=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_other_flags_are_another_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_compiler(monkeypatch, tmp_path, 'for out; do :; done; echo made > "$out"')
    paths = {build.built_library(natives, tmp_path / "cache") for natives in FORMS.values()}
    assert len(paths) == len(FORMS)


def test_a_cache_that_cannot_be_written_is_an_error_that_helps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_compiler(monkeypatch, tmp_path, "exit 1")
    (tmp_path / "file").write_text("")
    with pytest.raises(build.BuildError, match="set XDG_CACHE_HOME to a folder"):
        build.built_library(cache=tmp_path / "file" / "cache")


def test_a_library_that_others_can_write_to_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_compiler(monkeypatch, tmp_path, 'for out; do :; done; echo made > "$out"')
    build.built_library(cache=tmp_path / "cache").chmod(0o777)
    with pytest.raises(build.BuildError, match="can be written to by others"):
        build.built_library(cache=tmp_path / "cache")


def test_processes_may_compile_at_the_same_time(tmp_path: Path) -> None:
    script = tmp_path / "compiler"
    script.write_text('#!/bin/sh\nfor out; do :; done; sleep 0.2; echo made > "$out"\n')
    script.chmod(0o755)
    code = (
        "from pathlib import Path; from nibblespec.optimized.cpu.build import built_library; "
        f"print(built_library(cache=Path({str(tmp_path / 'cache')!r})).read_text())"
    )
    environment = {"CXX": str(script), "PATH": "/usr/bin:/bin"}
    running = [
        subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    assert [process.communicate()[0].strip() for process in running] == [b"made"] * 3
    assert len(list((tmp_path / "cache").iterdir())) == 1


@pytest.mark.parametrize("kept", [0, 4])
def test_a_cached_library_that_is_cut_off_is_compiled_anew(
    kept: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_compiler(monkeypatch, tmp_path, 'for out; do :; done; echo made > "$out"')
    path = build.built_library(cache=tmp_path / "cache")
    os.truncate(path, kept)
    assert build.built_library(cache=tmp_path / "cache").read_text() == "made\n"
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_a_compiler_that_makes_nothing_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_compiler(monkeypatch, tmp_path, "exit 0")
    with pytest.raises(build.BuildError, match="cannot compile the CPU kernels: exit status 0"):
        build.built_library(cache=tmp_path / "cache")


def test_a_compiler_may_speak_in_another_encoding(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_compiler(monkeypatch, tmp_path, r"printf 'no disk\377\n' >&2; exit 1")
    with pytest.raises(build.BuildError, match="cannot compile the CPU kernels: no disk"):
        build.built_library(cache=tmp_path / "cache")


def test_a_library_without_our_functions_is_an_error_of_loading(tmp_path: Path) -> None:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    (tmp_path / "other.cpp").write_text("int other;")
    command = [compiler, "-shared", "-fPIC", str(tmp_path / "other.cpp")]
    subprocess.run([*command, "-o", str(tmp_path / "other.so")], check=True)
    with pytest.raises(OSError, match="has no function nibblespec_dashq_reconstruct"):
        Library(tmp_path / "other.so")


def test_a_user_without_a_home_gets_an_error_that_helps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def expanduser(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "expanduser", expanduser)
    with pytest.raises(build.BuildError, match="set XDG_CACHE_HOME to a folder of your own"):
        build.cache_folder()


def test_the_cache_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build.cache_folder() == tmp_path / "nibblespec" / "cpu-kernels"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/path")  # which the XDG rules say to ignore
    assert build.cache_folder() == Path("~/.cache/nibblespec/cpu-kernels").expanduser()


LAYERS = [call for call in BOUNDED if call.operation in ("nested_linear", "dashq_linear")]


@pytest.mark.parametrize("call", LAYERS, ids=str)
def test_a_token_gets_the_same_bits_among_any_number(call: Call, kernels: Operations) -> None:
    inputs = 2 if call.operation == "nested_linear" else 1
    tokens, weight = call.arguments[:inputs], call.arguments[inputs:]
    linear = getattr(kernels, call.operation)
    alone = linear(*(part[:1] for part in tokens), *weight)
    for count in (2, 3, 4, 5, 6, 9, 14, 16, 23):
        many = linear(*(part[:1].repeat(count, 1) for part in tokens), *weight)
        assert same_bits(many, alone.repeat(count, 1)), count
