"""What deviations cost: the shares that the chapter on implementations gives, measured again."""

import math
from importlib.resources import files

import numpy as np
import pytest
from ml_dtypes import bfloat16
from nibblespec.reference.activations import quantize_activations
from nibblespec.reference.bounds_hadamard import hadamard_bounded
from nibblespec.reference.dashq import EVALUATIONS
from nibblespec.reference.hadamard import hadamard
from nibblespec.reference.nested import nested_linear, nested_reconstruct
from nibblespec.reference.planes import pack_planes
from nibblespec.reference.rounding import Array, Float32, round_float32
from nibblespec.spec.operations import DashqRounding, FloatDtype, Plane

TEXT = files("nibblespec.spec").joinpath("implementations.md").read_text(encoding="utf-8")


def normal(*shape: int, seed: int = 0) -> Float32:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def differing(a: Array, b: Array) -> float:
    """Return the share of elements whose bits differ."""
    kind = f"u{a.dtype.itemsize}"
    return float((np.ascontiguousarray(a).view(kind) != np.ascontiguousarray(b).view(kind)).mean())


def line_with(start: str) -> str:
    [line] = [one for one in TEXT.splitlines() if one.startswith(start)]
    return line


def quantized(weights: Float32) -> tuple[Float32, Float32, Float32]:
    """Quantize groups [G, 32] to 4 bits from least to largest: q, zero and scale, float32."""
    low, high = weights.min(axis=1, keepdims=True), weights.max(axis=1, keepdims=True)
    scale = ((high - low) / np.float32(15)).astype(np.float16).astype(np.float32)
    zero = (-low / scale).astype(np.float16).astype(np.float32)
    return np.clip(np.rint(weights / scale + zero), 0, 15), zero, scale


@pytest.mark.parametrize(
    ("name", "bfloat16_share", "float16_share"),
    [("stepwise", 0.65, 0.005), ("bf16-params", 0.64, 0.94)],
)
def test_weights_of_the_other_evaluations(
    name: DashqRounding, bfloat16_share: float, float16_share: float
) -> None:
    q, zero, scale = quantized(normal(4096, 32) * np.float32(0.02))
    for dtype, share in (("bfloat16", bfloat16_share), ("float16", float16_share)):
        kind: FloatDtype = "bfloat16" if dtype == "bfloat16" else "float16"
        fused = EVALUATIONS["fused"](q, zero, scale, kind)
        other = EVALUATIONS[name](q, zero, scale, kind)
        assert differing(fused, other) == pytest.approx(share, rel=0.1, abs=0.005)
        assert f"{100 * share:g} %" in line_with(f"| `{name}` |")
    fused = EVALUATIONS["fused"](q, zero, scale, "bfloat16").view(np.uint16).astype(np.int64)
    other = EVALUATIONS[name](q, zero, scale, "bfloat16").view(np.uint16).astype(np.int64)
    steps = np.abs(fused - other)
    assert (steps == 1).sum() / (steps > 0).sum() == pytest.approx(0.57, abs=0.02)


def test_outputs_with_a_rounded_weight() -> None:
    q, zero, scale = quantized(normal(256 * 32, 32) * np.float32(0.02))
    exact = ((q - zero).astype(np.float64) * scale).reshape(256, 1024)
    rounded = EVALUATIONS["fused"](q, zero, scale, "bfloat16").astype(np.float64)
    x = normal(32, 1024, seed=1).astype(bfloat16).astype(np.float64)
    outputs = [
        round_float32((x @ weight.T).astype(np.float32), "bfloat16")
        for weight in (exact, rounded.reshape(256, 1024))
    ]
    assert differing(*outputs) == pytest.approx(0.43, abs=0.03)
    assert "43 % differ between `rounded` and `unrounded`" in " ".join(TEXT.split())


@pytest.fixture(scope="module")
def nested() -> tuple[Array, Array, Array]:
    """Nest a normal matrix [256, 1024] in groups of 128: hi, lo and scale."""
    groups = (normal(256, 1024) * np.float32(0.02)).reshape(256, 8, 128)
    scale = (np.abs(groups).max(axis=2) / np.float32(7)).astype(np.float16)
    step = scale.astype(np.float32)[:, :, np.newaxis]
    q4 = np.clip(np.rint(groups / step), -8, 7)
    qr = np.clip(np.rint((groups - q4 * step) / (step / 16)), np.where(q4 == -8, 0, -8), 7)
    planes = pack_planes(*(codes.reshape(256, 1024).astype(np.int8) for codes in (q4, qr)))
    return (*planes, scale)


@pytest.mark.parametrize(
    ("plane", "dtype", "share"),
    [
        ("target", "bfloat16", 0.23),
        ("draft", "bfloat16", 0.07),
        ("target", "float16", 0.85),
        ("draft", "float16", 0.74),
    ],
)
def test_weights_whose_scales_are_cast_to_bfloat16(
    nested: tuple[Array, Array, Array], plane: Plane, dtype: FloatDtype, share: float
) -> None:
    hi, lo, scale = nested
    cast = scale.astype(np.float32).astype(bfloat16).astype(np.float16)
    right = nested_reconstruct(hi, lo, scale, plane, dtype)
    assert differing(right, nested_reconstruct(hi, lo, cast, plane, dtype)) == pytest.approx(
        share, abs=0.02
    )
    assert f"{100 * share:.0f} %" in line_with("| the method's loader for GPUs | casts scales")


