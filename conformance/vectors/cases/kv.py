"""Cases of kv_quantize and kv_dequantize."""

from collections.abc import Iterator

import numpy as np
from nibblespec.conformance.vectors.case import Case, Exact, Tensor, exact
from nibblespec.conformance.vectors.cases.dtypes import DTYPES, LARGEST, PLANES, SHORT
from nibblespec.conformance.vectors.cases.planes import all_pairs, any_codes
from nibblespec.conformance.vectors.streams import floats, grid
from nibblespec.reference.kv import kv_dequantize, kv_quantize
from nibblespec.reference.planes import pack_planes, unpack_nibbles
from nibblespec.reference.rounding import Array, Float32, round_float64
from nibblespec.spec.operations import Bytes, Plane
from numpy.typing import NDArray

HEAD_DIMS = (64, 80, 96, 128, 192, 256)

WRITE = ("BN1-KV-CODES", "BN1-KV-RESIDUAL", "BN1-KV-SCALE", "BN1-KV-PLANES")


def cases() -> Iterator[Case]:
    """Yield vectors of every head_dim and dtype, with and without an offset, and their reading."""
    for place, head_dim in enumerate(HEAD_DIMS):
        for dtype in DTYPES:
            yield from _vectors(head_dim, dtype, DTYPES[(place + 1) % 3])
        for plane in PLANES:
            name = f"kv_dequantize/d{head_dim}"
            hi, lo = pack_planes(*any_codes(name, (6, head_dim)))
            shape = (1, 2, 3)
            scale = round_float64(grid(f"{name} scale", shape, 2**20, 2**24, -26), "float32")
            planes = hi.reshape(*shape, -1), lo.reshape(*shape, -1)
            shows = "any codes, a scale for each token and head"
            yield _dequantize(f"d{head_dim}", shows, *planes, scale, plane)
    for dtype in DTYPES:
        yield from _edges(dtype)
    yield _quantize(
        "fused-remainder-bf16",
        "vectors of which a residual changes where d − q4·s is one fused operation",
        _fma_sensitive(),
        None,
        "BN1-KV-RESIDUAL",
    )
    q4, qr = (codes.reshape(1, 248) for codes in all_pairs())
    pairs = pack_planes(q4.repeat(5, 0), qr.repeat(5, 0))
    scales = np.array([1e-8, 1 / 3, 1, 7e4, 2.0**120], np.float32)
    for plane in PLANES:
        shows = "every pair of codes that is allowed, with scales from 1e-8 on"
        yield _dequantize("all-pairs", shows, *pairs, scales, plane)


def _vectors(head_dim: int, dtype: str, offset_dtype: str) -> Iterator[Case]:
    name = f"d{head_dim}-{SHORT[dtype]}"
    shape = (1, 2, 3, head_dim)
    x = floats(f"kv_quantize/{name}", shape, -4, 1)
    yield _quantize(
        name, "two heads, three tokens", round_float64(x, dtype), None, *WRITE, "BN1-KV-WIDEN"
    )
    # Channels far from zero, and a head of its own for each offset.
    offset = grid(f"kv_quantize/{name} offset", (2, head_dim), -200, 200, -2)
    yield _quantize(
        f"{name}-offset",
        f"channels that are far from zero; the offset is {offset_dtype}",
        round_float64(x + offset[:, np.newaxis, :], dtype),
        round_float64(offset, offset_dtype),
        "BN1-KV-OFFSET",
        *WRITE,
        "BN1-KV-WIDEN",
    )


def _edges(dtype: str) -> Iterator[Case]:
    """Yield vectors of four or eight elements at the edges of rounding."""
    short = SHORT[dtype]
    halves = np.array(
        [
            [7, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 6.5],
            [-7, 3.5, -3.5, 4.5, -4.5, 5.5, -5.5, -6.5],
        ]
    )
    yield _quantize(
        f"ties-{short}",
        "the scale is a power of two: quotients are ties, remainders half a step, which is clipped",
        round_float64(np.concatenate([halves, halves / 64]), dtype),
        None,
        *WRITE,
        "NUM-ROUND-NEAREST",
    )
    sixteenths = np.arange(-16, 16).reshape(4, 8) / 32 + np.array([[1], [-3], [0], [5]])
    sixteenths[:, 0] = 7
    yield _quantize(
        f"residual-ties-{short}",
        "residuals that are ties",
        round_float64(sixteenths, dtype),
        None,
        *WRITE,
        "NUM-ROUND-NEAREST",
    )
    small = np.zeros((4, 8))
    small[1:3] = np.ldexp(floats(f"kv_quantize/zeros-{short}", (2, 8), 0, 1), -24)
    small[3, 5] = -0.0
    yield _quantize(
        f"zeros-{short}",
        "vectors that are zero, or so small that the scale has its floor 1e-8",
        round_float64(small, dtype),
        None,
        "BN1-KV-SCALE",
        *WRITE,
        "NUM-ROUND-SUBNORMAL",
    )
    extremes = LARGEST[dtype] * np.array([[1, -1, 0.5, -0.25], [0.1, 0, -1, 0.3]])
    yield _quantize(
        f"largest-{short}", "the largest magnitudes", round_float64(extremes, dtype), None, *WRITE
    )


def _fma_sensitive() -> Array:
    """Return the first eight bfloat16 vectors [8, 64] of a stream that tell an FMA apart.

    q4·s has at most 27 significant bits and its difference from d is exact in float64, so that
    rounding that to float32 is what a fused multiply-add gives.
    """
    x = round_float64(floats("kv_quantize/fused-remainder", (4096, 64), -3, 1), "bfloat16")
    hi, lo, scale = kv_quantize(x, None)
    product = unpack_nibbles(hi) * scale.astype(np.float64)[:, np.newaxis]
    remainder = (x.astype(np.float64) - product).astype(np.float32)
    fused = np.clip(np.rint(remainder / (scale / np.float32(16))[:, np.newaxis]), -8, 7)
    sensitive: NDArray[np.bool_] = (fused != unpack_nibbles(lo)).any(axis=1)
    return x[sensitive][:8]


def _quantize(name: str, shows: str, x: Array, offset: Array | None, *requirements: str) -> Case:
    """Make a case of x [..., H, L, D], or of [L, D] for one head."""
    case_id = f"kv_quantize/{name}"
    x = x[np.newaxis] if x.ndim == 2 else x
    hi, lo, scale = kv_quantize(x, offset)
    return Case(
        id=case_id,
        shows=shows,
        requirements=requirements,
        parameters={},
        inputs={
            "x": Tensor(f"{case_id}/x", x),
            "offset": None if offset is None else Tensor(f"{case_id}/offset", offset),
        },
        outputs={"hi": Exact(hi), "lo": Exact(lo), "scale": Exact(scale)},
    )


def _dequantize(name: str, shows: str, hi: Bytes, lo: Bytes, scale: Float32, plane: Plane) -> Case:
    stem = f"kv_dequantize/{name}"
    return Case(
        id=f"{stem}-{plane}",
        shows=shows,
        requirements=("BN1-KV-DRAFT" if plane == "draft" else "BN1-KV-TARGET", "BN1-KV-PLANES"),
        parameters={"plane": plane},
        inputs={
            "hi": Tensor(f"{stem}/hi", hi),
            "lo": None if plane == "draft" else Tensor(f"{stem}/lo", lo),
            "scale": Tensor(f"{stem}/scale", scale),
        },
        outputs={"values": exact(kv_dequantize(hi, lo, scale, plane))},
    )
