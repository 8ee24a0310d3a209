"""Faults of attention over the nested cache: masks, heads, offsets, planes, softmax, precision."""

from tests.teeth.mutant import Mutant

SCORES = "    scores: Float64 = softmax_scale * np.sum(keys * query, axis=1)\n"
WEIGHTS = "    return scores, np.exp(scores - scores.max())\n"
MEAN = """\
    total: Float64 = np.sum(weights[:, np.newaxis] * values, axis=0)
    return total / np.sum(weights)
"""
COUNT = "    count = given.position + m + 1\n"
SHARED = "    shared = head // (given.queries.shape[1] // given.keys.shape[1])\n"
VISIBLE = "    return given.keys[batch, shared, :count], given.values[batch, shared, :count], offset\n"
CALL = """\
        _, weights = scores_and_weights(given.queries[batch, head, m], keys, given.softmax_scale)
        result[batch, head, m] = weighted_mean(weights, values)
"""
OFFSET = "            result[batch, head, m] += offset\n"
ROUNDED = "    return round_float64(result, dtype)\n"
KEYS = '    keys = exact_values(k_hi, k_lo, k_scale, plane, "k_")\n'
VALUES = '    values = exact_values(v_hi, v_lo, v_scale, plane, "v_")\n'
EXACT = "    return codes * step[..., np.newaxis]\n"
SCALE = "        softmax_scale=checked_softmax_scale(softmax_scale),\n"


def attend(name: str, requirement: str, fault: str, old: str, new: str) -> Mutant:
    """Change attention.py."""
    return Mutant(name, "kv_attention", (requirement,), fault, "attention.py", old, new)


