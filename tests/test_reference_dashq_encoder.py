"""The round-to-nearest encoder: how near it comes, and what it refuses."""

import numpy as np
import pytest
from nibblespec.reference.dashq import dashq_reconstruct
from nibblespec.reference.dashq_encoder import PackedModule, encode_dashq
from nibblespec.reference.rounding import DTYPES, SCALE_ZERO_DTYPES, Array
from nibblespec.reference.words import pack_words, unpack_words


def decode(encoded: PackedModule) -> Array:
    return dashq_reconstruct(encoded.words, encoded.scale, encoded.zero, encoded.module, "float32")


def largest_error(weight: Array, encoded: PackedModule) -> float:
    return float(np.abs(decode(encoded).astype(np.float64) - weight.astype(np.float64)).max())


def normal(*shape: int) -> Array:
    return np.random.default_rng(11).standard_normal(shape, np.float32)


@pytest.mark.parametrize("nbits", range(1, 9))
@pytest.mark.parametrize("group_size", [5, 8, 40])
def test_no_weight_is_off_by_more_than_half_a_step(nbits: int, group_size: int) -> None:
    weight = normal(6, 40)
    encoded = encode_dashq(weight, nbits, group_size, "float32")
    step = encoded.scale.max()
    assert largest_error(weight, encoded) <= 0.5001 * step


@pytest.mark.parametrize("scale_zero_dtype", SCALE_ZERO_DTYPES)
def test_parameters_are_stored_in_the_dtype_asked_for(scale_zero_dtype: str) -> None:
    encoded = encode_dashq(normal(3, 16), 4, 8, scale_zero_dtype)
    assert encoded.scale.dtype == encoded.zero.dtype == DTYPES[scale_zero_dtype]
    assert encoded.scale.shape == encoded.zero.shape == (6, 1)


@pytest.mark.parametrize("scale_zero_dtype", SCALE_ZERO_DTYPES)
def test_codes_are_the_nearest_for_the_stored_parameters(scale_zero_dtype: str) -> None:
    weight = normal(4, 16)
    encoded = encode_dashq(weight, 3, 8, scale_zero_dtype)
    codes = unpack_words(encoded.words, 3, 64).reshape(8, 8)
    every_code = np.arange(8.0)[np.newaxis, np.newaxis, :]
    scale = encoded.scale.astype(np.float64)[:, :, np.newaxis]
    zero = encoded.zero.astype(np.float64)[:, :, np.newaxis]
    distance = np.abs((every_code - zero) * scale - weight.reshape(8, 8, 1))
    chosen = np.take_along_axis(distance, codes[:, :, np.newaxis].astype(np.intp), axis=2)
    assert np.all(chosen[:, :, 0] <= distance.min(axis=2) + 1e-12)


def test_a_group_of_zeros_is_all_zeros_in_the_file() -> None:
    encoded = encode_dashq(np.zeros((2, 8), np.float32), 4, 8)
    assert encoded.words.tolist() == [0, 0]
    for parameter in (encoded.scale, encoded.zero):
        assert parameter.view(np.uint16).tolist() == [[0], [0]]
    assert decode(encoded).tolist() == np.zeros((2, 8)).tolist()


@pytest.mark.parametrize("value", [1.0, -3.3, 1e-3, 60000.0, 2.0**-24])
def test_a_constant_group_keeps_its_value(value: float) -> None:
    weight = np.full((1, 8), value, np.float32)
    encoded = encode_dashq(weight, 4, 8)
    assert largest_error(weight, encoded) <= max(2**-11 * abs(value), 2.0**-25)


def test_weights_far_from_zero_use_their_own_range() -> None:
    weight = 5 + normal(1, 32) / 8
    encoded = encode_dashq(weight, 4, 32)
    assert float(encoded.zero[0, 0]) < -15
    assert largest_error(weight, encoded) < 0.04  # half a step of the range, not of 0 … 5.3


def test_weights_all_alike_and_far_from_zero_are_not_lost() -> None:
    weight = (1 + 1e-7 * np.arange(8, dtype=np.float32)).reshape(1, 8)
    assert largest_error(weight, encode_dashq(weight, 4, 8)) < 2**-11


