"""Faults of the nested linear layer: integer products, segments, planes, bias, precision."""

from tests.teeth.mutant import Mutant

LOOP = "    for start, stop in segments(xq.shape[1], scales.shape[1], sx.shape[1]):\n"
DOT = "        dot = segment_product(xq, codes, start, stop)\n"
ADD = "        total += dot * (sx_segment[:, np.newaxis] * sw_segment[np.newaxis, :])\n"
BIAS = "        total += bias.astype(np.float64)\n"
ROUNDED = "    return round_float64(total, dtype)\n"
PRODUCT = (
    "    return xq[:, start:stop].astype(np.int64) @ codes[:, start:stop].T.astype(np.int64)\n"
)
START = "    total = np.zeros((xq.shape[0], codes.shape[0]), np.float64)\n"


def linear(name: str, breaks: tuple[str, ...], fault: str, old: str, new: str) -> Mutant:
    """Change nested.py, to be seen in nested_linear."""
    return Mutant(name, "nested_linear", breaks, fault, "nested.py", old, new)


def prefill(name: str, fault: str, file: str, old: str, new: str) -> Mutant:
    """Change a backend that declares prefill-f16 from 17 rows on."""
    return Mutant(
        name,
        "nested_linear",
        ("NUM-LINEAR-PREFILL-F16", "BN1-LINEAR-PREFILL"),
        fault,
        file,
        old,
        new,
        {"prefill_f16_from": 17},
    )


