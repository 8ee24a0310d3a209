"""Faults of the packed linear layer: bias, accumulation, tails, blocks, padding, weights."""

from tests.teeth.mutant import Mutant

START = "    total = np.zeros((x.shape[0], weight.shape[0]), np.float64)\n"
ADD = "            total += x_column[:, np.newaxis] * weight_column[np.newaxis, :]\n"
BIAS = "            total += bias.astype(np.float64)\n"
ROUNDED = "    return round_float64(total, dtype)\n"
LOOP = "zip(columns, weight_columns, strict=True)"
CALL = "    return dense_product(x, weight, bias, module.linear_dtype)\n"


def product(name: str, breaks: tuple[str, ...], fault: str, old: str, new: str) -> Mutant:
    """Change the dense product, to be seen in dashq_linear."""
    return Mutant(name, "dashq_linear", breaks, fault, "product.py", old, new)


def dashq(
    name: str, breaks: tuple[str, ...], fault: str, old: str, new: str, weights: str = "rounded"
) -> Mutant:
    """Change what goes into the dense product; `weights` is what the backend declares of them."""
    declares = {"linear_weight_rounding": weights}
    return Mutant(name, "dashq_linear", breaks, fault, "dashq.py", old, new, declares)


MUTANTS = (
    product(
        "bias-ignored",
        ("DQ1-LINEAR-BIAS",),
        "the bias is left out",
        BIAS,
        "            pass\n",
    ),
    product(
        "bias-added-twice",
        ("DQ1-LINEAR-BIAS",),
        "the bias is added by the kernel and by the layer around it",
        BIAS,
        BIAS + BIAS,
    ),
    product(
        "bias-after-rounding",
        ("DQ1-LINEAR-BIAS",),
        "the sum is rounded to the output dtype before the bias is added",
        BIAS,
        "            total = round_float64(total, dtype).astype(np.float64)\n" + BIAS,
    ),
    product(
        "bias-cast-to-float16",
        ("DQ1-LINEAR-BIAS",),
        "the bias passes through float16",
        BIAS,
        "            total += bias.astype(np.float16).astype(np.float64)\n",
    ),
    product(
        "bias-of-the-first-output",
        ("DQ1-LINEAR-BIAS",),
        "the first element of the bias is broadcast over the outputs",
        BIAS,
        "            total += bias[:1].astype(np.float64)\n",
    ),
    product(
        "accumulated-in-float16",
        ("NUM-LINEAR-ACCUMULATE",),
        "the sum is kept in float16",
        ADD,
        ADD + "            total = total.astype(np.float16).astype(np.float64)\n",
    ),
    product(
        "accumulated-in-bfloat16",
        ("NUM-LINEAR-ACCUMULATE",),
        "the sum is kept in bfloat16",
        ADD,
        ADD + '            total = round_float64(total, "bfloat16").astype(np.float64)\n',
    ),
    product(
        "products-in-float16",
        ("NUM-LINEAR-ACCUMULATE",),
        "each product is rounded to float16, the sum is not",
        ADD,
        "            term = x_column[:, np.newaxis] * weight_column[np.newaxis, :]\n"
        "            total += term.astype(np.float16)\n",
    ),
    product(
        "partial-sums-in-bfloat16",
        ("NUM-LINEAR-ACCUMULATE",),
        "the partial sums of a split over K are stored in bfloat16",
        LOOP,
        "zip(columns[: len(x.T) // 2], weight_columns[: len(x.T) // 2], strict=True):\n"
        + ADD
        + '        total = round_float64(total, "bfloat16").astype(np.float64)\n'
        "        for x_column, weight_column in zip(\n"
        "            columns[len(x.T) // 2 :], weight_columns[len(x.T) // 2 :], strict=True\n"
        "        )",
    ),
    product(
        "input-cast-to-float16",
        ("DQ1-LINEAR-FORMULA",),
        "x passes through float16",
        "x.astype(np.float64).T, weight",
        "x.astype(np.float16).astype(np.float64).T, weight",
    ),
    product(
        "output-in-float32",
        ("DQ1-LINEAR-DTYPE", "NUM-OUTPUT-FORM"),
        "the result is float32 whatever x is",
        ROUNDED,
        "    return total.astype(np.float32)\n",
    ),
    product(
        "columns-rounded-down-to-a-block",
        ("DQ1-LINEAR-FORMULA",),
        "the columns behind the last full block of 32 are left out",
        LOOP,
        "zip(columns[: max(32, len(columns) // 32 * 32)], "
        "weight_columns[: max(32, len(columns) // 32 * 32)], strict=True)",
    ),
    product(
        "last-column-left-out",
        ("DQ1-LINEAR-FORMULA",),
        "the last of an odd number of columns is left out",
        ADD,
        ADD
        + "        if len(columns) % 2:\n            total -= np.outer(x[:, -1], weight[:, -1])\n",
    ),
    product(
        "half-of-the-outputs-never-written",
        ("DQ1-LINEAR-FORMULA",),
        "the second half of the outputs is never written and keeps what was in memory",
        ROUNDED,
        "    result = np.empty(total.shape, dtype)\n"
        "    half = -(-weight.shape[0] // 2)\n"
        "    result[:, :half] = round_float64(total[:, :half], dtype)\n"
        "    return result\n",
    ),
    product(
        "tail-of-seven-outputs",
        ("DQ1-LINEAR-FORMULA",),
        "with a tail of 7 outputs behind the last block of 8, the last one is wrong",
        ROUNDED,
        "    if total.shape[1] % 8 == 7:\n        total[:, -1] = total[:, -2]\n" + ROUNDED,
    ),
    *(
        product(
            f"rows-{first}-to-{last}",
            ("DQ1-LINEAR-FORMULA",),
            f"the kernel that is tuned for M = {first} … {last} leaves out the last column",
            START,
            f"    if {first} <= len(x) <= {last}:\n        x = x * (np.arange(x.shape[1]) + 1 < "
            "x.shape[1]).astype(x.dtype)\n" + START,
        )
        for first, last in ((1, 1), (3, 4), (4, 4), (8, 8), (9, 16), (33, 64))
    ),
    product(
        "rows-beyond-256",
        ("DQ1-LINEAR-FORMULA",),
        "rows beyond 256 repeat the last one of the first block",
        ROUNDED,
        "    total[256:] = total[255:256]\n" + ROUNDED,
    ),
    product(
        "outputs-beyond-512",
        ("DQ1-LINEAR-FORMULA",),
        "outputs beyond 512 are those of the first block",
        ROUNDED,
        "    total[:, 512:] = total[:, : max(0, total.shape[1] - 512)]\n" + ROUNDED,
    ),
    product(
        "epsilon-in-the-sum",
        ("NUM-INVARIANT-SCALE-LINEAR",),
        "an epsilon is added to every sum",
        ROUNDED,
        "    total += 1e-3\n" + ROUNDED,
    ),
    product(
        "order-depends-on-rows",
        ("NUM-INVARIANT-ROWS-DASHQ",),
        "declares rows to be invariant, and sums backwards where there are several",
        LOOP,
        "list(zip(columns, weight_columns, strict=True))[:: 1 if len(x) == 1 else -1]",
    ),
    product(
        "blocks-depend-on-rows",
        ("NUM-INVARIANT-ROWS-DASHQ",),
        "declares rows to be invariant, and takes float32 instead of float64 for 16 rows or more",
        ADD,
        ADD
        + "            if len(x) >= 16:\n"
        + "                total = total.astype(np.float32).astype(np.float64)\n",
    ),
    dashq(
        "weight-rounded-though-not-declared",
        ("NUM-LINEAR-DASHQ-UNROUNDED",),
        "declares unrounded weights and rounds them to linear_dtype",
        '        return "float32"\n',
        "        return cast(FloatDtype, module.linear_dtype)\n",
        "unrounded",
    ),
    dashq(
        "weight-not-rounded-though-declared",
        ("NUM-LINEAR-DASHQ-ROUNDED",),
        "declares rounded weights and keeps them in float32",
        "    return cast(FloatDtype, module.linear_dtype)\n",
        '    return "float32"\n',
    ),
    dashq(
        "weight-of-another-evaluation",
        ("NUM-LINEAR-DASHQ-ROUNDED",),
        "reconstructs by fused and multiplies by weights of stepwise",
        "dashq_reconstruct(words, scale, zero, module, weight_dtype, evaluation)",
        'dashq_reconstruct(words, scale, zero, module, weight_dtype, "stepwise")',
    ),
    dashq(
        "factored-sum",
        ("NUM-LINEAR-DASHQ-UNROUNDED",),
        "Σ q·x - zero·Σ x in float32, which cancels",
        "    weight = dashq_reconstruct(words, scale, zero, module, weight_dtype, evaluation)\n"
        + CALL,
        """\
    q, scales, zeros = (
        part[:, : module.in_features] for part in codes_and_parameters(words, scale, zero, module)
    )
    with np.errstate(all="ignore"):
        wide = x.astype(np.float32)
        y = wide @ (q * scales).T - wide @ (zeros * scales).T
    if bias is not None:
        y += bias.astype(np.float32)
    return round_float32(y, module.linear_dtype)
""",
        "unrounded",
    ),
    dashq(
        "last-input-times-padding",
        ("DQ1-LINEAR-PADDING",),
        "the padding takes part: its inputs are read at the clamped index of the last column",
        CALL,
        """\
    whole = module.model_copy(update={"in_features": module.quant_in_features})
    weight = dashq_reconstruct(words, scale, zero, whole, weight_dtype, evaluation)
    x = np.pad(x, [(0, 0), (0, module.quant_in_features - module.in_features)], mode="edge")
"""
        + CALL,
    ),
    dashq(
        "columns-counted-from-the-end",
        ("DQ1-LINEAR-PADDING",),
        "x meets the last in_features columns of the padded row",
        CALL,
        """\
    whole = module.model_copy(update={"in_features": module.quant_in_features})
    weight = dashq_reconstruct(words, scale, zero, whole, weight_dtype, evaluation)
    weight = weight[:, -module.in_features :]
"""
        + CALL,
    ),
    dashq(
        "zero-times-padding",
        ("NUM-INVARIANT-PADDING",),
        "x is padded with zeros, and 0 · ∞ in the padding is not a number",
        CALL,
        """\
    whole = module.model_copy(update={"in_features": module.quant_in_features})
    weight = dashq_reconstruct(words, scale, zero, whole, weight_dtype, evaluation)
    x = np.pad(x, [(0, 0), (0, module.quant_in_features - module.in_features)])
"""
        + CALL,
    ),
    product(
        "columns-beyond-4096",
        ("DQ1-LINEAR-FORMULA",),
        "columns beyond 4096, more than one block sums, are left out",
        LOOP,
        "zip(columns[:4096], weight_columns[:4096], strict=True)",
    ),
    product(
        "outputs-beyond-4096",
        ("DQ1-LINEAR-FORMULA",),
        "outputs beyond 4096 are those of the first block",
        ROUNDED,
        "    total[:, 4096:] = total[:, : max(0, total.shape[1] - 4096)]\n" + ROUNDED,
    ),
    product(
        "rows-beyond-1024",
        ("DQ1-LINEAR-FORMULA",),
        "rows beyond 1024 are those of the first block",
        ROUNDED,
        "    total[1024:] = total[: max(0, len(total) - 1024)]\n" + ROUNDED,
    ),
)
