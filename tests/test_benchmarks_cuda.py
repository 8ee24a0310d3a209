"""The benchmarks of the Triton kernels, as far as they can be tested without a CUDA device."""

import functools
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from nibblespec.optimized.benchmarks import (
    case,
    cuda,
    cuda_cases,
    gemlite,
    measure,
    operands,
    shapes,
)
from nibblespec.optimized.kernels import DEVICE
from nibblespec.optimized.portable import OPERATIONS
from torch import Tensor

META = Path(__file__).parent.parent / "examples" / "meta.json"


@pytest.mark.parametrize(
    "make",
    [
        functools.partial(cuda_cases.dashq_reconstruction, 16, 64),
        functools.partial(cuda_cases.nested_reconstruction, 16, 256, "target"),
        functools.partial(cuda_cases.nested_reconstruction, 16, 256, "draft"),
        functools.partial(cuda_cases.dashq_layer, 16, 128, 64, 3),
        functools.partial(cuda_cases.nested_layer, 16, 256, 3),
        functools.partial(cuda_cases.attention, 3, 40),
    ],
    ids=lambda make: str(make.func.__name__),
)
def test_contestants_of_a_case_compute_alike(
    make: functools.partial[case.Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_cases, "compiled", lambda formula: formula)
    torch.manual_seed(0)
    answers = {}
    for one in make(device=DEVICE).contestants:
        answer = one.call()
        assert isinstance(answer, torch.Tensor)
        answers[one.name] = answer.to(torch.float32)
    answers.pop("ours, draft", None)
    first, *others = answers.values()
    for other in others:
        assert (other - first).abs().max() <= 0.05 * first.abs().max()


@pytest.mark.parametrize(
    "make",
    [
        functools.partial(cuda_cases.quantization, 64, 3),
        functools.partial(cuda_cases.transform, 4, 64, 3),
        functools.partial(cuda_cases.transform, 1, 64, 3),
    ],
    ids=lambda make: f"{make.func.__name__} {make.args}",
)
def test_operations_without_a_peer_run(make: functools.partial[case.Case]) -> None:
    (one,) = make(device=DEVICE).contestants
    assert one.call() is not None
    assert one.read > 0


def test_a_step_passes_the_layers_of_the_example() -> None:
    layers = json.loads(META.read_text(encoding="utf-8"))["layers"].values()
    assert Counter(tuple(layer["shape"]) for layer in layers) == shapes.STEP


def test_a_draft_step_reads_half_of_what_a_target_step_reads() -> None:
    target, draft = cuda_cases.step({(16, 256): 2, (8, 128): 1}, DEVICE).contestants
    weights = 2 * 16 * 256 + 8 * 128
    assert target.read - draft.read == weights // 2
    assert draft.read / target.read == pytest.approx(0.5, abs=0.1)
    outputs = draft.call()
    assert isinstance(outputs, list)
    assert [tuple(y.shape) for y in outputs] == [(1, 16), (1, 16), (1, 8)]


def test_cases_cover_what_the_goals_speak_of() -> None:
    makers = list(cuda_cases.all_cases(shapes.ROWS))
    layers = {make.args for make in makers if make.func is cuda_cases.dashq_layer}
    for shape in shapes.LARGE_SHAPES:
        for group in (32, 64, 128):
            for tokens in (1, 5, 16):
                assert (*shape, group, tokens) in layers
    packed = 5 / 8  # bytes of an INT4 weight with its share of scale and zero point
    assert max(rows * columns for rows, columns in shapes.LARGE_SHAPES) * packed >= 64e6
    assert makers[0].func is cuda_cases.step


def test_cases_are_made_when_their_turn_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operands, "dashq_weight", None)
    monkeypatch.setattr(operands, "nested_weight", None)
    assert len(list(cuda_cases.all_cases((1,)))) > 10


