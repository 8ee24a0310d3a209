"""Floating-point tensors by their bits: which elements are no finite numbers, negative or zero."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, nan
from typing import Literal

import numpy as np
from nibblespec.conformance.artifacts.reading.blocks import Bytes, Run
from nibblespec.conformance.artifacts.scanning.facts import Facts, Hit, first_hit
from numpy.typing import NDArray

Lanes = NDArray[np.unsignedinteger]


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatBits:
    """How to tell what an element is from its bits, as an unsigned integer."""

    size: int
    """Bytes of an element."""
    magnitude: int
    """The bits without the sign."""
    limit: int
    """The least magnitude that is an infinity or a NaN."""
    flip: int = 0
    """Bits to invert before that, for dtypes whose NaN is the negative zero of others."""


FLOATS: Mapping[str, FloatBits] = {
    "F64": FloatBits(size=8, magnitude=2**63 - 1, limit=0x7FF << 52),
    "F32": FloatBits(size=4, magnitude=2**31 - 1, limit=0xFF << 23),
    "C64": FloatBits(size=4, magnitude=2**31 - 1, limit=0xFF << 23),
    "F16": FloatBits(size=2, magnitude=0x7FFF, limit=0x7C00),
    "BF16": FloatBits(size=2, magnitude=0x7FFF, limit=0x7F80),
    "F8_E5M2": FloatBits(size=1, magnitude=0x7F, limit=0x7C),
    "F8_E4M3": FloatBits(size=1, magnitude=0x7F, limit=0x7F),
    "F8_E8M0": FloatBits(size=1, magnitude=0xFF, limit=0xFF),
    "F8_E4M3FNUZ": FloatBits(size=1, magnitude=0xFF, limit=0xFF, flip=0x7F),
    "F8_E5M2FNUZ": FloatBits(size=1, magnitude=0xFF, limit=0xFF, flip=0x7F),
}
"""The dtypes that can hold something else than a finite number."""

ONE: Mapping[str, int] = {"BF16": 0x3F80, "F32": 0x3F800000}
"""The bits of 1."""


def lanes_of(block: Bytes, bits: FloatBits) -> Lanes:
    """View bytes as unsigned integers, one for each element (each half of a complex one)."""
    return block.view(f"<u{bits.size}")


def magnitudes_of(lanes: Lanes, bits: FloatBits) -> Lanes:
    """Return the bits of elements without their signs."""
    if bits.flip:
        lanes = np.bitwise_xor(lanes, lanes.dtype.type(bits.flip))
    return np.bitwise_and(lanes, lanes.dtype.type(bits.magnitude))


def not_finite(lanes: Lanes, magnitudes: Lanes, at: int, bits: FloatBits) -> dict[str, Hit]:
    """Return the hit `not finite`, given elements, the first of which has the index `at`."""
    if magnitudes.max() < bits.limit:
        return {}
    return {"not finite": first_hit(magnitudes >= bits.limit, lanes, at)}


def scan_finite(blocks: tuple[Bytes, ...], position: int, _run: Run, *, dtype: str) -> Facts:
    """Find the elements that are not finite: a scan of the one tensor of a part."""
    bits = FLOATS[dtype]
    lanes = lanes_of(blocks[0], bits)
    return Facts(hits=not_finite(lanes, magnitudes_of(lanes, bits), position // bits.size, bits))


def scan_ones(
    blocks: tuple[Bytes, ...],
    position: int,
    _run: Run,
    *,
    dtype: str,
    kind: Literal["not one", "no sign"],
) -> Facts:
    """Find the elements that are not finite, and those that are not 1: a scan, as above.

    The latter are the hits `not one`; or `no sign`, and then −1 will do as well.
    """
    bits = FLOATS[dtype]
    lanes = lanes_of(blocks[0], bits)
    at, magnitudes = position // bits.size, magnitudes_of(lanes, bits)
    hits = not_finite(lanes, magnitudes, at, bits)
    other = (magnitudes if kind == "no sign" else lanes) != ONE[dtype]
    if other.any():
        hits[kind] = first_hit(other, lanes, at)
    return Facts(hits=hits)


def float_value(bits: int, dtype: str) -> float:
    """Return the number that the bits of an element stand for."""
    layout = FLOATS[dtype]
    if dtype.startswith("F8"):
        import ml_dtypes  # noqa: PLC0415 (seldom needed)

        name = {
            "F8_E5M2": "float8_e5m2",
            "F8_E4M3": "float8_e4m3fn",
            "F8_E8M0": "float8_e8m0fnu",
            "F8_E4M3FNUZ": "float8_e4m3fnuz",
            "F8_E5M2FNUZ": "float8_e5m2fnuz",
        }[dtype]
        return float(np.array([bits], np.uint8).view(getattr(ml_dtypes, name))[0])
    if dtype == "BF16":
        bits, layout = bits << 16, FLOATS["F32"]
    magnitude = bits & layout.magnitude
    if magnitude >= layout.limit:
        # NumPy warns where it widens a signalling NaN.
        return nan if magnitude > layout.limit else inf if bits == magnitude else -inf
    return float(np.array([bits], f"<u{layout.size}").view(f"<f{layout.size}")[0])
