"""The operations of the bounded class: y over the real numbers and B, by the text."""

from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from math import isqrt, prod

from tests.independent_exact import (
    DTYPE,
    Inputs,
    Parameters,
    dashq_parts,
    dashq_weight,
    nested_codes,
    rows,
    values,
)
from tests.independent_numbers import narrowed, rounded, times, unit

Bounded = dict[str, list[tuple[Fraction, Fraction]]]
"""y and B of each element of the output, in row-major order."""

EPSILON, ETA = Fraction(1, 2**23), Fraction(1, 2**149)


def gamma(steps: int) -> Fraction:
    """Return γ(n) of Numerics, 4.1."""
    return steps * EPSILON / (1 - steps * EPSILON)


def bounded_sum(
    terms: Sequence[Sequence[Fraction]], bias: Fraction, steps: int, underflows: Fraction
) -> tuple[Fraction, Fraction]:
    """Return y and B of a sum of products (Numerics, 4.2 to 4.5); a term is its factors."""
    products = [prod(factors, start=Fraction(1)) for factors in terms]
    magnitude = sum(map(abs, products), Fraction(0)) + abs(bias)
    columns = list(zip(*terms, strict=True))
    units = [unit(column) for column in columns]
    smallest = min([prod(units, start=Fraction(1)), unit([bias])])
    pairs = [a * b for i, a in enumerate(units) for b in units[:i]] if len(units) > 2 else []
    # What makes the files the same on every machine: no sum in float64 rounds, in any order.
    assert magnitude <= 2**53 * min(unit(products), unit([bias])), "a float64 sum may round"
    if magnitude <= 2**24 * smallest and min([smallest, *pairs]) >= ETA:
        bound = Fraction(0)
    else:
        bound = gamma(steps) * magnitude + (1 + gamma(steps)) * ETA * underflows
    return sum(products, bias), bound


def underflowing(terms: Sequence[Sequence[Fraction]]) -> Fraction:
    """Return 1 + Σ (1 + the magnitudes of the three factors)."""
    return 1 + len(terms) + sum((abs(f) for term in terms for f in term), Fraction(0))


def dashq_linear(parameters: Parameters, given: Inputs) -> Bounded:
    """Return y and B for every way that the case is declared for; they have to agree."""
    module = parameters["module"]
    dtype = DTYPE[module["linear_dtype"]]
    parts = dashq_parts(parameters, given)
    x = rows([Fraction(a) for a in values(given["x"])], module["in_features"])
    bias = values(given["bias"]) if given["bias"] else [0.0] * len(parts)
    declared = parameters["evaluation"], parameters["weight_rounding"]
    evaluations = ["fused", "stepwise", "bf16-params"] if declared[0] == "any" else [declared[0]]
    roundings = ["rounded", "unrounded"] if declared[1] == "any" else [declared[1]]
    answers = []
    for evaluation in evaluations:
        for rounding in roundings:
            dense = rounding == "rounded" or evaluation == "stepwise"
            weight = [[weight_factors(part, evaluation, dense, dtype) for part in r] for r in parts]
            answers.append(
                [
                    product(x_row, row, Fraction(b))
                    for x_row in x
                    for row, b in zip(weight, bias, strict=True)
                ]
            )
    assert all(answer == answers[0] for answer in answers), "the ways differ"
    return {"y": answers[0]}


def product(
    x: list[Fraction], weight: list[tuple[Fraction, ...]], bias: Fraction
) -> tuple[Fraction, Fraction]:
    """Return y and B of one element: 4.2 where a weight is one number, 4.3 where it is two."""
    terms = [(a, *factors) for a, factors in zip(x, weight, strict=True)]
    columns = len(terms)
    if len(terms[0]) == 2:
        return bounded_sum(terms, bias, columns + 2, Fraction(1 + columns))
    return bounded_sum(terms, bias, columns + 4, underflowing(terms))


def weight_factors(
    part: tuple[int, float, float], evaluation: str, dense: bool, dtype: str
) -> tuple[Fraction, ...]:
    """Return the rounded weight, or its two factors q − zero and scale."""
    if dense:
        return (Fraction(dashq_weight(*part, evaluation, dtype)),)
    q, zero, scale = part
    if evaluation == "bf16-params":
        zero, scale = narrowed(zero, "BF16"), narrowed(scale, "BF16")
    return q - Fraction(zero), Fraction(scale)


