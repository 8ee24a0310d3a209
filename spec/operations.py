"""The operations of a backend: what a backend under test implements.

A backend is any object with `name`, `version`, `device` and `capabilities()`. Each operation is
an attribute of it, looked up by name; one that it does not claim is `not-claimed` in the report,
and one that it claims has to be there.

Arrays are NumPy arrays; bfloat16 and the float8 types are those of `ml_dtypes`. Inputs are
C-contiguous, read-only and finite. Outputs are fresh arrays with exactly the stated dtype and
shape (NUM-OUTPUT-FORM, NUM-OUTPUT-FRESH, NUM-INPUT-UNCHANGED). The suite sends no invalid calls.
`...` in a shape stands for any number of leading axes.

Each docstring says what to compute and which requirements bind it; the full text is in
specification.md of the format and in numerics.md. rn_D(x) is x rounded to dtype D, to nearest,
ties to even.
"""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module
from numpy.typing import NDArray

FloatDtype = Literal["float16", "bfloat16", "float32"]
Plane = Literal["draft", "target"]
DashqRounding = Literal["fused", "stepwise", "bf16-params"]
LinearWeightRounding = Literal["rounded", "unrounded"]

Array = NDArray[Any]
Codes = NDArray[np.uint8]
Words = NDArray[np.int32]
Nibbles = NDArray[np.int8]
Bytes = NDArray[np.uint8]
Float32 = NDArray[np.float32]
Float16 = NDArray[np.float16]

OPERATIONS = (
    "pack_words",
    "unpack_words",
    "dashq_reconstruct",
    "dashq_linear",
    "pack_planes",
    "unpack_planes",
    "nested_reconstruct",
    "quantize_activations",
    "nested_linear",
    "hadamard",
    "kv_quantize",
    "kv_dequantize",
    "kv_attention",
)
"""Every operation, in the order of the specification."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a backend claims. The suite tests what is claimed and nothing else.

    An empty tuple claims nothing of its kind; None claims every value that the format allows.
    """

    operations: tuple[str, ...]
    bit_widths: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8)
    group_sizes: tuple[int, ...] | None = None
    """Of weights and of activations; None: any."""
    dtypes: tuple[FloatDtype, ...] = ("float16", "bfloat16", "float32")
    """Of inputs and outputs."""
    scale_zero_dtypes: tuple[str, ...] = (
        "float16",
        "bfloat16",
        "float32",
        "float8_e4m3fn",
        "float8_e5m2",
    )
    head_dims: tuple[int, ...] | None = None
    """None: any even width."""
    hadamard_orders: tuple[int, ...] | None = None
    """Orders K of had_K; None: any."""
    padded_inputs: bool = True
    """Whether modules with quant_in_features > in_features are accepted."""
    dashq_rounding: DashqRounding = "fused"
    """The evaluation of dashq reconstruction; only `fused` is canonical
    (NUM-EVALUATION-ONE, NUM-EVALUATION-CANONICAL)."""
    linear_weight_rounding: LinearWeightRounding = "unrounded"
    """Whether dashq_linear rounds the weight to linear_dtype before the product
    (NUM-LINEAR-DASHQ-ROUNDED, NUM-LINEAR-DASHQ-UNROUNDED)."""
    prefill_f16_from: int | None = None
    """Rows M from which nested_linear runs in the mode prefill-f16; None: never."""
    row_invariant_dashq_linear: bool = False
    """Whether a row of dashq_linear is the same bits whatever the other rows are."""


class Backend(Protocol):
    """What every backend has. Operations are further attributes, named as in OPERATIONS."""

    @property
    def name(self) -> str:
        """Short name, for reports."""

    @property
    def version(self) -> str:
        """Version, for reports."""

    @property
    def device(self) -> str:
        """What it runs on, for reports."""

    def capabilities(self) -> Capabilities:
        """Say what the backend claims."""


class PackWords(Protocol):
    """`pack_words`: codes into 32-bit words."""

    def __call__(self, codes: Codes, nbits: int) -> Words:
        """Pack codes, uint8 [n] in 0 … 2**nbits - 1, into int32 [ceil(n / P)], P = 32 // nbits.

        Code i goes into word i // P, into the bits from nbits * (i % P) on; the first code of a
        word is in its least significant bits. Bits that hold no code are zero. Bit 31 makes the
        word negative (two's complement). n may be 0.

        DQ1-PACKING-ORDER, DQ1-PACKING-COUNT, DQ1-PACKING-SIGN, DQ1-PACKING-SPARE-WRITTEN.
        """


