"""Faults of dashq reconstruction: zero points, scales, groups, padding, evaluations."""

from collections.abc import Mapping

from tests.teeth.mutant import Mutant

DIFFERENCE = "    difference = q - zero  # rounded to float32\n"
PRODUCT = "    product = difference * scale  # rounded to float32\n"
FUSED = DIFFERENCE + PRODUCT + "    return round_float32(product, dtype)\n"
BY_ROW = (
    "        by_row = parameter.astype(np.float32).reshape(rows, columns // module.group_size)\n"
)
REPEATED = "np.repeat(by_row, module.group_size, axis=1)"
PARAMETERS = "    return q, per_column(scale), per_column(zero)\n"
CROPPED = "    return weight[:, : module.in_features].copy()\n"
EVALUATED = "EVALUATIONS[evaluation](q, zeros, scales, dtype)"


def dashq(
    name: str,
    breaks: tuple[str, ...],
    fault: str,
    old: str,
    new: str,
    declares: Mapping[str, str | int | None] | None = None,
) -> Mutant:
    """Change dashq.py, to be seen in the reconstructed weight."""
    return Mutant(name, "dashq_reconstruct", breaks, fault, "dashq.py", old, new, declares or {})


def evaluation(declared: str, computed: str) -> Mutant:
    """Declare one evaluation and compute another."""
    name = {"fused": "fused", "stepwise": "stepwise", "bf16-params": "bf16_params"}
    return dashq(
        f"{declared}-computed-as-{computed}",
        (f"NUM-EVALUATION-{declared.upper()}",),
        f"declares the evaluation {declared} and computes {computed}",
        f'    "{declared}": {name[declared]},\n',
        f'    "{declared}": {name[computed]},\n',
        {"dashq_rounding": declared},
    )


