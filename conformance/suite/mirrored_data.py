"""Layers whose exact sums are zero, so that the result is nothing but rounding.

The second half of the columns undoes the first, in reverse: another order of summation, or another
block, leaves another remainder. In results of 16 bits it would else be rounded away.
"""

from dataclasses import replace

import numpy as np
from nibblespec.conformance.suite.attention_domains import Attention
from nibblespec.conformance.suite.dashq_data import make_module, make_tame_weight, pack
from nibblespec.conformance.suite.dashq_domains import DashqLayer, make_layer
from nibblespec.conformance.suite.nested_data import make_tame_nested, to_plane, with_codes
from nibblespec.conformance.suite.nested_domains import NestedLayer, make_nested_layer
from nibblespec.spec.operations import FloatDtype, Plane


def make_mirrored_nested(
    rows: int, outputs: int, groups: int, group: int, plane: Plane, dtype: FloatDtype, seed: int
) -> NestedLayer:
    """Make a nested layer of 2 * groups groups; per token, the second half undoes the first."""
    half = make_tame_nested(outputs, groups, group, seed)
    q4, qr = np.maximum(half.q4, -7), np.maximum(half.qr, -7)
    weight = with_codes(
        np.concatenate([q4, -q4[:, ::-1]], axis=1),
        np.concatenate([qr, -qr[:, ::-1]], axis=1),
        np.concatenate([half.scale, half.scale[:, ::-1]], axis=1),
        group,
        seed,
    )
    columns = weight.columns
    layer = make_nested_layer(weight, rows, columns, "random", "none", plane, dtype, seed)
    first = layer.xq[:, : columns // 2]
    return replace(layer, xq=np.concatenate([first, first[:, ::-1]], axis=1))


def make_mirrored_dashq(
    nbits: int,
    rows: int,
    outputs: int,
    groups: int,
    size: int,
    scale_dtype: str,
    dtype: FloatDtype,
    seed: int,
) -> DashqLayer:
    """Make a packed layer of 2 * groups groups a row, whose input undoes itself."""
    module = make_module(nbits, outputs, 2 * groups, size, 0, scale_dtype, dtype)
    weight = make_tame_weight(module, dtype, seed)
    half = weight.codes[:, : groups * size]
    codes = np.concatenate([half, half[:, ::-1]], axis=1)
    scale, zero = (
        np.concatenate([part[:, :groups], part[:, :groups][:, ::-1]], axis=1).reshape(-1, 1)
        for part in (weight.scale.reshape(outputs, -1), weight.zero.reshape(outputs, -1))
    )
    mirrored = replace(
        weight, codes=codes, words=pack(codes.reshape(-1), nbits), scale=scale, zero=zero
    )
    layer = make_layer(mirrored, rows, "ordinary", "none", seed)
    first = layer.x[:, : groups * size]
    return replace(layer, x=np.concatenate([first, -first[:, ::-1]], axis=1))


def mirror_values(case: Attention) -> Attention:
    """Make all keys weigh the same, and the values that the last query sees add up to zero."""
    seen = (case.position + case.queries) // 2 * 2
    values = case.values
    hi, lo, scale = values.hi.copy(), values.lo.copy(), values.scale.copy()
    for plane in (hi, lo):
        codes = np.stack([plane & 15, plane >> 4], axis=-1).astype(np.int8) - np.int8(8)
        codes = np.maximum(codes.reshape(*plane.shape[:-1], -1), -7)
        codes[..., seen // 2 : seen, :] = -codes[..., : seen // 2, :][..., ::-1, :]
        plane[:] = to_plane(codes)
    scale[..., seen // 2 : seen] = scale[..., : seen // 2][..., ::-1]
    return replace(case, q=np.zeros_like(case.q), values=replace(values, hi=hi, lo=lo, scale=scale))