class UnpackWords(Protocol):
    """`unpack_words`: the first `count` codes of 32-bit words."""

    def __call__(self, words: Words, nbits: int, count: int) -> Codes:
        """Unpack words, int32 [ceil(count / P)], P = 32 // nbits, into uint8 [count] codes.

        Code i is (word[i // P] >> (nbits * (i % P))) & (2**nbits - 1), masked after the shift
        since the word may be negative. Bits that hold no code may be set and are ignored.

        DQ1-PACKING-ORDER, DQ1-PACKING-COUNT, DQ1-PACKING-SIGN, DQ1-PACKING-SPARE-READ.
        """


class DashqReconstruct(Protocol):
    """`dashq_reconstruct`: the logical weight of a packed module."""

    def __call__(
        self, words: Words, scale: Array, zero: Array, module: Module, dtype: FloatDtype
    ) -> Array:
        """Return the weight, dtype [N, K], N = out_features, K = in_features.

        words: int32 [ceil(N * Kq / P)], Kq = quant_in_features: the codes of the matrix [N, Kq]
        in row-major order, without a break between rows. scale, zero: scale_zero_dtype
        [num_groups, 1]; code (n, k) has those at n * (Kq // group_size) + k // group_size.

        The weight of code q, in the evaluation `fused`, in float32:
        rn_dtype(rn_float32(rn_float32(q - zero) * scale)). The zero point is used as stored: not
        rounded, not clamped, nothing added. Columns from K on are left out. `dtype` is the dtype
        to round to, whatever linear_dtype is. In the evaluations `stepwise` and `bf16-params`
        the roundings are elsewhere (Numerics, chapter 3); the result is exact in each.

        DQ1-PACKING-ROWS, DQ1-RECONSTRUCT-FORMULA, DQ1-RECONSTRUCT-GROUPS,
        DQ1-RECONSTRUCT-ZERO-POINT, DQ1-RECONSTRUCT-PARAMETERS, DQ1-RECONSTRUCT-CROP,
        DQ1-RECONSTRUCT-DTYPE, NUM-EVALUATION-FUSED, NUM-EVALUATION-STEPWISE,
        NUM-EVALUATION-BF16-PARAMS.
        """


class DashqLinear(Protocol):
    """`dashq_linear`: the packed layer."""

    def __call__(
        self,
        x: Array,
        words: Words,
        scale: Array,
        zero: Array,
        bias: Array | None,
        module: Module,
    ) -> Array:
        """Return x · weightᵀ + bias, [M, N] in x's dtype, which is linear_dtype.

        x: linear_dtype [M, K], K = in_features; bias: linear_dtype [N] or None; the rest as in
        `dashq_reconstruct`. Products and sums have at least float32's precision, in any order;
        the bias is added before the one rounding to x's dtype. The weight is rounded to
        linear_dtype before the product, or not, as `linear_weight_rounding` declares. Bounded:
        the result lies between rn(y - B) and rn(y + B), B as in Numerics, chapter 4.

        DQ1-LINEAR-FORMULA, DQ1-LINEAR-BIAS, DQ1-LINEAR-DTYPE, DQ1-LINEAR-PADDING,
        NUM-LINEAR-ACCUMULATE, NUM-LINEAR-DASHQ-ROUNDED, NUM-LINEAR-DASHQ-UNROUNDED.
        """


class PackPlanes(Protocol):
    """`pack_planes`: signed nibbles into two planes."""

    def __call__(self, q4: Nibbles, qr: Nibbles) -> tuple[Bytes, Bytes]:
        """Pack q4 and qr, int8 [N, K] in -8 … 7, K even, into (hi, lo), uint8 [N, K/2] each.

        hi holds q4 and lo holds qr. Byte j of a row holds column 2j in its low four bits and
        column 2j + 1 in its high four bits, each code q as the unsigned nibble q + 8. Where q4 is
        -8, qr is not negative.

        BN1-PLANES-ROLES, BN1-PLANES-EXCESS, BN1-PLANES-ORDER.
        """