@pytest.mark.parametrize("exponent", [-24, -26])
def test_a_subnormal_range_uses_the_smallest_scale(exponent: int) -> None:
    weight = (np.arange(8, dtype=np.float32) * np.float32(2.0**exponent)).reshape(1, 8)
    encoded = encode_dashq(weight, 4, 8)
    assert encoded.scale.view(np.uint16).tolist() == [[1]]
    assert largest_error(weight, encoded) <= 2.0**-25


def test_padding_does_not_change_what_is_encoded() -> None:
    weight = normal(3, 10)
    encoded = encode_dashq(weight, 4, 4, quant_in_features=16)
    assert encoded.module.quant_in_features == 16
    assert encoded.module.num_groups == 12
    plain = encode_dashq(weight[:, :8].copy(), 4, 4)
    assert decode(encoded)[:, :8].tolist() == decode(plain).tolist()


def test_a_row_that_straddles_words_decodes_to_its_own_weights() -> None:
    weight = np.array(
        [[0, 7, 1, 2, 3, 4, 5], [6, 5, 7, 3, 0, 1, 2], [1, 1, 0, 7, 7, 2, 6]], "float32"
    )
    assert decode(encode_dashq(weight, 3, 7)).tolist() == weight.tolist()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_weights_of_every_dtype_are_encoded(dtype: str) -> None:
    weight = np.arange(16, dtype=np.float32).reshape(1, 16).astype(DTYPES[dtype])
    assert decode(encode_dashq(weight, 4, 16)).tolist() == [list(range(16))]


@pytest.mark.parametrize(
    ("values", "scale_zero_dtype"),
    [([1e6, -1e6], "float16"), ([1e6, 1e6], "float16"), ([1e6, 1e6 + 10], "float16"),
     ([1e5, -1e5], "float8_e4m3fn"), ([3e38, -3e38], "float8_e5m2")],
)  # fmt: skip
def test_a_scale_that_overflows_is_refused(values: list[float], scale_zero_dtype: str) -> None:
    weight = np.array([[0, 1, 2, 3], [*values, *values]], np.float32)
    message = f"scale and zero point {scale_zero_dtype} can hold, found weights from .* in group 1"
    with pytest.raises(ValueError, match=message):
        encode_dashq(weight, 4, 4, scale_zero_dtype)


def test_a_code_out_of_range_is_refused_when_it_is_packed() -> None:
    with pytest.raises(ValueError, match=r"codes: expected elements in 0 … 3, found 4 at \[1\]"):
        pack_words(np.array([3, 4], np.uint8), 2)


@pytest.mark.parametrize(
    ("weight", "error", "message"),
    [
        ([[1.0]], TypeError, "weight: expected a NumPy array, found list"),
        (np.ones((2, 8)), TypeError, "weight: expected dtype float16 or .*, found float64"),
        (np.ones(8, np.float32), ValueError, r"weight: expected shape \[N, K\], found \[8\]"),
        (np.ones((0, 8), np.float32), ValueError, "weight: expected no axis of size 0"),
        (np.ones((8, 0), np.float32), ValueError, "weight: expected no axis of size 0"),
        (np.full((1, 8), np.nan, np.float32), ValueError, "weight: expected finite elements"),
        (np.full((1, 8), -np.inf, np.float32), ValueError, "weight: expected finite elements"),
    ],
)
def test_a_wrong_weight_is_refused(weight: Array, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        encode_dashq(weight, 4, 8)


def test_sizes_and_names_that_do_not_fit_are_refused() -> None:
    weight = np.ones((2, 8), np.float32)
    with pytest.raises(ValueError, match="nbits: expected 1 … 8, found 0"):
        encode_dashq(weight, 0, 8)
    with pytest.raises(ValueError, match="group_size: expected a divisor of quant_in_features = 8"):
        encode_dashq(weight, 4, 3)
    with pytest.raises(ValueError, match="group_size: expected at least 1, found 0"):
        encode_dashq(weight, 4, 0)
    with pytest.raises(ValueError, match="quant_in_features: expected at least 8, found 4"):
        encode_dashq(weight, 4, 4, quant_in_features=4)
    with pytest.raises(ValueError, match="scale_zero_dtype: expected one of float16"):
        encode_dashq(weight, 4, 8, "fp8")
    with pytest.raises(ValueError, match="linear_dtype: expected one of float16"):
        encode_dashq(weight, 4, 8, linear_dtype="int8")
