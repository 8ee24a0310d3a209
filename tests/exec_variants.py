"""The adapters of examples/adapters with one wrong line each, which the suite has to reject."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Variant:
    """A line of an adapter and what stands there instead, and what that breaks."""

    name: str
    line: str
    instead: str
    file: str
    """The file of the suite with a test that rejects it."""
    requirement: str
    """What that test is about."""


JAVASCRIPT = (
    Variant(
        "first code in the highest bits",
        "words[Math.floor(i / perWord)] |= codes[i] << (nbits * (i % perWord));",
        "words[Math.floor(i / perWord)] |= codes[i] << (32 - nbits * (1 + (i % perWord)));",
        "test_packing.py",
        "DQ1-PACKING-ORDER",
    ),
    Variant(
        "rows of the logical width",
        "f(f(codes[n * stored + k] - zero[g]) * scale[g]);",
        "f(f(codes[n * columns + k] - zero[g]) * scale[g]);",
        "test_dashq_reconstruction.py",
        "DQ1-RECONSTRUCT-CROP",
    ),
    Variant(
        "one float32 rounding left out",
        "f(f(codes[n * stored + k] - zero[g]) * scale[g]);",
        "f((codes[n * stored + k] - zero[g]) * scale[g]);",
        "test_dashq_reconstruction.py",
        "NUM-EVALUATION-FUSED",
    ),
    Variant(
        "bfloat16 rounds half away from zero",
        "return (b + 0x7fff + ((b >>> 16) & 1)) >>> 16;",
        "return (b + 0x8000) >>> 16;",
        "test_dashq_reconstruction.py",
        "NUM-ROUND-NEAREST",
    ),
    Variant(
        "float16 clamps where it overflows",
        "return sign | 0x7c00;",
        "return sign | 0x7bff;",
        "test_dashq_reconstruction.py",
        "NUM-ROUND-OVERFLOW",
    ),
    Variant(
        "e4m3fn with another bias",
        "2 ** (exponent - 10)",
        "2 ** (exponent - 11)",
        "test_dashq_reconstruction.py",
        "DQ1-RECONSTRUCT-PARAMETERS",
    ),
    Variant(
        "residual without its sign",
        "low ? (16 * high[i] + low[i]) * f(s / 16)",
        "low ? (16 * high[i] + (low[i] & 15)) * f(s / 16)",
        "test_nested_reconstruction.py",
        "BN1-TARGET-WEIGHT",
    ),
    Variant(
        "ties away from even",
        "const rint = (x) => x + MAGIC - MAGIC;",
        "const rint = (x) => Math.round(x);",
        "test_activations.py",
        "BN1-ACT-CODES",
    ),
    Variant(
        "product with a reciprocal",
        "codes[i] = clip(rint(f(x[i] / scale)), -128, 127);",
        "codes[i] = clip(rint(f(x[i] * f(1 / scale))), -128, 127);",
        "test_activations.py",
        "BN1-ACT-CODES",
    ),
    Variant(
        "fused residual",
        "const rest = f(d[i] - f(q4 * scale));",
        "const rest = f(d[i] - q4 * scale);",
        "test_kv_cache.py",
        "BN1-KV-RESIDUAL",
    ),
    Variant(
        "offset of the first head for all",
        "(d[i] = value - offset[head * width + i])",
        "(d[i] = value - offset[i])",
        "test_kv_cache.py",
        "BN1-KV-OFFSET",
    ),
)

C = (
    Variant(
        "nibbles swapped",
        "plane->bytes[i / 2] >> 4 * (i % 2)",
        "plane->bytes[i / 2] >> 4 * (1 - i % 2)",
        "test_planes.py",
        "BN1-PLANES-ORDER",
    ),
    Variant(
        "nibbles in two's complement",
        "(unsigned char)((code + 8) << 4 * (i % 2));",
        "(unsigned char)((code & 15) << 4 * (i % 2));",
        "test_planes.py",
        "BN1-PLANES-EXCESS",
    ),
    Variant(
        "groups as if there were no padding",
        "g = i / group;",
        "g = n * (shape[1] / group) + k / group;",
        "test_dashq_reconstruction.py",
        "DQ1-RECONSTRUCT-GROUPS",
    ),
    Variant(
        "draft with the scale of the target",
        "* (lo ? s / 16 : s));\n    }\n}",
        "* (s / 16));\n    }\n}",
        "test_nested_reconstruction.py",
        "BN1-DRAFT-WEIGHT",
    ),
    Variant(
        "sums of 16 bits",
        "long long dot = 0;",
        "short dot = 0;",
        "test_nested_linear.py",
        "BN1-LINEAR-DOT",
    ),
    Variant(
        "segments of the weight's groups alone",
        "if ((k + 1) % weight_width && (k + 1) % x_width) continue;",
        "if ((k + 1) % weight_width) continue;",
        "test_nested_linear.py",
        "BN1-LINEAR-SEGMENTS",
    ),
    Variant(
        "bias forgotten",
        "(float)(bias ? sum + number(bias, n) : sum)",
        "(float)sum",
        "test_nested_linear.py",
        "BN1-LINEAR-BIAS",
    ),
    Variant(
        "matrix transposed",
        "number(matrix, i / m * order + l)",
        "number(matrix, l * order + i / m)",
        "test_hadamard.py",
        "BN1-HADAMARD-MATRIX",
    ),
    Variant(
        "scale without the order of the matrix",
        "factor = (float)(1 / sqrt((double)n));",
        "factor = (float)(1 / sqrt((double)m));",
        "test_hadamard.py",
        "BN1-HADAMARD-SCALE",
    ),
    Variant(
        "scale for eight steps",
        "fmaxf(largest / 7, 1e-8f)",
        "fmaxf(largest / 8, 1e-8f)",
        "test_kv_cache.py",
        "BN1-KV-SCALE",
    ),
    Variant(
        "bfloat16 cut off",
        "return (b + 0x7FFF + (b >> 16 & 1)) >> 16;",
        "return b >> 16;",
        "test_dashq_reconstruction.py",
        "NUM-ROUND-NEAREST",
    ),
)