class UnpackPlanes(Protocol):
    """`unpack_planes`: two planes into signed nibbles."""

    def __call__(self, hi: Bytes, lo: Bytes) -> tuple[Nibbles, Nibbles]:
        """Unpack hi and lo, uint8 [N, K/2] each, into (q4, qr), int8 [N, K] each.

        Column 2j is (byte j & 15) - 8, column 2j + 1 is (byte j >> 4) - 8.

        BN1-PLANES-ROLES, BN1-PLANES-EXCESS, BN1-PLANES-ORDER.
        """


class NestedReconstruct(Protocol):
    """`nested_reconstruct`: the draft or target weight of a nested layer."""

    def __call__(
        self, hi: Bytes, lo: Bytes | None, scale: Float16, plane: Plane, dtype: FloatDtype
    ) -> Array:
        """Return the weight, dtype [N, K].

        hi, lo: uint8 [N, K/2] as `pack_planes` makes them; for draft lo is not needed and may be
        None. scale: float16 [N, G], not negative; columns g * K/G … (g + 1) * K/G - 1 of a row
        share scale[row, g].

        In float32, where all of this is exact: draft q4 * scale, target (16 * q4 + qr) *
        (scale / 16), scale being widened to float32 before it is divided. Then one rounding to
        dtype; a negative code times a zero scale is -0.

        BN1-WEIGHT-GROUPS, BN1-DRAFT-WEIGHT, BN1-TARGET-WEIGHT, BN1-SCALE-SIXTEENTH.
        """


class QuantizeActivations(Protocol):
    """`quantize_activations`: A8, per token or per group of columns."""

    def __call__(self, x: Array, group: int) -> tuple[Nibbles, Float32]:
        """Quantize x, [M, K], into codes, int8 [M, K], and scales, float32 [M, G].

        x: float16, bfloat16 or float32, widened to float32 first. group: -1 for one scale per
        row (G = 1), otherwise a width that divides K (G = K / group): columns group * g …
        group * (g + 1) - 1 share scale g.

        In float32: scale = max(amax(abs(x)) / 127, 1e-8) over the group, code =
        clip(rint(x / scale), -128, 127). Both quotients are correctly rounded (a product with a
        reciprocal, or an approximate division, is not), rint takes ties to even.

        BN1-ACT-SCALE, BN1-ACT-CODES, BN1-ACT-GROUPS, BN1-ACT-WIDEN.
        """


class NestedLinear(Protocol):
    """`nested_linear`: integer products per group, scaled and summed."""

    def __call__(
        self,
        xq: Nibbles,
        sx: Float32,
        hi: Bytes,
        lo: Bytes | None,
        scale: Float16,
        bias: Float16 | None,
        plane: Plane,
        dtype: FloatDtype,
    ) -> Array:
        """Return the layer's output, dtype [M, N].

        xq: int8 [M, K] codes and sx: float32 [M, Ga] scales of K/Ga columns each, as
        `quantize_activations` makes them. hi, lo: uint8 [N, K/2], lo may be None for draft.
        scale: float16 [N, G], of K/G columns each. bias: float16 [N] or None.

        Columns are cut wherever the activation scale or the weight scale changes. Each such
        segment has an exact integer product dot of the codes xq with q4 (draft) or 16 * q4 + qr
        (target), and the result is the sum over segments of dot * sx * sw, sw being scale (draft)
        or scale / 16 (target) of the segment in float32, plus bias, in at least float32 and in
        any order, rounded once to dtype. Bounded: within rn(y - B) … rn(y + B) as in Numerics,
        4.4. A row depends on no other row and not on M.

        From M = `prefill_f16_from` rows on, where a backend declares it: the product of the
        activations xq * sx and the weight, both rounded to float16 (prefill-f16, Numerics, 4.2).

        BN1-LINEAR-DOT, BN1-LINEAR-SEGMENTS, BN1-LINEAR-TARGET, BN1-LINEAR-BIAS,
        BN1-LINEAR-PREFILL, NUM-LINEAR-ACCUMULATE, NUM-LINEAR-NESTED, NUM-LINEAR-PREFILL-F16.
        """


