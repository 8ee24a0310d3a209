"""Faults of the online Hadamard transform: order, axes, matrix, scale, range."""

from tests.teeth.mutant import Mutant

VIEW = "    y = x.astype(np.float32).reshape(*x.shape[:-1], order, columns)\n"
BUTTERFLIES = "        y = walsh_hadamard(y)\n"
MULTIPLIED = "            y = multiply_by_matrix(had_k, y)\n"
SCALED = "        y = y * inverse_root(x.shape[-1])\n"
QUIET = '    with np.errstate(over="ignore", under="ignore", invalid="ignore"):\n'
WHOLE = BUTTERFLIES + "        if had_k is not None:\n" + MULTIPLIED + SCALED
ROUNDED = "    return round_float32(y.reshape(x.shape), dtype)\n"
PAIR = "np.stack([a + b, a - b], axis=-2)"
STAGES = "    while stride < size:\n"
LOOP = "    for column in range(1, had_k.shape[1]):\n"
LAST_OF_WALSH = "        stride *= 2\n    return x\n"


def transform(name: str, requirement: str, fault: str, old: str, new: str) -> Mutant:
    """Change hadamard.py."""
    return Mutant(name, "hadamard", (requirement,), fault, "hadamard.py", old, new)


MUTANTS = (
    transform(
        "bit-reversed-order",
        "BN1-HADAMARD-ORDER",
        "the transform is in dyadic (Paley's) order",
        LAST_OF_WALSH,
        LAST_OF_WALSH.replace(
            "return x",
            "digits = size.bit_length() - 1\n"
            '    return x[..., [int(f"{j:0{digits}b}"[::-1], 2) if digits else 0 '
            "for j in range(size)]]",
        ),
    ),
    transform(
        "sequency-order",
        "BN1-HADAMARD-ORDER",
        "the transform is in sequency (Walsh's) order: row j has j changes of sign",
        LAST_OF_WALSH,
        LAST_OF_WALSH.replace(
            "return x",
            "digits = size.bit_length() - 1\n"
            '    return x[..., [int(f"{j ^ j >> 1:0{digits}b}"[::-1], 2) if digits else 0 '
            "for j in range(size)]]",
        ),
    ),
    transform(
        "last-stage-missing",
        "BN1-HADAMARD-ORDER",
        "the butterflies of the widest stride are left out",
        STAGES,
        "    while 2 * stride < size:\n",
    ),
    transform(
        "butterflies-negated",
        "BN1-HADAMARD-ORDER",
        "a + b and b - a",
        PAIR,
        "np.stack([a + b, b - a], axis=-2)",
    ),
    transform(
        "butterflies-exchanged",
        "BN1-HADAMARD-ORDER",
        "a - b comes before a + b",
        PAIR,
        "np.stack([a - b, a + b], axis=-2)",
    ),
    transform(
        "no-more-than-4096-columns",
        "NUM-HADAMARD-BOUND",
        "strides of 2048 and more, beyond a block's shared memory, are left out",
        STAGES,
        "    while stride < min(size, 2048):\n",
    ),
    transform(
        "axes-exchanged",
        "BN1-HADAMARD-AXES",
        "the axis is split as [m, K] instead of [K, m]",
        VIEW,
        VIEW.replace("order, columns)", "columns, order).swapaxes(-1, -2)"),
    ),
    transform(
        "axes-exchanged-both-ways",
        "BN1-HADAMARD-AXES",
        "the axis is split as [m, K] and put together so again",
        VIEW + QUIET + WHOLE + ROUNDED,
        VIEW.replace("order, columns)", "columns, order).swapaxes(-1, -2)")
        + QUIET
        + WHOLE
        + ROUNDED.replace("y.reshape", "y.swapaxes(-1, -2).reshape"),
    ),
    transform(
        "matrix-transposed",
        "BN1-HADAMARD-MATRIX",
        "had_K is transposed",
        MULTIPLIED,
        MULTIPLIED.replace("(had_k", "(had_k.T"),
    ),
    transform(
        "matrix-ignored",
        "BN1-HADAMARD-MATRIX",
        "had_K is not applied: the rows are transformed one by one",
        MULTIPLIED,
        "            pass\n",
    ),
    transform(
        "matrix-normalized",
        "BN1-HADAMARD-MATRIX",
        "the matrix comes from a table of its order, whose first column is positive",
        MULTIPLIED,
        MULTIPLIED.replace("(had_k", "(had_k * np.sign(had_k[:, :1])"),
    ),
    transform(
        "matrix-of-signs",
        "BN1-HADAMARD-MATRIX",
        "had_K is packed into signs",
        MULTIPLIED,
        MULTIPLIED.replace("(had_k", "(np.sign(had_k)"),
    ),
    transform(
        "matrix-in-bfloat16",
        "NUM-HADAMARD-BOUND",
        "had_K passes through bfloat16 when it is loaded",
        MULTIPLIED,
        MULTIPLIED.replace("(had_k", '(had_k.astype("bfloat16").astype(np.float32)'),
    ),
    transform(
        "matrix-last-column-left-out",
        "NUM-HADAMARD-BOUND",
        "the sum over K ends at a multiple of 4, for K > 4 that is none",
        LOOP,
        "    for column in range(1, max(4, had_k.shape[1] - 2) // 4 * 4):\n",
    ),
    transform(
        "padded-to-a-power-of-two",
        "BN1-HADAMARD-MATRIX",
        "a width that is no power of two is padded with zeros, transformed and cut off",
        BUTTERFLIES + "        if had_k is not None:\n" + MULTIPLIED,
        """\
        width = 1 << (x.shape[-1] - 1).bit_length()
        flat = y.reshape(*x.shape[:-1], -1)
        padded = np.concatenate(
            [flat, np.zeros((*x.shape[:-1], width - x.shape[-1]), np.float32)], axis=-1
        )
        y = walsh_hadamard(padded)[..., : x.shape[-1]]
""",
    ),
    transform(
        "not-scaled",
        "BN1-HADAMARD-SCALE",
        "1/√n is left out",
        SCALED,
        "",
    ),
    transform(
        "scaled-by-the-columns-alone",
        "BN1-HADAMARD-SCALE",
        "scaled by 1/√m instead of 1/√n",
        SCALED,
        SCALED.replace("x.shape[-1]", "columns"),
    ),
    transform(
        "scaled-by-n",
        "BN1-HADAMARD-SCALE",
        "scaled by 1/n, as an inverse without its root",
        SCALED,
        "        y = y / np.float32(x.shape[-1])\n",
    ),
    transform(
        "scaled-twice",
        "BN1-HADAMARD-SCALE",
        "scaled by 1/√n before and after",
        SCALED,
        SCALED + SCALED,
    ),
    transform(
        "scale-in-float16",
        "NUM-HADAMARD-BOUND",
        "1/√n is a float16 number",
        "    return np.float32(1 / math.sqrt(n))\n",
        "    return np.float32(np.float16(1 / math.sqrt(n)))\n",
    ),
    transform(
        "scale-by-approximate-root",
        "NUM-HADAMARD-BOUND",
        "1/√n comes from an approximation of 12 bits",
        "    return np.float32(1 / math.sqrt(n))\n",
        "    return np.float32(1 / math.sqrt(n) * (1 + 2.0**-12))\n",
    ),
    transform(
        "scaled-stage-by-stage",
        "BN1-HADAMARD-EXACT",
        "every stage is multiplied by float32(1/√2)",
        WHOLE,
        """\
        y = walsh_hadamard(y)
        for _ in range(columns.bit_length() - 1):
            y = y * np.float32(math.sqrt(0.5))
        if had_k is not None:
            y = multiply_by_matrix(had_k, y)
        y = y * inverse_root(order)
""",
    ),
    transform(
        "rounded-by-way-of-float16",
        "BN1-HADAMARD-EXACT",
        "the result passes through float16",
        ROUNDED,
        '    y = round_float32(y, "float16").astype(np.float32)\n' + ROUNDED,
    ),
    transform(
        "computed-in-float16",
        "BN1-HADAMARD-RANGE",
        "the butterflies are in float16, and unscaled sums overflow",
        VIEW,
        VIEW.replace("np.float32", "np.float16"),
    ),
    transform(
        "stages-stored-in-the-output-dtype",
        "BN1-HADAMARD-RANGE",
        "the columns' transform is stored in the output dtype before the sum over K",
        BUTTERFLIES,
        BUTTERFLIES + "        y = round_float32(y, dtype).astype(np.float32)\n",
    ),
    transform(
        "computed-in-bfloat16",
        "NUM-HADAMARD-BOUND",
        "every stage is rounded to bfloat16",
        PAIR,
        PAIR + '.astype("bfloat16").astype(np.float32)',
    ),
    transform(
        "strides-in-falling-order",
        "BN1-HADAMARD-CANONICAL",
        "strides in falling order: inside the bound, but not the canonical bits",
        "    stride = 1\n" + STAGES,
        "    for stride in [1 << k for k in range(size.bit_length() - 1)][::-1]:\n",
    ),
    transform(
        "divided-by-the-root",
        "BN1-HADAMARD-CANONICAL",
        "divided by √n: inside the bound, but not the canonical bits",
        SCALED,
        "        y = y / np.float32(math.sqrt(x.shape[-1]))\n",
    ),
    transform(
        "sum-over-k-depends-on-rows",
        "NUM-INVARIANT-ROWS",
        "several rows are summed over K in reverse, a single one in order",
        MULTIPLIED,
        "            if x.size > x.shape[-1]:\n"
        "                y = multiply_by_matrix(had_k[:, ::-1], y[..., ::-1, :])\n"
        "            else:\n    " + MULTIPLIED,
    ),
    transform(
        "scale-depends-on-rows",
        "NUM-INVARIANT-ROWS",
        "a call of four rows divides by √n, others multiply by its reciprocal",
        SCALED,
        "        if x.size == 4 * x.shape[-1]:\n"
        "            y = y / np.float32(math.sqrt(x.shape[-1])) / inverse_root(x.shape[-1])\n"
        + SCALED,
    ),
    transform(
        "rounded-by-way-of-the-input-dtype",
        "BN1-HADAMARD-EXACT",
        "the result passes through the dtype of x",
        ROUNDED,
        "    y = y.astype(x.dtype).astype(np.float32)\n" + ROUNDED,
    ),
    transform(
        "rows-of-one-block",
        "NUM-INVARIANT-ROWS",
        "rows beyond 32 are transformed with a scale that is a unit in the last place larger",
        SCALED,
        SCALED
        + "        flat = y.reshape(-1, x.shape[-1])\n"
        + "        flat[32:] *= np.float32(1 + 2.0**-23)\n",
    ),
)
