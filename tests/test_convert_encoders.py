"""The converters' encoders give the bits of the reference's."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nibblespec.optimized.arrays import to_array, to_tensor
from nibblespec.optimized.convert.encode_dashq import encode_groups, to_float16
from nibblespec.optimized.convert.encode_nested import encode_nested
from nibblespec.reference.dashq_encoder import encode_dashq
from nibblespec.reference.nested_encoder import encode_nested as reference_nested
from nibblespec.reference.rounding import DTYPES, Array, round_float64
from nibblespec.reference.words import unpack_words


def weights(seed: int, dtype: str) -> Iterator[Array]:
    """Yield weights [6, 64] of the kinds that models have, and of those that they should not."""
    random = np.random.default_rng(seed)
    usual = random.normal(0, 0.05, (6, 64))
    yield usual.astype(DTYPES[dtype])
    yield (usual + 3).astype(DTYPES[dtype])  # all of one sign, far from zero
    yield np.where(random.random((6, 64)) < 0.9, 0, usual).astype(DTYPES[dtype])
    yield np.round(usual * 60).astype(DTYPES[dtype])  # ties
    yield (usual * 10.0 ** random.integers(-9, 4, (6, 1))).astype(DTYPES[dtype])
    yield np.full((6, 64), 0.3).astype(DTYPES[dtype])
    yield np.zeros((6, 64), DTYPES[dtype])
    yield (usual * 1e-7).astype(DTYPES[dtype])  # scales that are subnormal, or 0, in float16


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("nbits", range(1, 9))
@pytest.mark.parametrize("group_size", [16, 32])
def test_dashq_groups_have_the_bits_of_the_reference(
    nbits: int, group_size: int, dtype: str
) -> None:
    for weight in weights(nbits, dtype):
        expected = encode_dashq(weight, nbits, group_size)
        found = encode_groups(to_tensor(weight), nbits, group_size)
        codes = unpack_words(expected.words, nbits, weight.size)
        assert to_array(found.codes).reshape(-1).tobytes() == codes.tobytes()
        assert to_array(found.scale).tobytes() == expected.scale.tobytes()
        assert to_array(found.zero).tobytes() == expected.zero.tobytes()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("group_size", [8, 16, 64])
def test_nested_codes_have_the_bits_of_the_reference(group_size: int, dtype: str) -> None:
    for weight in weights(group_size, dtype):
        expected: tuple[Array, ...] = reference_nested(weight, group_size)
        found = encode_nested(to_tensor(weight), group_size)
        for ours, theirs in zip(found, expected, strict=True):
            assert to_array(ours).tobytes() == theirs.tobytes()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(allow_nan=False, width=64), min_size=1, max_size=40))
def test_float64_is_rounded_to_float16_once(values: list[float]) -> None:
    expected = round_float64(np.array(values), "float16")
    assert to_array(to_float16(torch.tensor(values, dtype=torch.float64))).tobytes() == (
        expected.tobytes()
    )


def test_a_value_just_above_a_tie_of_float16_is_rounded_up() -> None:
    # Rounded to float32 first, it would be the tie 1 + 2^-11, and then 1.
    just_above = torch.tensor([1 + 2**-11 + 2**-40], dtype=torch.float64)
    assert to_float16(just_above).item() == 1 + 2**-10


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_weight_that_is_not_finite_is_refused(value: float) -> None:
    weight = torch.zeros(2, 32)
    weight[1, 3] = value
    with pytest.raises(ValueError, match="finite weights"):
        encode_groups(weight, 4, 16)
    with pytest.raises(ValueError, match="finite weights"):
        encode_nested(weight, 16)


def test_a_group_that_float16_cannot_hold_is_refused() -> None:
    weight = torch.zeros(2, 32)
    weight[1, 3] = 1e6
    with pytest.raises(ValueError, match="scale fits float16, found weights from 0 to 1e\\+06"):
        encode_groups(weight, 2, 16)
    with pytest.raises(ValueError, match="at most 65504"):
        encode_nested(weight, 16)