MUTANTS = (
    linear(
        "dot-in-int16",
        ("BN1-LINEAR-DOT",),
        "integer products are summed in 16 bits and wrap",
        PRODUCT,
        "    xq = xq[:, start:stop].astype(np.int16)\n"
        "    return (xq @ codes[:, start:stop].T).astype(np.int64)\n",
    ),
    linear(
        "dot-saturates-at-int16",
        ("BN1-LINEAR-DOT",),
        "integer products saturate at 16 bits",
        PRODUCT,
        PRODUCT.replace("return ", "return np.clip(").rstrip() + ", -32768, 32767)\n",
    ),
    linear(
        "pairs-saturate-at-int16",
        ("BN1-LINEAR-DOT",),
        "a byte instruction takes activations with 128 added, and saturates sums of two products",
        PRODUCT,
        """\
    terms = (xq[:, np.newaxis, start:stop].astype(np.int64) + 128) * codes[:, start:stop]
    pairs = terms[..., : terms.shape[2] // 2 * 2].reshape(*terms.shape[:2], -1, 2).sum(axis=3)
    odd = terms[..., terms.shape[2] // 2 * 2 :].sum(axis=2)
    shift = 128 * codes[:, start:stop].astype(np.int64).sum(axis=1)
    saturated: NDArray[np.int64] = np.clip(pairs, -32768, 32767).sum(axis=2) + odd - shift
    return saturated
""",
    ),
    linear(
        "dot-in-float16",
        ("BN1-LINEAR-DOT",),
        "integer products pass through float16",
        DOT,
        DOT + "        dot = dot.astype(np.float16).astype(np.float64)\n",
    ),
    linear(
        "codes-in-bfloat16-sums",
        ("BN1-LINEAR-DOT",),
        "integer products pass through bfloat16",
        DOT,
        DOT + '        dot = dot.astype(np.float32).astype("bfloat16").astype(np.float64)\n',
    ),
    linear(
        "activation-codes-unsigned",
        ("BN1-LINEAR-DOT",),
        "activation codes are read as unsigned bytes",
        PRODUCT,
        PRODUCT.replace("xq[:, start:stop]", "xq[:, start:stop].view(np.uint8)"),
    ),
    linear(
        "activation-codes-without-their-extreme",
        ("BN1-LINEAR-DOT",),
        "activation codes beyond ±126 are clipped",
        PRODUCT,
        PRODUCT.replace("xq[:, start:stop]", "np.clip(xq, -126, 126)[:, start:stop]"),
    ),
    linear(
        "first-activation-scale",
        ("BN1-LINEAR-SEGMENTS",),
        "a token's first activation scale serves all its groups",
        "    x_group = start // (columns // sx.shape[1])\n",
        "    x_group = 0\n",
    ),
    linear(
        "activation-scale-of-the-weight-group",
        ("BN1-LINEAR-SEGMENTS",),
        "activation scales are indexed by the weight's group",
        "    x_group = start // (columns // sx.shape[1])\n",
        "    x_group = min(start // (columns // scales.shape[1]), sx.shape[1] - 1)\n",
    ),
    linear(
        "segments-of-the-weight-alone",
        ("BN1-LINEAR-SEGMENTS",),
        "products are cut where the weight's scale changes, not where the activation's does",
        LOOP,
        LOOP.replace(", sx.shape[1])", ")"),
    ),
    linear(
        "segments-of-the-activation-alone",
        ("BN1-LINEAR-SEGMENTS",),
        "products are cut where the activation's scale changes, not where the weight's does",
        LOOP,
        LOOP.replace("scales.shape[1], sx.shape[1]", "sx.shape[1]"),
    ),
    linear(
        "segments-as-many-as-the-finer-groups",
        ("BN1-LINEAR-SEGMENTS",),
        "one group width is taken to divide the other",
        LOOP,
        LOOP.replace("scales.shape[1], sx.shape[1]", "max(scales.shape[1], sx.shape[1])"),
    ),
    linear(
        "linear-scale-not-divided-by-sixteen",
        ("BN1-LINEAR-TARGET",),
        "the target's codes are multiplied by the draft's scale",
        'wide if plane == "draft" else wide / np.float32(16)',
        "wide",
    ),
    linear(
        "linear-target-reads-q4",
        ("BN1-LINEAR-TARGET",),
        "the target multiplies q4 alone",
        START,
        '    if plane == "target":\n        codes = (codes + 8) // 16 * 16\n' + START,
    ),
    linear(
        "linear-sixteenth-in-float16",
        ("BN1-LINEAR-TARGET",),
        "scale / 16 is rounded to bfloat16 when the layer is loaded",
        START,
        '    if plane == "target":\n'
        '        scales = scales.astype("bfloat16").astype(np.float32)\n' + START,
    ),
    linear(
        "linear-bias-ignored",
        ("BN1-LINEAR-BIAS",),
        "the bias is left out",
        BIAS,
        "        pass\n",
    ),
    linear(
        "linear-bias-after-rounding",
        ("BN1-LINEAR-BIAS",),
        "the sum is rounded to the output dtype before the bias is added",
        BIAS,
        "        total = round_float64(total, dtype).astype(np.float64)\n" + BIAS,
    ),
    linear(
        "linear-bias-added-twice",
        ("BN1-LINEAR-BIAS",),
        "the bias is added by the kernel and by the layer around it",
        BIAS,
        BIAS + BIAS,
    ),
    linear(
        "linear-bias-scaled",
        ("BN1-LINEAR-BIAS",),
        "the bias is added before the sum is multiplied by the activation scale",
        BIAS,
        "        total += bias.astype(np.float64) * sx[:, :1]\n",
    ),
    linear(
        "linear-accumulated-in-float16",
        ("NUM-LINEAR-ACCUMULATE",),
        "the scaled sum is kept in float16",
        ADD,
        ADD + "        total = total.astype(np.float16).astype(np.float64)\n",
    ),
    linear(
        "linear-accumulated-in-bfloat16",
        ("NUM-LINEAR-ACCUMULATE",),
        "the scaled sum is kept in bfloat16",
        ADD,
        ADD + '        total = round_float64(total, "bfloat16").astype(np.float64)\n',
    ),
    linear(
        "scales-multiplied-in-float16",
        ("NUM-LINEAR-ACCUMULATE",),
        "the product of the two scales is rounded to float16",
        ADD,
        "        both = sx_segment[:, np.newaxis] * sw_segment[np.newaxis, :]\n"
        "        total += dot * both.astype(np.float16)\n",
    ),
    linear(
        "activation-scale-in-bfloat16",
        ("NUM-LINEAR-NESTED",),
        "activation scales pass through bfloat16",
        ADD,
        '        sx_segment = sx_segment.astype(np.float32).astype("bfloat16").astype(np.float64)\n'
        + ADD,
    ),
    Mutant(
        "weights-of-four-bits-activations-of-sixteen",
        "nested_linear",
        ("NUM-LINEAR-NESTED",),
        "a float16 product, W4A16, takes the place of the integer one without being declared",
        "backend.py",
        "        prefill = first is not None and len(xq) >= first\n",
        "        prefill = True\n",
    ),
    Mutant(
        "activations-not-quantized",
        "quantize_activations",
        ("BN1-LINEAR-DOT",),
        "W4A8 runs with activations of six bits",
        "activations.py",
        "    return codes.astype(np.int8).reshape(rows, columns), scale\n",
        "    codes = np.rint(codes / 4) * 4\n"
        "    return codes.astype(np.int8).reshape(rows, columns), scale\n",
    ),
    linear(
        "linear-epsilon-in-the-sum",
        ("NUM-INVARIANT-SCALE-LINEAR",),
        "an epsilon is added to every sum",
        ROUNDED,
        "    total += 1e-3\n" + ROUNDED,
    ),
    Mutant(
        "linear-draft-reads-the-low-plane",
        "nested_linear",
        ("NUM-INVARIANT-DRAFT",),
        "the draft adds the residual where a low plane is at hand",
        "planes.py",
        '    if plane == "draft":\n        return q4.astype(np.int16)\n',
        '    if plane == "draft":\n'
        "        rest = 0 if lo is None else unpack_nibbles(lo) // 8\n"
        "        return (q4 + rest).astype(np.int16)\n",
    ),
    linear(
        "linear-bias-in-the-output-dtype",
        ("BN1-LINEAR-BIAS",),
        "the float16 bias is cast to the output dtype before it is added",
        BIAS,
        "        total += round_float32(bias.astype(np.float32), dtype).astype(np.float64)\n",
    ),
    linear(
        "long-dot-in-float32",
        ("BN1-LINEAR-DOT",),
        "integer products of more than 2**23 are rounded to 23 bits",
        DOT,
        DOT + "        dot = np.where(np.abs(dot) > 2**23, dot // 4 * 4, dot)\n",
    ),
)
