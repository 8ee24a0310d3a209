"""Operations on tensors as a backend of the conformance suite, on NumPy arrays."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from nibblespec.optimized.arrays import FLOAT_DTYPES, SCALE_ZERO_DTYPES, to_array, to_tensor
from nibblespec.optimized.checks import check_tensor
from nibblespec.optimized.layout import DashqLayout, layout_of
from nibblespec.optimized.operations import Operations
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module
from nibblespec.spec.operations import (
    Array,
    Bytes,
    Capabilities,
    Codes,
    Float16,
    Float32,
    FloatDtype,
    Nibbles,
    Plane,
    Words,
)
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class NumpyBackend:
    """A backend: NumPy arrays in, tensors on `place` inside, NumPy arrays out.

    On the CPU nothing is copied on the way. Methods are those of `nibblespec.spec.operations`;
    they raise as the checks of `nibblespec.optimized.checked` do.
    """

    name: str
    version: str
    place: str
    """The torch device that computes, such as "cpu" or "cuda:0"."""
    operations: Operations
    describe_device: Callable[[], str]
    describe_capabilities: Callable[[], Capabilities]

    @property
    def device(self) -> str:
        """What it runs on, for reports."""
        return self.describe_device()

    def capabilities(self) -> Capabilities:
        """Say what the backend claims."""
        return self.describe_capabilities()

    def pack_words(self, codes: Codes, nbits: int) -> Words:
        """See `nibblespec.spec.operations.PackWords`."""
        return to_array(self.operations.pack_words(self._in(codes), nbits))

    def unpack_words(self, words: Words, nbits: int, count: int) -> Codes:
        """See `nibblespec.spec.operations.UnpackWords`."""
        return to_array(self.operations.unpack_words(self._in(words), nbits, count))

    def dashq_reconstruct(
        self, words: Words, scale: Array, zero: Array, module: Module, dtype: FloatDtype
    ) -> Array:
        """See `nibblespec.spec.operations.DashqReconstruct`."""
        weight, layout = self._weight(words, scale, zero, module)
        return to_array(self.operations.dashq_reconstruct(*weight, layout, torch_dtype(dtype)))

    def dashq_linear(
        self,
        x: Array,
        words: Words,
        scale: Array,
        zero: Array,
        bias: Array | None,
        module: Module,
    ) -> Array:
        """See `nibblespec.spec.operations.DashqLinear`."""
        weight, layout = self._weight(words, scale, zero, module)
        tokens = self._in(x)
        check_tensor(tokens, "x", torch_dtype(module.linear_dtype), ("M", module.in_features))
        return to_array(
            self.operations.dashq_linear(tokens, *weight, self._in_or_none(bias), layout)
        )

    def pack_planes(self, q4: Nibbles, qr: Nibbles) -> tuple[Bytes, Bytes]:
        """See `nibblespec.spec.operations.PackPlanes`."""
        hi, lo = self.operations.pack_planes(self._in(q4), self._in(qr))
        return to_array(hi), to_array(lo)

    def unpack_planes(self, hi: Bytes, lo: Bytes) -> tuple[Nibbles, Nibbles]:
        """See `nibblespec.spec.operations.UnpackPlanes`."""
        q4, qr = self.operations.unpack_planes(self._in(hi), self._in(lo))
        return to_array(q4), to_array(qr)

    def nested_reconstruct(
        self, hi: Bytes, lo: Bytes | None, scale: Float16, plane: Plane, dtype: FloatDtype
    ) -> Array:
        """See `nibblespec.spec.operations.NestedReconstruct`."""
        return to_array(
            self.operations.nested_reconstruct(
                self._in(hi), self._in_or_none(lo), self._in(scale), plane, torch_dtype(dtype)
            )
        )

    def quantize_activations(self, x: Array, group: int) -> tuple[Nibbles, Float32]:
        """See `nibblespec.spec.operations.QuantizeActivations`."""
        codes, scale = self.operations.quantize_activations(self._in(x), group)
        return to_array(codes), to_array(scale)

    def nested_linear(
        self,
        xq: Nibbles,
        sx: Float32,
        hi: Bytes,
        lo: Bytes | None,
        scale: Float16,
        bias: Float16 | None,
        plane: Plane,
        dtype: FloatDtype,
    ) -> Array:
        """See `nibblespec.spec.operations.NestedLinear`."""
        return to_array(
            self.operations.nested_linear(
                self._in(xq),
                self._in(sx),
                self._in(hi),
                self._in_or_none(lo),
                self._in(scale),
                self._in_or_none(bias),
                plane,
                torch_dtype(dtype),
            )
        )

    def hadamard(self, x: Array, had_k: Float32 | None, dtype: FloatDtype) -> Array:
        """See `nibblespec.spec.operations.Hadamard`."""
        return to_array(
            self.operations.hadamard(self._in(x), self._in_or_none(had_k), torch_dtype(dtype))
        )

    def kv_quantize(self, x: Array, offset: Array | None) -> tuple[Bytes, Bytes, Float32]:
        """See `nibblespec.spec.operations.KvQuantize`."""
        hi, lo, scale = self.operations.kv_quantize(self._in(x), self._in_or_none(offset))
        return to_array(hi), to_array(lo), to_array(scale)

    def kv_dequantize(self, hi: Bytes, lo: Bytes | None, scale: Float32, plane: Plane) -> Float32:
        """See `nibblespec.spec.operations.KvDequantize`."""
        return to_array(
            self.operations.kv_dequantize(
                self._in(hi), self._in_or_none(lo), self._in(scale), plane
            )
        )

    def kv_attention(
        self,
        q: Array,
        k_hi: Bytes,
        k_lo: Bytes | None,
        k_scale: Float32,
        v_hi: Bytes,
        v_lo: Bytes | None,
        v_scale: Float32,
        v_offset: Array | None,
        position: int,
        plane: Plane,
        softmax_scale: float,
        dtype: FloatDtype,
    ) -> Array:
        """See `nibblespec.spec.operations.KvAttention`."""
        return to_array(
            self.operations.kv_attention(
                self._in(q),
                self._in(k_hi),
                self._in_or_none(k_lo),
                self._in(k_scale),
                self._in(v_hi),
                self._in_or_none(v_lo),
                self._in(v_scale),
                self._in_or_none(v_offset),
                position,
                plane,
                softmax_scale,
                torch_dtype(dtype),
            )
        )

    def _in(self, array: Array) -> Tensor:
        return to_tensor(array).to(self.place)

    def _in_or_none(self, array: Array | None) -> Tensor | None:
        return None if array is None else self._in(array)

    def _weight(
        self, words: Words, scale: Array, zero: Array, module: Module
    ) -> tuple[tuple[Tensor, Tensor, Tensor], DashqLayout]:
        """Return a module's tensors and layout; its parameters are in the dtype it names."""
        if not isinstance(module, Module):
            raise TypeError(f"module: expected a dashq Module, found {type(module).__name__}")
        dtype = SCALE_ZERO_DTYPES.get(module.scale_zero_dtype)
        if dtype is None:
            raise ValueError(
                f"module.scale_zero_dtype: expected one of {', '.join(SCALE_ZERO_DTYPES)}, "
                f"found {module.scale_zero_dtype!r}"
            )
        parameters = self._in(scale), self._in(zero)
        for name, tensor in zip(("scale", "zero"), parameters, strict=True):
            check_tensor(tensor, name, dtype, (module.num_groups, 1))
        return (self._in(words), *parameters), layout_of(module)


def torch_dtype(name: str) -> torch.dtype:
    """Return the output dtype of a name; raise ValueError for any other."""
    if name not in FLOAT_DTYPES:
        raise ValueError(f"dtype: expected one of {', '.join(FLOAT_DTYPES)}, found {name!r}")
    return FLOAT_DTYPES[name]
