"""What each operation returns: dtype and shape of its outputs, from its arguments."""

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module
from nibblespec.spec.operations import OPERATIONS, Array

Form = tuple[np.dtype[Any], tuple[int, ...]]
Forms = tuple[Form, ...]

DTYPES: Mapping[str, np.dtype[Any]] = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
"""The dtypes of the formats under the names that manifests use."""

_INT8, _UINT8, _INT32 = np.dtype(np.int8), np.dtype(np.uint8), np.dtype(np.int32)
_FLOAT32 = DTYPES["float32"]


def output_forms(operation: str, arguments: tuple[object, ...]) -> Forms:
    """Return dtype and shape of each output of `operation` called with `arguments`."""
    return _FORMS[operation](*arguments)


def returns_tuple(operation: str) -> bool:
    """Say whether the operation returns a tuple of arrays instead of one array."""
    return operation in {"pack_planes", "unpack_planes", "quantize_activations", "kv_quantize"}


def _pack_words(codes: Array, nbits: int) -> Forms:
    per_word = 32 // nbits
    return ((_INT32, (-(-codes.size // per_word),)),)


def _unpack_words(_words: Array, _nbits: int, count: int) -> Forms:
    return ((_UINT8, (count,)),)


def _dashq_reconstruct(
    _words: Array, _scale: Array, _zero: Array, module: Module, dtype: str
) -> Forms:
    return ((DTYPES[dtype], (module.out_features, module.in_features)),)


def _dashq_linear(
    x: Array, _words: Array, _scale: Array, _zero: Array, _bias: Array | None, module: Module
) -> Forms:
    return ((x.dtype, (x.shape[0], module.out_features)),)


def _pack_planes(q4: Array, _qr: Array) -> Forms:
    rows, columns = q4.shape
    return ((_UINT8, (rows, columns // 2)),) * 2


def _unpack_planes(hi: Array, _lo: Array) -> Forms:
    rows, width = hi.shape
    return ((_INT8, (rows, 2 * width)),) * 2


def _nested_reconstruct(
    hi: Array, _lo: Array | None, _scale: Array, _plane: str, dtype: str
) -> Forms:
    rows, width = hi.shape
    return ((DTYPES[dtype], (rows, 2 * width)),)


def _quantize_activations(x: Array, group: int) -> Forms:
    rows, columns = x.shape
    return (_INT8, x.shape), (_FLOAT32, (rows, 1 if group == -1 else columns // group))


def _nested_linear(
    xq: Array,
    _sx: Array,
    hi: Array,
    _lo: Array | None,
    _scale: Array,
    _bias: Array | None,
    _plane: str,
    dtype: str,
) -> Forms:
    return ((DTYPES[dtype], (xq.shape[0], hi.shape[0])),)


def _hadamard(x: Array, _had_k: Array | None, dtype: str) -> Forms:
    return ((DTYPES[dtype], x.shape),)


def _kv_quantize(x: Array, _offset: Array | None) -> Forms:
    plane = (_UINT8, (*x.shape[:-1], x.shape[-1] // 2))
    return plane, plane, (_FLOAT32, x.shape[:-1])


def _kv_dequantize(hi: Array, _lo: Array | None, _scale: Array, _plane: str) -> Forms:
    return ((_FLOAT32, (*hi.shape[:-1], 2 * hi.shape[-1])),)


def _kv_attention(q: Array, *others: object) -> Forms:
    return ((DTYPES[str(others[-1])], q.shape),)


_FORMS: Mapping[str, Callable[..., Forms]] = dict(
    zip(
        OPERATIONS,
        (
            _pack_words,
            _unpack_words,
            _dashq_reconstruct,
            _dashq_linear,
            _pack_planes,
            _unpack_planes,
            _nested_reconstruct,
            _quantize_activations,
            _nested_linear,
            _hadamard,
            _kv_quantize,
            _kv_dequantize,
            _kv_attention,
        ),
        strict=True,
    )
)