MUTANTS = (
    attend(
        "one-key-too-many",
        "BN1-ATTENTION-CAUSAL",
        "query m sees the key at position + m + 1",
        COUNT,
        "    count = given.position + m + 2\n",
    ),
    attend(
        "one-key-too-few",
        "BN1-ATTENTION-CAUSAL",
        "query m does not see the key at position + m, its own",
        COUNT,
        "    count = max(1, given.position + m)\n",
    ),
    attend(
        "position-ignored",
        "BN1-ATTENTION-CAUSAL",
        "query m sees the keys 0 … m",
        COUNT,
        "    count = m + 1\n",
    ),
    attend(
        "verification-not-causal",
        "BN1-ATTENTION-CAUSAL",
        "all queries of a call see what the last one sees",
        COUNT,
        "    count = given.position + given.queries.shape[2]\n",
    ),
    attend(
        "whole-cache-seen",
        "BN1-ATTENTION-CAUSAL",
        "queries see the whole cache",
        COUNT,
        "    count = given.keys.shape[2]\n",
    ),
    attend(
        "sliding-window",
        "BN1-ATTENTION-CAUSAL",
        "queries see the last 32 keys only",
        VISIBLE,
        "    start = max(0, count - 32)\n"
        + VISIBLE.replace(":count", "start:count"),
    ),
    attend(
        "maximum-of-keys-not-seen",
        "BN1-ATTENTION-CAUSAL",
        "the largest score is sought in the whole cache: where it is far off, all weights vanish",
        CALL,
        """\
        shared = head // (given.queries.shape[1] // given.keys.shape[1])
        _, weights = scores_and_weights(
            given.queries[batch, head, m], given.keys[batch, shared], given.softmax_scale
        )
        with np.errstate(invalid="ignore"):
            result[batch, head, m] = weighted_mean(weights[: len(keys)], values)
""",
    ),
    attend(
        "mask-of-minus-ten-thousand",
        "BN1-ATTENTION-CAUSAL",
        "keys behind the position get -10000 added to their scores, which a large key makes up for",
        CALL,
        """\
        shared = head // (given.queries.shape[1] // given.keys.shape[1])
        scores = given.softmax_scale * given.keys[batch, shared] @ given.queries[batch, head, m]
        scores[len(keys) :] -= 10000
        weights = np.exp(scores - scores.max())
        result[batch, head, m] = weighted_mean(weights, given.values[batch, shared])
""",
    ),
    attend(
        "zero-times-what-lies-behind",
        "BN1-ATTENTION-CAUSAL",
        "the values behind the position are added in bfloat16 with a weight of 1e-9, not of 0",
        CALL,
        CALL
        + """\
        shared = head // (given.queries.shape[1] // given.keys.shape[1])
        behind = given.values[batch, shared, len(keys) :]
        result[batch, head, m] += 1e-9 * behind.sum(axis=0)
""",
    ),
    attend(
        "last-block-of-keys-left-out",
        "NUM-ATTENTION-BOUND",
        "keys behind the last full block of 16 are left out",
        VISIBLE,
        "    count = max(16, count // 16 * 16) if count > 16 else count\n" + VISIBLE,
    ),
    attend(
        "tail-of-one-key-left-out",
        "NUM-ATTENTION-BOUND",
        "a single key behind the last full block of 64 is left out",
        VISIBLE,
        "    count = count - 1 if count % 64 == 1 and count > 1 else count\n" + VISIBLE,
    ),
    attend(
        "batch-ignored",
        "NUM-ATTENTION-BOUND",
        "all sequences read the first one's cache",
        VISIBLE,
        VISIBLE.replace("[batch,", "[0,"),
    ),
    attend(
        "keys-and-values-exchanged",
        "NUM-ATTENTION-BOUND",
        "scores are formed with the values, and the keys are averaged",
        VISIBLE,
        "    keys, values = given.values, given.keys\n"
        "    return keys[batch, shared, :count], values[batch, shared, :count], offset\n",
    ),
    attend(
        "scales-of-keys-for-values",
        "NUM-ATTENTION-BOUND",
        "values are read with the scales of the keys",
        VALUES,
        VALUES.replace("v_scale", "k_scale"),
    ),
    attend(
        "scores-not-scaled",
        "NUM-ATTENTION-BOUND",
        "softmax_scale is left out",
        SCORES,
        "    scores: Float64 = np.sum(keys * query, axis=1)\n",
    ),
    attend(
        "softmax-scale-of-the-head",
        "NUM-ATTENTION-BOUND",
        "scores are scaled by 1/√D, whatever softmax_scale is",
        SCALE,
        "        softmax_scale=float(np.float32(head_dim**-0.5)),\n",
    ),
    attend(
        "softmax-scale-in-bfloat16",
        "NUM-ATTENTION-BOUND",
        "softmax_scale is rounded to bfloat16",
        SCALE,
        SCALE.replace("(softmax_scale)", '(float(np.float32(softmax_scale).astype("bfloat16")))'),
    ),
    attend(
        "lanes-of-the-score",
        "NUM-ATTENTION-BOUND",
        "of a head_dim like 96 the lanes behind the power of two take no part in the scores",
        SCORES,
        "    lanes = 1 << (len(query).bit_length() - 1)\n"
        "    scores: Float64 = softmax_scale * (keys[:, :lanes] @ query[:lanes])\n",
    ),
    attend(
        "no-maximum-subtracted",
        "NUM-ATTENTION-BOUND",
        "exponentials of the scores themselves, in float32, which overflow above 88",
        WEIGHTS,
        '    with np.errstate(over="ignore"):\n'
        "        return scores, np.exp(scores.astype(np.float32)).astype(np.float64)\n",
    ),
    attend(
        "first-score-subtracted",
        "NUM-ATTENTION-BOUND",
        "the first key's score takes the place of the largest one, in float32",
        WEIGHTS,
        '    with np.errstate(over="ignore"):\n'
        "        shifted = (scores - scores[0]).astype(np.float32)\n"
        "        return scores, np.exp(shifted).astype(np.float64)\n",
    ),
    attend(
        "maximum-not-rescaled",
        "NUM-ATTENTION-BOUND",
        "two blocks have a maximum each, and their sums are added without rescaling",
        WEIGHTS,
        "    half = len(scores) // 2\n"
        "    weights = np.exp(scores - scores.max())\n"
        "    if half:\n"
        "        weights[:half] = np.exp(scores[:half] - scores[:half].max())\n"
        "        weights[half:] = np.exp(scores[half:] - scores[half:].max())\n"
        "    return scores, weights\n",
    ),
    attend(
        "splits-averaged",
        "NUM-ATTENTION-BOUND",
        "two halves of the cache are treated apart, and their results averaged",
        MEAN,
        "    half = len(weights) // 2 if len(weights) >= 16 else 0\n"
        "    parts = [\n"
        "        weights[part] @ values[part] / weights[part].sum()\n"
        "        for part in (slice(half), slice(half, None))\n"
        "        if len(weights[part])\n"
        "    ]\n"
        "    mean: Float64 = np.mean(parts, axis=0)\n"
        "    return mean\n",
    ),
    attend(
        "softmax-off-by-one",
        "NUM-ATTENTION-BOUND",
        "1 is added to the sum of the weights, as for an attention sink",
        "    return total / np.sum(weights)\n",
        "    return total / (1 + np.sum(weights))\n",
    ),
    attend(
        "heads-interleaved",
        "BN1-ATTENTION-HEADS",
        "query head h reads the head h mod Hkv",
        SHARED,
        "    shared = head % given.keys.shape[1]\n",
    ),
    attend(
        "first-head-for-all",
        "BN1-ATTENTION-HEADS",
        "all query heads read the first head",
        SHARED,
        "    shared = 0\n",
    ),
    attend(
        "values-of-another-head",
        "BN1-ATTENTION-HEADS",
        "keys are those of head h div r, values those of head h mod Hkv",
        VISIBLE,
        VISIBLE.replace("values[batch, shared,", "values[batch, head % given.keys.shape[1],"),
    ),
    attend(
        "offset-of-head-h-mod",
        "BN1-ATTENTION-OFFSET",
        "the offset is that of head h mod Hkv",
        "given.offset[shared]",
        "given.offset[head % len(given.offset)]",
    ),
    attend(
        "offset-left-out",
        "BN1-ATTENTION-OFFSET",
        "the values' offset does not come back",
        OFFSET,
        "            pass\n",
    ),
    attend(
        "value-offset-subtracted",
        "BN1-ATTENTION-OFFSET",
        "the values' offset is subtracted",
        OFFSET,
        OFFSET.replace("+=", "-="),
    ),
    attend(
        "offset-weighted-by-keys",
        "BN1-ATTENTION-OFFSET",
        "the offset is added for each key, to the sum before it is divided",
        OFFSET,
        "            result[batch, head, m] += offset * len(keys) / np.sum(weights)\n",
    ),
    attend(
        "offset-after-rounding",
        "BN1-ATTENTION-OFFSET",
        "the mean is rounded to the output dtype before the offset is added",
        OFFSET,
        "            mean = round_float64(result[batch, head, m], dtype)\n"
        "            result[batch, head, m] = mean.astype(np.float64) + offset\n",
    ),
    attend(
        "values-of-the-draft",
        "BN1-ATTENTION-PLANE",
        "keys are the target's, values the draft's",
        VALUES,
        VALUES.replace("plane", '"draft"'),
    ),
    attend(
        "keys-of-the-draft",
        "BN1-ATTENTION-PLANE",
        "values are the target's, keys the draft's",
        KEYS,
        KEYS.replace("plane", '"draft"'),
    ),
    attend(
        "low-planes-exchanged",
        "BN1-ATTENTION-PLANE",
        "the residuals of keys are those of the values",
        KEYS,
        KEYS.replace("k_lo", "v_lo"),
    ),
    attend(
        "target-scale-of-the-draft",
        "BN1-ATTENTION-PLANE",
        "the target's codes are multiplied by the draft's scale",
        '(1 if plane == "draft" else 16)',
        "1",
    ),
    attend(
        "exponential-in-bfloat16",
        "NUM-ATTENTION-EXP",
        "weights are rounded to bfloat16 before both sums",
        WEIGHTS,
        "    return scores, round_float64(np.exp(scores - scores.max()), "
        '"bfloat16").astype(np.float64)\n',
    ),
    attend(
        "exponential-in-float16",
        "NUM-ATTENTION-EXP",
        "exponentials are computed in float16",
        WEIGHTS,
        "    return scores, np.exp((scores - scores.max()).astype(np.float16)).astype(np.float64)\n",
    ),
    attend(
        "exponential-by-a-polynomial",
        "NUM-ATTENTION-EXP",
        "2^x by a polynomial of degree 3 between integers",
        WEIGHTS,
        """\
    power = (scores - scores.max()) * 1.4426950408889634
    rest = power - np.floor(power)
    cubic = 1 + rest * (0.695976 + rest * (0.224494 + rest * 0.07953))
    return scores, np.ldexp(cubic, np.floor(power).astype(np.int32))
""",
    ),
    attend(
        "exponential-of-a-rounded-logarithm",
        "NUM-ATTENTION-EXP",
        "2^(a·log₂e) with log₂e in 16 bits",
        WEIGHTS,
        "    return scores, np.exp2((scores - scores.max()) * 1.4423828125)\n",
    ),
    attend(
        "exponential-ends-at-minus-ten",
        "NUM-ATTENTION-EXP",
        "below -10 the exponential is taken for zero",
        WEIGHTS,
        "    weights = np.exp(scores - scores.max())\n"
        "    weights[scores < scores.max() - 10] = 0\n"
        "    return scores, weights\n",
    ),
    attend(
        "scores-in-float16",
        "BN1-ATTENTION-WIDEN",
        "scores are rounded to float16",
        SCORES,
        SCORES + "    scores = scores.astype(np.float16).astype(np.float64)\n",
    ),
    attend(
        "scores-in-bfloat16",
        "BN1-ATTENTION-WIDEN",
        "scores are rounded to bfloat16",
        SCORES,
        SCORES + '    scores = round_float64(scores, "bfloat16").astype(np.float64)\n',
    ),
    attend(
        "weights-in-bfloat16",
        "BN1-ATTENTION-WIDEN",
        "weights are rounded to bfloat16 for the product with the values, not for their sum",
        MEAN,
        '    narrow = round_float64(weights, "bfloat16").astype(np.float64)\n'
        + MEAN.replace("weights[:, np.newaxis]", "narrow[:, np.newaxis]"),
    ),
    attend(
        "cache-dequantized-to-bfloat16",
        "BN1-ATTENTION-WIDEN",
        "keys and values are rounded to bfloat16 when they are read",
        EXACT,
        '    values = round_float64(codes * step[..., np.newaxis], "bfloat16")\n'
        "    return values.astype(np.float64)\n",
    ),
    attend(
        "cache-dequantized-to-float16",
        "BN1-ATTENTION-WIDEN",
        "keys and values are rounded to float16 when they are read",
        EXACT,
        "    return (codes * step[..., np.newaxis]).astype(np.float16).astype(np.float64)\n",
    ),
    attend(
        "mean-in-bfloat16",
        "BN1-ATTENTION-WIDEN",
        "the mean of the values is rounded to bfloat16, whatever the output dtype",
        ROUNDED,
        '    return round_float64(round_float64(result, "bfloat16").astype(np.float64), dtype)\n',
    ),
    attend(
        "split-depends-on-queries",
        "NUM-INVARIANT-ROWS",
        "the cache is split in two for one query, not for several",
        CALL,
        """\
        _, weights = scores_and_weights(given.queries[batch, head, m], keys, given.softmax_scale)
        terms = (weights[:, np.newaxis] * values).astype(np.float32)
        half = len(keys) // 2 if given.queries.shape[2] == 1 else 0
        total = np.cumsum(terms[half:], axis=0)[-1] + terms[:half].sum(axis=0)
        result[batch, head, m] = total / weights.sum()
""",
    ),
    attend(
        "blocks-depend-on-length",
        "NUM-INVARIANT-ROWS",
        "keys are added in an order that depends on the last query's position",
        CALL,
        """\
        _, weights = scores_and_weights(given.queries[batch, head, m], keys, given.softmax_scale)
        terms = (weights[:, np.newaxis] * values).astype(np.float32)
        turn = -(given.position + given.queries.shape[2]) // 2 % len(keys)
        total = np.cumsum(np.roll(terms, turn, axis=0), axis=0)[-1]
        result[batch, head, m] = total / weights.sum()
""",
    ),
    attend(
        "keys-added-in-any-order",
        "NUM-INVARIANT-REPEAT",
        "weighted values are added in float32 as they arrive",
        CALL,
        """\
        _, weights = scores_and_weights(given.queries[batch, head, m], keys, given.softmax_scale)
        turn = vars(visible)["turn"] = 1 + vars(visible).get("turn", 0)
        order = np.random.default_rng(turn).permutation(len(keys))
        terms = (weights[:, np.newaxis] * values).astype(np.float32)
        result[batch, head, m] = np.cumsum(terms[order], axis=0)[-1] / weights.sum()
""",
    ),
    Mutant(
        "attention-draft-reads-the-low-plane",
        "kv_attention",
        ("NUM-INVARIANT-DRAFT",),
        "the draft adds the residual where a low plane is at hand",
        "planes.py",
        '    if plane == "draft":\n        return q4.astype(np.int16)\n',
        '    if plane == "draft":\n'
        "        rest = 0 if lo is None else unpack_nibbles(lo) // 8\n"
        "        return (q4 + rest).astype(np.int16)\n",
    ),
    attend(
        "keys-beyond-1024",
        "NUM-ATTENTION-BOUND",
        "keys beyond 1024, more than one split holds, are left out",
        VISIBLE,
        VISIBLE.replace(":count", ": min(count, 1024)"),
    ),
    attend(
        "offset-in-the-query-dtype",
        "BN1-ATTENTION-OFFSET",
        "the offset is cast to the dtype of the queries",
        "None if v_offset is None else v_offset.astype(np.float64)",
        "None if v_offset is None else v_offset.astype(q.dtype).astype(np.float64)",
    ),
    attend(
        "offset-in-float16",
        "BN1-ATTENTION-OFFSET",
        "the offset is cast to float16",
        "None if v_offset is None else v_offset.astype(np.float64)",
        "None if v_offset is None else v_offset.astype(np.float16).astype(np.float64)",
    ),
    attend(
        "offset-in-the-output-dtype",
        "BN1-ATTENTION-OFFSET",
        "the offset is cast to the output dtype",
        OFFSET,
        "            result[batch, head, m] += offset.astype(np.dtype(dtype)).astype(np.float64)\n",
    ),
    attend(
        "rounded-to-the-query-dtype",
        "BN1-ATTENTION-WIDEN",
        "the result passes through the dtype of the queries",
        ROUNDED,
        "    result = round_float64(result, q.dtype.name).astype(np.float64)\n" + ROUNDED,
    ),
    attend(
        "queries-in-bfloat16",
        "BN1-ATTENTION-WIDEN",
        "queries are rounded to bfloat16",
        "        queries=q.astype(np.float64),\n",
        '        queries=q.astype(np.float32).astype("bfloat16").astype(np.float64),\n',
    ),
)
