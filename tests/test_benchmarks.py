"""The benchmarks: they run, measure the layers of the examples, and write readable files."""

import functools
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from nibblespec.optimized import portable
from nibblespec.optimized.benchmarks import __main__ as program
from nibblespec.optimized.benchmarks import case, cases, machine, measure, operands, shapes
from nibblespec.optimized.benchmarks.__main__ import main
from nibblespec.optimized.benchmarks.formulas import dashq_formula, nested_formula
from nibblespec.optimized.benchmarks.table import Line
from nibblespec.spec import read_manifest
from nibblespec.spec.bitnest_package.v1.manifest import Manifest as BitnestManifest
from nibblespec.spec.dashq_packed_linear.v1.manifest import Manifest as DashqManifest

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_the_packed_shapes_are_those_of_the_example() -> None:
    manifest = read_manifest(EXAMPLES / "dashq_config.json")
    assert isinstance(manifest, DashqManifest)
    modules = manifest.quantized_modules.values()
    assert {(one.out_features, one.in_features) for one in modules} == set(shapes.DASHQ_SHAPES)
    assert {one.nbits for one in modules} == {shapes.DASHQ_BITS}
    assert {one.group_size for one in modules} == {shapes.DASHQ_GROUP}


def test_the_nested_shapes_are_those_of_the_example() -> None:
    manifest = read_manifest(EXAMPLES / "meta.json")
    assert isinstance(manifest, BitnestManifest)
    layers = manifest.layers.values()
    assert {tuple(layer.shape) for layer in layers} == set(shapes.NESTED_SHAPES)
    assert manifest.group_size == shapes.NESTED_GROUP


def test_the_formulas_compute_the_weights() -> None:
    weight, layout = operands.dashq_weight(8, 64)
    expected = portable.OPERATIONS.dashq_reconstruct(*weight, layout, torch.bfloat16)
    assert torch.equal(dashq_formula(*weight, rows=8), expected)
    hi, lo, scale = operands.nested_weight(8, 256)
    for plane, low in (("draft", None), ("target", lo)):
        expected = portable.OPERATIONS.nested_reconstruct(hi, low, scale, plane, torch.bfloat16)
        assert torch.equal(nested_formula(hi, low, scale), expected)


@pytest.mark.parametrize(
    "make",
    [
        functools.partial(cases.dashq_reconstruction, 8, 64),
        functools.partial(cases.nested_reconstruction, 8, 256, "draft"),
        functools.partial(cases.dashq_layer, 8, 64, 3),
        functools.partial(cases.nested_layer, 8, 256, 3),
        functools.partial(cases.activations, 64, 3),
        functools.partial(cases.transform, 4, 64, 3),
        functools.partial(cases.transform_and_quantization, 4, 64, 3),
        functools.partial(cases.cache_writing, 3),
        functools.partial(cases.attention, 3, 40),
    ],
    ids=lambda make: str(make.func.__name__),
)
def test_contestants_of_a_case_compute_alike(
    make: functools.partial[case.Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(case, "COLD_BYTES", 1)  # no copies to rotate through
    monkeypatch.setattr(cases, "compiled", lambda formula: formula)
    torch.manual_seed(0)
    answers = []
    for one in make().contestants:
        if one.name == "fill, new":
            continue
        answer = one.call()
        first = answer[0] if isinstance(answer, tuple) else answer
        assert isinstance(first, torch.Tensor)
        answers.append((one.name, first.to(torch.float32).clone()))
    target = next(answer for name, answer in answers if name != "ours, draft")
    for name, answer in answers:
        if name != "ours, draft":
            assert (answer - target).abs().max() <= 0.05 * target.abs().max(), name


def test_cases_cover_both_formats_and_all_rows() -> None:
    names = {make.func.__name__ for make in cases.all_cases(shapes.ROWS)}
    assert names == {
        "dashq_reconstruction",
        "nested_reconstruction",
        "dashq_layer",
        "nested_layer",
        "activations",
        "transform",
        "transform_and_quantization",
        "cache_writing",
        "attention",
    }
    layers = [make.args for make in cases.all_cases(shapes.ROWS) if make.func is cases.nested_layer]
    assert {tokens for *_, tokens in layers} == {1, 5, 16, 64, 512}


def test_every_case_compiles_its_formula_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    with torch._dynamo.config.patch(recompile_limit=1):
        for rows in (8, 16, 24):
            weight, _ = operands.dashq_weight(rows, 64)
            formula = functools.partial(dashq_formula, rows=rows)
            assert case.compiled(formula)(*weight).shape == (rows, 64)


def test_a_formula_that_is_not_compiled_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    formula = case.compiled(nested_formula)
    formula(*operands.nested_weight(8, 256))
    with (
        torch._dynamo.config.patch(recompile_limit=1),
        pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit),
    ):
        formula(*operands.nested_weight(16, 256))


def test_the_call_before_a_sample_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "SHORTEST_SAMPLE", 0)
    timed: list[object] = []
    calls: list[int] = []

    def timer(call: measure.Call, _: int) -> float:
        timed.append(call())
        return 1e-3

    monkeypatch.setattr(measure, "_time", timer)

    def call() -> int:
        calls.append(len(calls))
        return calls[-1]

    sample = measure.sampler_of(call)
    assert timed == [1]
    sample()
    sample()
    assert timed == [1, 3, 5]