@pytest.mark.parametrize(("dtype", "share"), [("bfloat16", 0.13), ("float16", 0.51)])
def test_outputs_of_a_float16_product(
    nested: tuple[Array, Array, Array], dtype: FloatDtype, share: float
) -> None:
    hi, lo, scale = nested
    xq, sx = quantize_activations(normal(32, 1024, seed=1), -1)
    right = nested_linear(xq, sx, hi, lo, scale, None, "target", dtype)
    weight = nested_reconstruct(hi, lo, scale, "target", "float16").astype(np.float64)
    x = (xq * sx).astype(np.float16).astype(np.float64)
    other = round_float32((x @ weight.T).astype(np.float32), dtype)
    assert differing(right, other) == pytest.approx(share, abs=0.02)
    assert f"{100 * share:.0f} % of {dtype} outputs" in line_with("| its engine for GPUs | from M")


@pytest.mark.parametrize(("dtype", "one_in"), [("bfloat16", 3500), ("float16", 14000)])
def test_activation_codes_by_a_reciprocal(dtype: FloatDtype, one_in: int) -> None:
    x = round_float32(normal(4000, 1024), dtype).astype(np.float32)
    codes, scale = quantize_activations(x, -1)
    other = np.rint(x * (np.float32(1) / scale))
    assert 1 / float((codes != other).mean()) == pytest.approx(one_in, rel=0.15)
    assert f"in {one_in:,} of {dtype} data" in line_with("| kernels written in Triton |")


@pytest.mark.parametrize(("dtype", "one_in"), [("bfloat16", 2500), ("float16", 32000)])
def test_residuals_of_a_contraction(dtype: FloatDtype, one_in: int) -> None:
    x = round_float32(normal(20000, 128), dtype).astype(np.float32)
    scale = np.abs(x).max(axis=1, keepdims=True) / np.float32(7)
    q4 = np.rint(x / scale)
    remainders = (x - q4 * scale, (x - q4.astype(np.float64) * scale).astype(np.float32))
    apart, fused = (np.clip(np.rint(r / (scale / np.float32(16))), -8, 7) for r in remainders)
    assert 1 / float((apart != fused).mean()) == pytest.approx(one_in, rel=0.15)
    assert f"in {one_in:,} of {dtype} data" in line_with("| compilers, unless told otherwise |")


def butterflies(x: Array) -> Array:
    """Return the unscaled transform, every sum in x's dtype."""
    stride = 1
    while stride < x.shape[-1]:
        pairs = x.reshape(len(x), -1, 2, stride)
        a, b = pairs[:, :, 0], pairs[:, :, 1]
        x = np.stack([a + b, a - b], axis=2).reshape(x.shape)
        stride *= 2
    return x


@pytest.mark.parametrize(("n", "rows"), [(128, 1000), (8192, 32)])
def test_transforms_that_divide(n: int, rows: int) -> None:
    x = normal(rows, n)
    divided = butterflies(x) / np.float32(math.sqrt(n))
    assert differing(hadamard(x, None, "float32"), divided) == pytest.approx(0.41, abs=0.02)
    assert "41 % of float32 results" in line_with("| the method's loader for CPUs | divides")


@pytest.mark.parametrize(("n", "rows", "share"), [(128, 500, 0.64), (8192, 32, 0.32)])
def test_transforms_in_float16(n: int, rows: int, share: float) -> None:
    x = normal(rows, n).astype(np.float16)
    bounded = hadamard_bounded(x, None)
    narrow = (butterflies(x).astype(np.float32) / np.float32(math.sqrt(n))).astype(np.float16)
    low, high = (
        (bounded.value + side * bounded.error).astype(np.float16).astype(np.float64)
        for side in (-1, 1)
    )
    outside = (narrow.astype(np.float64) < low) | (narrow.astype(np.float64) > high)
    assert float(outside.mean()) == pytest.approx(share, abs=0.02)
    assert f"{100 * share:.0f} %" in line_with("| its engine for GPUs, `fp32` false |")


def test_codes_that_are_fitted_to_a_scale_before_its_rounding() -> None:
    groups = normal(4096, 128)
    wide = np.abs(groups).max(axis=1, keepdims=True) / np.float32(7)
    stored = wide.astype(np.float16).astype(np.float32)

    def squared_error(fit: Float32) -> float:
        q4 = np.clip(np.rint(groups / fit), -8, 7)
        qr = np.clip(np.rint((groups - q4 * fit) / (fit / 16)), -8, 7)
        return float(((((16 * q4 + qr) * (stored / 16)) - groups).astype(np.float64) ** 2).mean())

    more = squared_error(wide) / squared_error(stored) - 1
    assert more == pytest.approx(0.0005, abs=0.0002)
    assert "0.05 % more squared error" in TEXT
