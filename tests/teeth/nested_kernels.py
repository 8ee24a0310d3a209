"""Faults of the nested layer's kernels: tails, tuned ranges, order, the mode prefill-f16."""

from tests.teeth.mutant import Mutant

LOOP = "    for start, stop in segments(xq.shape[1], scales.shape[1], sx.shape[1]):\n"
DOT = "        dot = segment_product(xq, codes, start, stop)\n"
ADD = "        total += dot * (sx_segment[:, np.newaxis] * sw_segment[np.newaxis, :])\n"
ROUNDED = "    return round_float64(total, dtype)\n"
PRODUCT = (
    "    return xq[:, start:stop].astype(np.int64) @ codes[:, start:stop].T.astype(np.int64)\n"
)
START = "    total = np.zeros((xq.shape[0], codes.shape[0]), np.float64)\n"
LAST_COLUMN = "xq * (np.arange(xq.shape[1]) + 1 < xq.shape[1]).astype(np.int8)"


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
        "packed-width-bounds-the-columns",
        ("NUM-LINEAR-NESTED",),
        "the width of the packed row, K/2, bounds the activation's columns",
        DOT,
        "        if start >= hi.shape[1]:\n            break\n" + DOT,
    ),
    linear(
        "last-segment-left-out",
        ("NUM-LINEAR-NESTED",),
        "of an odd number of segments, at least three, the last is left out",
        LOOP,
        LOOP.replace(
            "in segments(xq.shape[1], scales.shape[1], sx.shape[1])",
            "in (found := segments(xq.shape[1], scales.shape[1], sx.shape[1]))"
            "[: max(2, len(found) // 2 * 2)]",
        ),
    ),
    linear(
        "linear-tail-of-columns",
        ("NUM-LINEAR-NESTED",),
        "the columns of a segment behind its last full block of 16 are left out",
        PRODUCT,
        "    stop = start + max(16, (stop - start) // 16 * 16)\n" + PRODUCT,
    ),
    linear(
        "linear-half-of-the-outputs-never-written",
        ("NUM-LINEAR-NESTED",),
        "the second half of the outputs is never written and keeps what was in memory",
        ROUNDED,
        "    result = np.empty(total.shape, dtype)\n"
        "    half = -(-total.shape[1] // 2)\n"
        "    result[:, :half] = round_float64(total[:, :half], dtype)\n"
        "    return result\n",
    ),
    linear(
        "linear-tail-of-seven-outputs",
        ("NUM-LINEAR-NESTED",),
        "with a tail of 7 outputs behind the last block of 8, the last one is wrong",
        ROUNDED,
        "    if total.shape[1] % 8 == 7:\n        total[:, -1] = total[:, -2]\n" + ROUNDED,
    ),
    *(
        linear(
            f"linear-rows-{first}-to-{last}",
            ("NUM-LINEAR-NESTED",),
            f"the kernel that is tuned for M = {first} … {last} leaves out the last column",
            START,
            f"    if {first} <= len(xq) <= {last}:\n        xq = {LAST_COLUMN}\n" + START,
        )
        for first, last in ((1, 1), (3, 4), (4, 4), (8, 8), (9, 16), (33, 64))
    ),
    linear(
        "linear-rows-beyond-64",
        ("NUM-LINEAR-NESTED",),
        "rows beyond 64 repeat the last one of the first block",
        ROUNDED,
        "    total[64:] = total[63:64]\n" + ROUNDED,
    ),
    linear(
        "linear-order-depends-on-rows",
        ("NUM-INVARIANT-ROWS",),
        "one row is summed in another order than several: GEMV and GEMM differ",
        START,
        "    if len(xq) > 1:\n"
        "        total = np.zeros((xq.shape[0], codes.shape[0]), np.float32)\n"
        "        for start, stop in segments(xq.shape[1], scales.shape[1], sx.shape[1])[::-1]:\n"
        "            dot = segment_product(xq, codes, start, stop)\n"
        "            a, w = segment_scales(sx, scales, start, xq.shape[1])\n"
        "            total += dot * (a[:, np.newaxis] * w[np.newaxis, :])\n"
        "        return round_float32(total if bias is None else total + bias, dtype)\n" + START,
    ),
    linear(
        "linear-split-depends-on-rows",
        ("NUM-INVARIANT-ROWS",),
        "K is split in two for up to four rows, to fill the device",
        ADD,
        ADD + "        if len(xq) <= 4 and start == 0:\n"
        "            total = total.astype(np.float32).astype(np.float64)\n",
    ),
    linear(
        "verification-differs-from-decoding",
        ("NUM-INVARIANT-ROWS",),
        "four rows, a verification of three drafts, have their own kernel and rounding",
        ROUNDED,
        "    if len(xq) == 4:\n"
        "        total = total.astype(np.float32).astype(np.float64)\n"
        "        total[1:] = np.nextafter(total[1:].astype(np.float32), np.float32(np.inf))\n"
        + ROUNDED,
    ),
    linear(
        "sums-arrive-in-any-order",
        ("NUM-INVARIANT-REPEAT",),
        "partial sums are added in float32 as they arrive",
        START,
        '    turn = vars(segments)["turn"] = 1 + vars(segments).get("turn", 0)\n'
        "    order = segments(xq.shape[1], scales.shape[1], sx.shape[1])\n"
        "    np.random.default_rng(turn).shuffle(order)\n"
        "    sums = np.zeros((xq.shape[0], codes.shape[0]), np.float32)\n"
        "    for start, stop in order:\n"
        "        a, w = segment_scales(sx, scales, start, xq.shape[1])\n"
        "        sums += segment_product(xq, codes, start, stop) * np.outer(a, w)\n"
        "    return round_float32(sums if bias is None else sums + bias, dtype)\n" + START,
    ),
    prefill(
        "prefill-begins-a-row-late",
        "prefill-f16 begins after the declared number of rows",
        "backend.py",
        "len(xq) >= first",
        "len(xq) > first",
    ),
    prefill(
        "prefill-keeps-activations-in-float32",
        "prefill-f16 rounds the weights to float16, the activations not",
        "nested.py",
        '    return round_float32(x, "float16"), weight\n',
        "    return x, weight\n",
    ),
    prefill(
        "prefill-in-bfloat16",
        "prefill-f16 works on bfloat16 operands",
        "nested.py",
        '    return round_float32(x, "float16"), weight\n',
        '    return round_float32(x, "bfloat16"), weight.astype("bfloat16")\n',
    ),
    prefill(
        "prefill-accumulates-in-float16",
        "prefill-f16 keeps its sum in float16",
        "product.py",
        "            total += x_column[:, np.newaxis] * weight_column[np.newaxis, :]\n",
        "            total += x_column[:, np.newaxis] * weight_column[np.newaxis, :]\n"
        "            total = total.astype(np.float16).astype(np.float64)\n",
    ),
    Mutant(
        "prefill-begins-a-row-early",
        "nested_linear",
        ("NUM-LINEAR-NESTED",),
        "prefill-f16 begins a row before the declared number",
        "backend.py",
        "len(xq) >= first",
        "len(xq) >= first - 1",
        {"prefill_f16_from": 17},
    ),
    linear(
        "linear-columns-beyond-4096",
        ("NUM-LINEAR-NESTED",),
        "columns beyond 4096, more than one block sums, are left out",
        DOT,
        "        if start >= 4096:\n            break\n" + DOT,
    ),
    linear(
        "linear-outputs-beyond-4096",
        ("NUM-LINEAR-NESTED",),
        "outputs beyond 4096 are those of the first block",
        ROUNDED,
        "    total[:, 4096:] = total[:, : max(0, total.shape[1] - 4096)]\n" + ROUNDED,
    ),
    linear(
        "linear-rows-beyond-1024",
        ("NUM-LINEAR-NESTED",),
        "rows beyond 1024 are those of the first block",
        ROUNDED,
        "    total[1024:] = total[: max(0, len(total) - 1024)]\n" + ROUNDED,
    ),
)