MUTANTS = (
    dashq(
        "zero-point-plus-one",
        ("DQ1-RECONSTRUCT-ZERO-POINT",),
        "1 is added to the zero point, as in GPTQ's first files",
        DIFFERENCE,
        "    difference = q - (zero + np.float32(1))\n",
    ),
    dashq(
        "zero-point-minus-one",
        ("DQ1-RECONSTRUCT-ZERO-POINT",),
        "1 is taken from the zero point",
        DIFFERENCE,
        "    difference = q - (zero - np.float32(1))\n",
    ),
    dashq(
        "integer-zero-point",
        ("DQ1-RECONSTRUCT-ZERO-POINT",),
        "the zero point is rounded to a whole code",
        DIFFERENCE,
        "    difference = q - np.rint(zero)\n",
    ),
    dashq(
        "zero-point-clipped",
        ("DQ1-RECONSTRUCT-ZERO-POINT",),
        "the zero point is clipped to the codes 0 … 2^b - 1",
        PARAMETERS,
        "    top = np.float32(2**module.nbits - 1)\n"
        "    return q, per_column(scale), np.clip(per_column(zero), 0, top)\n",
    ),
    dashq(
        "zero-point-without-its-sign",
        ("DQ1-RECONSTRUCT-ZERO-POINT",),
        "negative zero points are taken for unsigned",
        DIFFERENCE,
        "    difference = q - np.abs(zero)\n",
    ),
    dashq(
        "zero-point-zero-means-none",
        ("DQ1-RECONSTRUCT-ZERO-POINT",),
        "a zero point of 0 is taken for absent: the middle of the codes takes its place",
        PARAMETERS,
        "    middle = np.float32(2 ** (module.nbits - 1))\n"
        "    zeros = per_column(zero)\n"
        "    return q, per_column(scale), np.where(zeros == 0, middle, zeros)\n",
    ),
    dashq(
        "zero-point-in-scale-units",
        ("DQ1-RECONSTRUCT-FORMULA",),
        "q · scale - zero: the zero point is subtracted after the scale",
        DIFFERENCE + PRODUCT,
        "    product = q * scale - zero\n",
    ),
    dashq(
        "zero-point-added",
        ("DQ1-RECONSTRUCT-FORMULA",),
        "(q + zero) · scale",
        DIFFERENCE,
        "    difference = q + zero\n",
    ),
    dashq(
        "difference-negated",
        ("DQ1-RECONSTRUCT-FORMULA",),
        "(zero - q) · scale",
        DIFFERENCE,
        "    difference = zero - q\n",
    ),
    dashq(
        "divided-by-the-scale",
        ("DQ1-RECONSTRUCT-FORMULA",),
        "the scale is taken for a multiplier of the quantizer: (q - zero) / scale",
        PRODUCT,
        "    product = difference / scale\n",
    ),
    dashq(
        "scale-without-its-sign",
        ("DQ1-RECONSTRUCT-FORMULA",),
        "scales are taken for magnitudes",
        PRODUCT,
        "    product = difference * np.abs(scale)\n",
    ),
    dashq(
        "weights-cached-by-shape",
        ("NUM-INVARIANT-SCALE",),
        "a weight is kept for its shape, and handed out for other words of that shape",
        f"        weight = {EVALUATED}\n",
        f"        weight = vars(fused).setdefault(str((q.shape, dtype)), {EVALUATED})\n",
    ),
    dashq(
        "factored-product",
        ("NUM-EVALUATION-FUSED",),
        "q · scale - zero · scale, with the second product precomputed",
        DIFFERENCE + PRODUCT,
        "    product = q * scale - zero * scale\n",
    ),
    dashq(
        "factored-with-fma",
        ("NUM-EVALUATION-FUSED",),
        "fma(q, scale, -(zero · scale))",
        DIFFERENCE + PRODUCT,
        "    wide = q.astype(np.float64) * scale - zero * scale\n"
        "    product = wide.astype(np.float32)\n",
    ),
    dashq(
        "evaluated-in-float64",
        ("NUM-EVALUATION-FUSED",),
        "difference and product in float64, one rounding at the end: two roundings are missing",
        FUSED,
        "    return ((q.astype(np.float64) - zero) * scale).astype(np.dtype(dtype))\n",
    ),
    dashq(
        "difference-not-rounded",
        ("NUM-EVALUATION-FUSED",),
        "the difference is kept in float64, the product alone is rounded to float32",
        DIFFERENCE + PRODUCT,
        "    product = ((q.astype(np.float64) - zero) * scale).astype(np.float32)\n",
    ),
    *(
        evaluation(declared, computed)
        for declared in ("fused", "stepwise", "bf16-params")
        for computed in ("fused", "stepwise", "bf16-params")
        if declared != computed
    ),
    dashq(
        "stepwise-keeps-the-difference",
        ("NUM-EVALUATION-STEPWISE",),
        "stepwise, but the difference stays in float32",
        "    difference = round_float32(q - zero, dtype).astype(np.float32)\n",
        "    difference = q - zero\n",
        {"dashq_rounding": "stepwise"},
    ),
    dashq(
        "stepwise-in-bfloat16",
        ("NUM-EVALUATION-STEPWISE",),
        "stepwise rounds the difference to bfloat16, whatever the output dtype",
        "    difference = round_float32(q - zero, dtype).astype(np.float32)\n",
        '    difference = round_float32(q - zero, "bfloat16").astype(np.float32)\n',
        {"dashq_rounding": "stepwise"},
    ),
    dashq(
        "bf16-params-only-zero",
        ("NUM-EVALUATION-BF16-PARAMS",),
        "bf16-params, but the scale stays as stored",
        '    scale = round_float32(scale, "bfloat16").astype(np.float32)\n',
        "",
        {"dashq_rounding": "bf16-params"},
    ),
    dashq(
        "bf16-params-of-the-output",
        ("NUM-EVALUATION-BF16-PARAMS",),
        "bf16-params rounds the parameters to the output dtype, not to bfloat16",
        '    zero = round_float32(zero, "bfloat16").astype(np.float32)\n'
        '    scale = round_float32(scale, "bfloat16").astype(np.float32)\n',
        "    zero = round_float32(zero, dtype).astype(np.float32)\n"
        "    scale = round_float32(scale, dtype).astype(np.float32)\n",
        {"dashq_rounding": "bf16-params"},
    ),
    dashq(
        "compiler-gives-up",
        ("NUM-EVALUATION-ONE",),
        "after eight layer shapes the compiler gives up, and the rest is evaluated stepwise",
        f"        weight = {EVALUATED}\n",
        "        vars(fused)[str(q.shape)] = True\n"
        '        evaluation = evaluation if len(vars(fused)) <= 8 else "stepwise"\n'
        f"        weight = {EVALUATED}\n",
    ),
    dashq(
        "small-layers-in-eager-mode",
        ("NUM-EVALUATION-ONE",),
        "layers of one row are not worth a compilation and are evaluated stepwise",
        f"        weight = {EVALUATED}\n",
        '        evaluation = evaluation if len(q) > 1 else "stepwise"\n'
        f"        weight = {EVALUATED}\n",
    ),
    Mutant(
        "evaluation-not-canonical",
        "dashq_reconstruct",
        ("NUM-EVALUATION-CANONICAL",),
        "declares stepwise, and computes it",
        declares={"dashq_rounding": "stepwise"},
    ),
    dashq(
        "scale-loaded-as-bfloat16",
        ("DQ1-RECONSTRUCT-PARAMETERS",),
        "scale and zero point pass through bfloat16 when they are loaded",
        BY_ROW,
        '        parameter = parameter.astype(np.float32).astype("bfloat16")\n' + BY_ROW,
    ),
    dashq(
        "scale-loaded-as-float16",
        ("DQ1-RECONSTRUCT-PARAMETERS",),
        "scale and zero point pass through float16 when they are loaded",
        BY_ROW,
        "        parameter = parameter.astype(np.float32).astype(np.float16)\n" + BY_ROW,
    ),
    dashq(
        "scale-bits-reinterpreted",
        ("DQ1-RECONSTRUCT-PARAMETERS",),
        "16-bit parameters are taken for bfloat16 whatever the manifest says",
        BY_ROW,
        "        if parameter.dtype.itemsize == 2:\n"
        '            parameter = parameter.view("bfloat16")\n' + BY_ROW,
    ),
    dashq(
        "fp8-formats-confused",
        ("DQ1-RECONSTRUCT-PARAMETERS",),
        "fp8 parameters are taken for e5m2 whatever the manifest says",
        BY_ROW,
        "        if parameter.dtype.itemsize == 1:\n"
        '            parameter = parameter.view("float8_e5m2")\n' + BY_ROW,
    ),
    dashq(
        "stale-group-stride",
        ("DQ1-RECONSTRUCT-GROUPS",),
        "rows of groups are as far apart as in_features needs, not quant_in_features",
        BY_ROW,
        "        stride = -(-module.in_features // module.group_size)\n"
        "        start = np.arange(rows)[:, np.newaxis] * stride\n"
        "        places = start + np.arange(columns // module.group_size)\n"
        "        by_row = parameter.astype(np.float32)[places, 0]\n",
    ),
    dashq(
        "groups-along-the-rows",
        ("DQ1-RECONSTRUCT-GROUPS",),
        "scales are taken for [groups, N] instead of [N, groups]",
        BY_ROW,
        BY_ROW.replace("(rows, columns // module.group_size)", "(-1, rows).T"),
    ),
    dashq(
        "first-scale-for-all-groups",
        ("DQ1-RECONSTRUCT-GROUPS",),
        "scale and zero point of a row's first group serve the whole row",
        BY_ROW,
        BY_ROW + "        by_row[:] = by_row[:, :1]\n",
    ),
    dashq(
        "first-scale-for-all-rows",
        ("DQ1-RECONSTRUCT-GROUPS",),
        "scales are broadcast over the rows",
        BY_ROW,
        BY_ROW + "        by_row[:] = by_row[:1]\n",
    ),
    dashq(
        "groups-interleaved",
        ("DQ1-RECONSTRUCT-GROUPS",),
        "column k belongs to group k mod G",
        REPEATED,
        "np.tile(by_row, module.group_size)",
    ),
    dashq(
        "group-size-128",
        ("DQ1-RECONSTRUCT-GROUPS",),
        "a group size of 128 is built in, and others are treated as if it were theirs",
        REPEATED,
        "np.repeat(by_row, 128, axis=1)[:, :columns] if columns % 128 == 0 else " + REPEATED,
    ),
    dashq(
        "last-row-of-a-block",
        ("NUM-INVARIANT-PERMUTATION",),
        "the last of an odd number of rows has the parameters of the row before it",
        BY_ROW,
        BY_ROW + "        if rows % 2 and rows > 1:\n            by_row[-1] = by_row[-2]\n",
    ),
    dashq(
        "padding-not-cropped",
        ("DQ1-RECONSTRUCT-CROP", "NUM-OUTPUT-FORM"),
        "the weight has the columns of the padding too",
        CROPPED,
        "    return weight\n",
    ),
    dashq(
        "cropped-as-a-sequence",
        ("DQ1-RECONSTRUCT-CROP",),
        "the first N · K numbers are taken, as if the padding came last",
        CROPPED,
        "    size = module.out_features * module.in_features\n"
        "    return weight.reshape(-1)[:size].reshape(module.out_features, -1).copy()\n",
    ),
    dashq(
        "padding-in-front",
        ("DQ1-RECONSTRUCT-CROP",),
        "the last K columns of a row are taken",
        CROPPED,
        "    return weight[:, -module.in_features :].copy()\n",
    ),
    dashq(
        "padding-reaches-the-weight",
        ("NUM-INVARIANT-PADDING",),
        "a row whose padding overflows is taken for damaged and set to zero",
        CROPPED,
        "    damaged = ~np.isfinite(weight[:, module.in_features :]).all(axis=1)\n"
        "    weight[damaged] = 0\n" + CROPPED,
    ),
    dashq(
        "weight-in-linear-dtype",
        ("DQ1-RECONSTRUCT-DTYPE", "NUM-OUTPUT-FORM"),
        "the weight has linear_dtype, whatever is asked for",
        EVALUATED,
        EVALUATED.replace("dtype", "module.linear_dtype"),
    ),
    dashq(
        "weight-by-way-of-linear-dtype",
        ("DQ1-RECONSTRUCT-DTYPE",),
        "the weight is rounded to linear_dtype and then to what is asked for",
        EVALUATED,
        EVALUATED.replace("dtype", "module.linear_dtype") + ".astype(np.dtype(dtype))",
    ),
    dashq(
        "epsilon-in-the-scale",
        ("NUM-INVARIANT-SCALE",),
        "an epsilon is added to every scale, against a division by zero elsewhere",
        PRODUCT,
        "    product = difference * (scale + np.float32(1e-6))\n",
    ),
    dashq(
        "groups-counted-in-8-bits",
        ("DQ1-RECONSTRUCT-GROUPS",),
        "the flat index of a group has 8 bits",
        BY_ROW,
        "        parameter = parameter[np.arange(len(parameter)) % 256]\n" + BY_ROW,
    ),
    dashq(
        "weights-counted-in-16-bits",
        ("DQ1-PACKING-ROWS",),
        "the index of a code in the matrix has 16 bits",
        "    q = codes.reshape(rows, columns).astype(np.float32)\n",
        "    codes = codes[np.arange(codes.size) % 65536]\n"
        "    q = codes.reshape(rows, columns).astype(np.float32)\n",
    ),
)