class Layer:
    """What gemlite documents of its layer: (codes - zeros) times scales."""

    def __init__(
        self,
        nbits: int,
        group_size: int,
        in_features: int,
        out_features: int,
        input_dtype: str,
        output_dtype: str,
    ) -> None:
        assert (nbits, input_dtype, output_dtype) == (4, "float16", "float16")
        self.shape = out_features, in_features // group_size, group_size

    def pack(self, codes: Tensor, scales: Tensor, zeros: Tensor, bias: None) -> None:
        """Keep the weight."""
        assert bias is None
        assert codes.dtype == torch.uint8
        rows, groups, group = self.shape
        assert codes.shape == (rows, groups * group)
        zeros, scales = (part.view(rows, groups, 1) for part in (zeros, scales))
        weight = (codes.view(self.shape) - zeros.float()) * scales.float()
        self.weight = weight.view(codes.shape).to(torch.float16)

    def __call__(self, x: Tensor) -> Tensor:
        """Apply it."""
        assert x.dtype == torch.float16
        return torch.nn.functional.linear(x, self.weight)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for gemlite."""
    core: Any = ModuleType("gemlite.core")
    core.GemLiteLinear = Layer
    core.DType = SimpleNamespace(FP16="float16")
    package = ModuleType("gemlite")
    package.__spec__ = ModuleSpec("gemlite", None)
    monkeypatch.setitem(sys.modules, "gemlite", package)
    monkeypatch.setitem(sys.modules, "gemlite.core", core)


@pytest.mark.usefixtures("installed")
def test_gemlite_gets_the_same_weight() -> None:
    weight, layout = operands.dashq_weight(8, 128, 64)
    codes = OPERATIONS.unpack_words(weight[0], 4, 8 * 128)
    found = gemlite.gemlite_linear(codes, *weight[1:], layout)(torch.eye(128).to(torch.float16))
    expected = OPERATIONS.dashq_reconstruct(*weight, layout, torch.float16)
    assert torch.equal(found.T, expected)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("tokens", "compared"), [(16, True), (17, False)])
def test_gemlite_is_a_peer_for_few_tokens(tokens: int, compared: bool) -> None:
    names = [one.name for one in cuda_cases.dashq_layer(8, 64, 32, tokens, DEVICE).contestants]
    assert ("gemlite" in names) == compared


def test_samples_of_any_clock_are_taken_in_turns() -> None:
    clock = iter(range(1, 100))
    makers = {name: lambda: lambda: float(next(clock)) for name in ("first", "second")}
    timings = measure.sample_in_turns(makers, 0)
    assert timings["first"] == measure.Timing(median=5.0, best=1.0, rounds=5)
    assert timings["second"] == measure.Timing(median=6.0, best=2.0, rounds=5)


class Device:
    """Stands in for `torch.cuda`, and notes what is done in which order."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.Stream = self.current_stream = self.stream_of
        self.CUDAGraph = lambda: SimpleNamespace(replay=self.note("replay"))

    def note(self, what: str) -> Callable[..., None]:
        """Return a function that notes that it was called."""
        return lambda *_: self.done.append(what)

    def stream_of(self) -> SimpleNamespace:
        """Return a stream."""
        return SimpleNamespace(wait_stream=self.note("wait"))

    def stream(self, _: object) -> nullcontext[None]:
        """Choose a stream."""
        return nullcontext()

    def synchronize(self) -> None:
        """Wait for the device."""
        self.done.append("synchronize")

    @contextmanager
    def graph(self, _: object) -> Iterator[None]:
        """Record a graph."""
        self.done.append("begin")
        yield
        self.done.append("end")

    def Event(self, *, enable_timing: bool) -> SimpleNamespace:  # noqa: N802  # its name there
        """Return an event, two milliseconds before any other."""
        assert enable_timing
        return SimpleNamespace(
            record=self.note("event"),
            synchronize=self.note("synchronize"),
            elapsed_time=lambda _: 2.0,
        )


def test_a_sample_is_a_replay_with_cold_caches_between_two_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = Device()
    monkeypatch.setattr(torch, "cuda", device)
    flush: Any = SimpleNamespace(sum=device.note("flush"))
    sample = cuda.replay_sampler(device.note("call"), flush)
    recording = ["wait", *["call"] * cuda.WARM_UPS, "wait", "synchronize", "begin", "call", "end"]
    replay = ["flush", "event", "replay", "event", "synchronize"]
    assert device.done == [*recording, *replay]
    assert sample() == pytest.approx(2e-3)
    assert device.done[len(recording) :] == [*replay, *replay]
