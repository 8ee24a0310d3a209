"""Faults of attention over the nested cache: scores, exponentials, precision, order."""

from tests.teeth.mutant import Mutant

SCORES = "    scores: Float64 = softmax_scale * np.sum(keys * query, axis=1)\n"
WEIGHTS = "    return scores, np.exp(scores - scores.max())\n"
MEAN = """\
    total: Float64 = np.sum(weights[:, np.newaxis] * values, axis=0)
    return total / np.sum(weights)
"""
CALL = """\
        _, weights = scores_and_weights(given.queries[batch, head, m], keys, given.softmax_scale)
        result[batch, head, m] = weighted_mean(weights, values)
"""
ROUNDED = "    return round_float64(result, dtype)\n"
EXACT = "    return codes * step[..., np.newaxis]\n"
SCALE = "        softmax_scale=checked_softmax_scale(softmax_scale),\n"


def attend(name: str, requirement: str, fault: str, old: str, new: str) -> Mutant:
    """Change attention.py."""
    return Mutant(name, "kv_attention", (requirement,), fault, "attention.py", old, new)


MUTANTS = (
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
        "    narrow = (scores - scores.max()).astype(np.float16)\n"
        "    return scores, np.exp(narrow).astype(np.float64)\n",
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
        "split-depends-on-room",
        "NUM-INVARIANT-ROWS",
        "keys are added in two parts where the cache has room for 256 positions",
        CALL,
        """\
        _, weights = scores_and_weights(given.queries[batch, head, m], keys, given.softmax_scale)
        terms = (weights[:, np.newaxis] * values).astype(np.float32)
        half = len(keys) // 2 if given.keys.shape[2] >= 256 else 0
        total = np.cumsum(terms[half:], axis=0)[-1] + terms[:half].sum(axis=0)
        result[batch, head, m] = total / weights.sum()
""",
    ),
    attend(
        "order-depends-on-batch",
        "NUM-INVARIANT-ROWS",
        "keys are added in reverse where the batch has several sequences",
        CALL,
        """\
        _, weights = scores_and_weights(given.queries[batch, head, m], keys, given.softmax_scale)
        terms = (weights[:, np.newaxis] * values).astype(np.float32)
        back = slice(None, None, -1 if len(given.queries) > 1 else 1)
        result[batch, head, m] = np.cumsum(terms[back], axis=0)[-1] / weights.sum()
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