def nested_linear(parameters: Parameters, given: Inputs) -> Bounded:
    """Return y and B (Numerics, 4.4; bitnest-package-v1, chapter 9)."""
    codes, divisor = nested_codes(given, parameters["plane"])
    assert given["hi"]
    assert given["scale"]
    assert given["sx"]
    columns = 2 * given["hi"].shape[1]
    groups, x_groups = given["scale"].shape[1], given["sx"].shape[1]
    weight, scale = rows(codes, columns), rows(values(given["scale"]), groups)
    xq, sx = rows(values(given["xq"]), columns), rows(values(given["sx"]), x_groups)
    bias = values(given["bias"]) if given["bias"] else [0.0] * len(weight)
    group, x_group = columns // groups, columns // x_groups
    borders = sorted({*range(0, columns, group), *range(0, columns, x_group), columns})
    answer = []
    for x_codes, x_scales in zip(xq, sx, strict=True):
        for w_codes, w_scales, b in zip(weight, scale, bias, strict=True):
            if parameters["mode"] == "prefill-f16":
                answer.append(prefill(x_codes, x_scales, w_codes, w_scales, divisor, b))
                continue
            terms = [
                (
                    Fraction(sum(x_codes[k] * w_codes[k] for k in range(start, stop))),
                    Fraction(x_scales[start // x_group]),
                    Fraction(w_scales[start // group]) / divisor,
                )
                for start, stop in pairwise(borders)
            ]
            steps = len(terms) + 4
            answer.append(bounded_sum(terms, Fraction(b), steps, underflowing(terms)))
    return {"y": answer}


def prefill(
    x_codes: list[int],
    x_scales: list[float],
    w_codes: list[int],
    w_scales: list[float],
    divisor: int,
    bias: float,
) -> tuple[Fraction, Fraction]:
    """Return y and B of one element in the mode prefill-f16."""
    terms, columns = [], len(x_codes)
    for k in range(columns):
        x = times(x_codes[k], x_scales[k * len(x_scales) // columns], "F32")
        w = Fraction(w_codes[k]) * Fraction(w_scales[k * len(w_scales) // columns]) / divisor
        terms.append((Fraction(narrowed(x, "F16")), Fraction(rounded(w, "F16"))))
    return bounded_sum(terms, Fraction(bias), columns + 2, Fraction(1 + columns))


def hadamard(_: Parameters, given: Inputs) -> Bounded:
    """Return y and B (Numerics, chapter 5; bitnest-package-v1, chapter 10); B is 0 if exact."""
    x, had_k = given["x"], given["had_k"]
    assert x is not None
    n, order = x.shape[-1], had_k.shape[0] if had_k else 1
    m = n // order
    matrix = [[Fraction(h) for h in row] for row in rows(had_k.values if had_k else [1.0], order)]
    largest = max(abs(h) for row in matrix for h in row)
    # 1/√n, off by less than 2^-300: the ends of no interval are that close to a tie.
    root = Fraction(isqrt((1 << 600) // n), 1 << 300)
    digits = -(-(m.bit_length() - 1) // 4)
    steps = min(m - 1, 15 * digits) + (order if had_k else 0) + 4
    answer = []
    for vector in rows(x.values, n):
        blocks = [sylvester(block) for block in rows([Fraction(a) for a in vector], m)]
        sizes = [sum((abs(Fraction(a)) for a in block), Fraction(0)) for block in rows(vector, m)]
        whole = unit(map(Fraction, vector)) * unit(h for row in matrix for h in row)
        exact_sums = sum(sizes) * largest <= 2**24 * whole
        for row in matrix:
            size = sum((abs(h) * s for h, s in zip(row, sizes, strict=True)), Fraction(0))
            assert size <= 2**53 * whole, "a float64 sum may round"
            bound = gamma(steps) * size * root + 4 * n * (1 + largest) * ETA
            if exact_sums and isqrt(n) ** 2 == n and {abs(h) for h in row} == {1}:
                bound = Fraction(0)
            for j in range(m):
                y = sum((h * b[j] for h, b in zip(row, blocks, strict=True)), Fraction(0))
                answer.append((y * root, bound))
    return {"y": answer}


def sylvester(block: list[Fraction]) -> list[Fraction]:
    """Return the unscaled transform, from that of its halves."""
    if len(block) == 1:
        return block
    half = len(block) // 2
    low, high = sylvester(block[:half]), sylvester(block[half:])
    pairs = list(zip(low, high, strict=True))
    return [a + b for a, b in pairs] + [a - b for a, b in pairs]


def kv_attention(parameters: Parameters, given: Inputs) -> Bounded:
    """Return y and B (Numerics, chapter 6; bitnest-package-v1, chapter 12)."""
    q, k_scale = given["q"], given["k_scale"]
    assert q is not None
    assert k_scale is not None
    batches, heads, queries, width = q.shape
    _, shared, length = k_scale.shape
    keys = cache_values(given, "k_", parameters["plane"], width)
    held = cache_values(given, "v_", parameters["plane"], width)
    offsets = rows(given["v_offset"].values, width) if given["v_offset"] else None
    t = Decimal(rounded(Fraction(parameters["softmax_scale"]), "F32"))
    largest = max(map(Decimal, k_scale.values))
    answer = []
    with localcontext(prec=60):
        for i, vector in enumerate(rows([Decimal(a) for a in q.values], width)):
            batch, head, m = i // (heads * queries), i // queries % heads, i % queries
            read = head // (heads // shared)
            start = (batch * shared + read) * length
            seen = slice(start, start + parameters["position"] + m + 1)
            offset = [Decimal(o) for o in offsets[read]] if offsets else None
            answer += query(vector, keys[seen], held[seen], offset, t, largest)
    assert len(answer) == batches * heads * queries * width
    return {"y": answer}


def cache_values(given: Inputs, prefix: str, plane: str, width: int) -> list[list[Decimal]]:
    """Return the vectors of a cache: codes times scales, exact."""
    codes, divisor = nested_codes(given, plane, prefix)
    scale = [Decimal(s) / divisor for s in values(given[f"{prefix}scale"])]
    return [[c * s for c in row] for row, s in zip(rows(codes, width), scale, strict=True)]


def query(
    vector: list[Decimal],
    keys: list[list[Decimal]],
    held: list[list[Decimal]],
    offset: list[Decimal] | None,
    t: Decimal,
    largest: Decimal,
) -> list[tuple[Fraction, Fraction]]:
    """Return y + o and B of one query; letters are those of Numerics, 6.2."""
    e, length, width = Decimal(2) ** -23, len(keys), len(vector)

    def g(steps: int) -> Decimal:
        return steps * e / (1 - steps * e)

    products = [[a * b for a, b in zip(vector, key, strict=True)] for key in keys]
    score = [t * sum(row) for row in products]
    small = 4 * (width + 2) * (1 + t) * (1 + largest) * Decimal(2) ** -149
    delta = [g(width + 8) * t * sum(map(abs, row)) + small for row in products]
    high = [s + d for s, d in zip(score, delta, strict=True)]
    low = [s - d for s, d in zip(score, delta, strict=True)]
    rank = [sum(h >= own for h in high) - 1 for own in low]
    spread = 4 * e * (max(map(abs, score)) + 3 * Decimal(length).ln() + 1)
    theta = [
        (Decimal("1.001") * (d + 3 * e * (max(high) - own) + 4 * e * (r + 1) + spread)).exp() - 1
        for d, own, r in zip(delta, low, rank, strict=True)
    ]
    nu = [g(length + r + 8) for r in rank]
    weight = [(s - max(score)).exp() for s in score]
    share = [w / sum(weight) for w in weight]
    parts = list(zip(share, theta, nu, strict=True))
    rest = 1 - sum((p * (th + n + th * n) for p, th, n in parts), Decimal(0))
    assert rest > 0
    peak = max(abs(v) for row in held for v in row)
    tiny = 4 * length * (length + 8) * (1 + peak) * Decimal(2) ** -126
    answer = []
    for d in range(width):
        column = [row[d] for row in held]
        y = sum((p * v for p, v in zip(share, column, strict=True)), Decimal(0))
        errors = [
            p * (th * abs(v - y) + (1 + th) * n * (abs(v) + abs(y)))
            for (p, th, n), v in zip(parts, column, strict=True)
        ]
        error = sum(errors, Decimal(0))
        bound = (1 + 5 * e) * error / rest + 4 * e * abs(y) + tiny
        if offset is not None:
            y += offset[d]
            bound += e * abs(y)
        answer.append((Fraction(y), Fraction((1 + Decimal(2) ** -20) * bound)))
    return answer
