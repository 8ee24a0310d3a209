"""Faults of attention over the nested cache: which keys, heads, offsets and planes."""

from tests.teeth.mutant import Mutant

COUNT = "    count = given.position + m + 1\n"
SHARED = "    shared = head // (given.queries.shape[1] // given.keys.shape[1])\n"
VISIBLE = (
    "    return given.keys[batch, shared, :count], given.values[batch, shared, :count], offset\n"
)
CALL = """\
        _, weights = scores_and_weights(given.queries[batch, head, m], keys, given.softmax_scale)
        result[batch, head, m] = weighted_mean(weights, values)
"""
OFFSET = "            result[batch, head, m] += offset\n"
KEYS = '    keys = exact_values(k_hi, k_lo, k_scale, plane, "k_")\n'
VALUES = '    values = exact_values(v_hi, v_lo, v_scale, plane, "v_")\n'


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
        "    start = max(0, count - 32)\n" + VISIBLE.replace(":count", "start:count"),
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
)