def test_contestants_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "SHORTEST_SAMPLE", 0)
    calls: list[str] = []
    contestants = {name: functools.partial(calls.append, name) for name in ("first", "second")}
    timings = measure.time_in_turns(contestants, 0)
    assert calls[-20:] == ["first", "first", "second", "second"] * 5
    assert timings["first"].rounds == measure.FEWEST_ROUNDS
    assert timings["first"].median >= timings["first"].best > 0


def test_a_run_prints_a_table_and_writes_figures_and_a_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "BYTES", 1 << 16)
    monkeypatch.setattr(machine, "EDGE", 64)
    figures, plot = tmp_path / "figures.json", tmp_path / "plot.svg"
    arguments = ["--cpu", "--only", "activations", "--rows", "1,5", "--seconds", "0.01"]
    assert main([*arguments, "--json", str(figures), "--plot", str(plot)]) == 0
    found = json.loads(figures.read_text(encoding="utf-8"))
    assert [(line["contestant"], line["rows"]) for line in found["lines"]] == [
        ("ours", 1),
        ("plain PyTorch", 1),
        ("ours", 5),
        ("plain PyTorch", 5),
    ]
    assert found["lines"][0]["times_ours"] == 1
    assert found["machine"]["threads"] == torch.get_num_threads()
    bars = [part for part in ElementTree.parse(plot).iter() if part.tag.endswith("rect")]
    assert len(bars) == 1 + len(found["lines"])
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2 + len(found["lines"])


def test_a_case_that_fails_is_named_and_the_others_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "BYTES", 1 << 16)
    monkeypatch.setattr(machine, "EDGE", 64)

    def broken(columns: int) -> case.Case:
        raise MemoryError(f"no room for {columns}")

    good = functools.partial(cases.activations, 64, 1)
    makers = [functools.partial(broken, 3), good]
    monkeypatch.setattr(cases, "all_cases", lambda _: iter(makers))
    figures = tmp_path / "figures.json"
    assert main(["--cpu", "--seconds", "0", "--json", str(figures)]) == 1
    assert "broken (3,): MemoryError: no room for 3" in capsys.readouterr().err
    assert len(json.loads(figures.read_text(encoding="utf-8"))["lines"]) == 2


def test_no_case_begins_after_the_limit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "BYTES", 1 << 16)
    monkeypatch.setattr(machine, "EDGE", 64)
    assert main(["--cpu", "--limit", "0"]) == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 2
    assert "the limit of 0 s is reached before dashq_reconstruction" in captured.err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_cuda_device_one_line_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--cuda"])
    assert "expected a CUDA device, PyTorch sees none; use --cpu" in capsys.readouterr().err


def test_the_plot_shows_the_layer_of_both_formats() -> None:
    def line(shape: str) -> Line:
        return Line("dashq linear", shape, 1, "ours", 1e-3, 1e-3, 5, 1, 0.5, None, None, 1.0)

    lines = [line("4096×12288 INT4/g32"), line("4096×4096 INT4/g32"), line("4096×12288 g128")]
    assert program.plotted(lines) == [lines[0], lines[2]]
    assert program.plotted(lines[1:2]) == lines[1:2]