class Hadamard(Protocol):
    """`hadamard`: the online transform over the last axis."""

    def __call__(self, x: Array, had_k: Float32 | None, dtype: FloatDtype) -> Array:
        """Transform the last axis of x, [..., n], n = K * m and m a power of two: dtype [..., n].

        x: float16, bfloat16 or float32, widened to float32. had_k: float32 [K, K], or None for
        K = 1; it need be neither symmetric nor ±1. Element i * m + j of the axis is (i, j).

        Walsh-Hadamard over j in Sylvester's order: for strides 1, 2, 4, … m/2, elements a and b a
        stride apart become a + b and a - b. Then y[i, j] = sum over l of had_k[i, l] * x[l, j].
        Then times 1/sqrt(n). In float32 in exactly this order, l ascending, with float32(1/sqrt(n))
        and one rounding to dtype, it is the canonical evaluation. Exact where there is no matrix
        or one of ±1, n is a power of four and all sums are exact; otherwise bounded (Numerics,
        chapter 5). The sign of a zero does not matter. A row depends on no other row.

        BN1-HADAMARD-ORDER, BN1-HADAMARD-AXES, BN1-HADAMARD-MATRIX, BN1-HADAMARD-SCALE,
        BN1-HADAMARD-EXACT, BN1-HADAMARD-CANONICAL, BN1-HADAMARD-RANGE, NUM-HADAMARD-BOUND.
        """


class KvQuantize(Protocol):
    """`kv_quantize`: one scale per token and head, two planes along head_dim."""

    def __call__(self, x: Array, offset: Array | None) -> tuple[Bytes, Bytes, Float32]:
        """Return hi and lo, uint8 [..., H, L, D/2] each, and scale, float32 [..., H, L].

        x: float16, bfloat16 or float32 [..., H, L, D] (H heads, L tokens, D even). offset: [H, D]
        in any of these dtypes, or None. Both are widened to float32.

        In float32, each operation rounded by itself: d = x - offset (d = x without one);
        scale = max(amax(abs(d)) / 7, 1e-8) over D; q4 = clip(rint(d / scale), -8, 7);
        p = q4 * scale; r = d - p, not fused; qr = clip(rint(r / (scale / 16)), -8, 7), at least 0
        where q4 is -8. Quotients are correctly rounded, rint takes ties to even. Packed along D as
        in `pack_planes`, q4 in hi, qr in lo.

        BN1-KV-SCALE, BN1-KV-CODES, BN1-KV-RESIDUAL, BN1-KV-OFFSET, BN1-KV-WIDEN, BN1-KV-PLANES.
        """


class KvDequantize(Protocol):
    """`kv_dequantize`: what a reader of the nested cache sees."""

    def __call__(self, hi: Bytes, lo: Bytes | None, scale: Float32, plane: Plane) -> Float32:
        """Return what a reader sees, float32 [..., D].

        hi, lo: uint8 [..., D/2] as `kv_quantize` makes them, lo may be None for draft; scale:
        float32 [...]. Draft: q4 * scale. Target: (16 * q4 + qr) * (scale / 16). One float32
        rounding. The offset is not added.

        BN1-KV-DRAFT, BN1-KV-TARGET.
        """


class KvAttention(Protocol):
    """`kv_attention`: attention of M queries over a nested cache."""

    def __call__(
        self,
        q: Array,
        k_hi: Bytes,
        k_lo: Bytes | None,
        k_scale: Float32,
        v_hi: Bytes,
        v_lo: Bytes | None,
        v_scale: Float32,
        v_offset: Array | None,
        position: int,
        plane: Plane,
        softmax_scale: float,
        dtype: FloatDtype,
    ) -> Array:
        """Return dtype [B, Hq, M, D].

        q: float16, bfloat16 or float32 [B, Hq, M, D]. Planes: uint8 [B, Hkv, L, D/2], lo may be
        None for draft; scales: float32 [B, Hkv, L]. v_offset: [Hkv, D] in any of q's dtypes, or
        None. Hq is a multiple of Hkv: query head h reads key/value head h // (Hq // Hkv).
        position + M is at most L. softmax_scale is positive; it is rounded to float32.

        Query m sees the keys 0 … position + m: score = softmax_scale * sum of q * key, weights =
        softmax of the scores, result = sum of weight * value + v_offset of the head that is read,
        rounded once to dtype. Keys and values are those of `kv_dequantize` for the plane. In at
        least float32 throughout, in any order, blocks and splits. Bounded: within rn(y - B) …
        rn(y + B), B as in Numerics, chapter 6. A query depends on no other query, not on M, B or
        L, and not on what the cache holds beyond position + m.

        BN1-ATTENTION-CAUSAL, BN1-ATTENTION-HEADS, BN1-ATTENTION-OFFSET, BN1-ATTENTION-PLANE,
        BN1-ATTENTION-WIDEN, NUM-ATTENTION-EXP, NUM-ATTENTION-BOUND.
        """
