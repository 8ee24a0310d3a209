"""Between float32 and the dtypes of the formats, inside kernels: exact up, rounded once down.

Triton's interpreter rounds float32 to bfloat16 wrongly and computes rubbish in bfloat16, so
nothing here computes in bfloat16 and the interpreted branch rounds with integers. The compiled
branch is one instruction, cvt.rn, which the tests look for in the PTX.
"""

import triton
import triton.language as tl
from nibblespec.optimized.kernels import INTERPRETED as _INTERPRETED

INTERPRETED = tl.constexpr(_INTERPRETED)


@triton.jit
def to_float32(x: tl.tensor) -> tl.tensor:
    """Widen float16, bfloat16 or float32 of any shape to float32: exact, subnormals too."""
    if x.dtype == tl.bfloat16:
        high = x.to(tl.uint16, bitcast=True).to(tl.uint32) << 16
        return high.to(tl.float32, bitcast=True)
    else:
        return x.to(tl.float32)


@triton.jit
def fp8_to_float32(byte: tl.tensor, E4M3: tl.constexpr) -> tl.tensor:
    """Widen uint8 codes of float8_e4m3fn (E4M3) or float8_e5m2 to float32: exact.

    Through float16, whose codes differ from those of fp8 by a shift and, for e4m3fn, by the bias
    of the exponent: 15 - 7 = 8. NaN codes are not valid input.
    """
    code = byte.to(tl.uint16)
    if E4M3:
        half = ((code & 0x80) << 8) | ((code & 0x7F) << 7)
        return half.to(tl.float16, bitcast=True).to(tl.float32) * 256.0
    else:
        return (code << 8).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def round_to(x: tl.tensor, DTYPE: tl.constexpr) -> tl.tensor:
    """Round float32 of any shape to DTYPE: to nearest, ties to even, once (NUM-ROUND-NEAREST)."""
    if INTERPRETED and DTYPE == tl.bfloat16:
        bits = x.to(tl.uint32, bitcast=True)
        nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        # Adding to the code of a NaN may carry into its sign.
        code = tl.where(x == x, nearest, 0x7FC0)
        return code.to(tl.uint16).to(tl.bfloat16, bitcast=True)
    else:
        return x.to(DTYPE)


@triton.jit
def product_operand(x: tl.tensor) -> tl.tensor:
    """Return a factor of tl.dot: as it is, or widened for the interpreter, which is exact too."""
    if INTERPRETED:
        return to_float32(x)
    else:
        return x


@triton.jit
def rint(x: tl.tensor) -> tl.tensor:
    """Round float32 to the nearest integer, ties to even, for magnitudes up to 2**22.

    By the float32 addition of 1.5 * 2**23, whose result has no bits left for a fraction; a zero
    comes out as +0. Only in kernels that are launched with `exact=True`: otherwise a product
    x = a * b would be fused into the addition and rounded once.
    """
    return (x + 12582912.0) - 12582912.0
