"""The reference as a backend: the operations under the names that the suite looks up."""

from dataclasses import dataclass
from importlib.metadata import version

from nibblespec.reference import activations, attention, dashq, hadamard, kv, nested, planes, words
from nibblespec.reference.rounding import Array
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module
from nibblespec.spec.operations import (
    OPERATIONS,
    Bytes,
    Capabilities,
    DashqRounding,
    Float16,
    Float32,
    FloatDtype,
    LinearWeightRounding,
    Nibbles,
    Plane,
    Words,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceBackend:
    """The reference in one of its named evaluations; `backend` is the canonical one."""

    dashq_rounding: DashqRounding = "fused"
    linear_weight_rounding: LinearWeightRounding = "rounded"
    prefill_f16_from: int | None = None
    name: str = "reference"
    version: str = version("nibblespec")
    device: str = "cpu"

    def capabilities(self) -> Capabilities:
        """Claim everything that the formats allow."""
        return Capabilities(
            operations=OPERATIONS,
            dashq_rounding=self.dashq_rounding,
            linear_weight_rounding=self.linear_weight_rounding,
            prefill_f16_from=self.prefill_f16_from,
            row_invariant_dashq_linear=True,
        )

    pack_words = staticmethod(words.pack_words)
    unpack_words = staticmethod(words.unpack_words)
    pack_planes = staticmethod(planes.pack_planes)
    unpack_planes = staticmethod(planes.unpack_planes)
    nested_reconstruct = staticmethod(nested.nested_reconstruct)
    quantize_activations = staticmethod(activations.quantize_activations)
    hadamard = staticmethod(hadamard.hadamard)
    kv_quantize = staticmethod(kv.kv_quantize)
    kv_dequantize = staticmethod(kv.kv_dequantize)
    kv_attention = staticmethod(attention.kv_attention)

    def dashq_reconstruct(
        self, words: Words, scale: Array, zero: Array, module: Module, dtype: FloatDtype
    ) -> Array:
        """See `nibblespec.reference.dashq.dashq_reconstruct`."""
        return dashq.dashq_reconstruct(words, scale, zero, module, dtype, self.dashq_rounding)

    def dashq_linear(
        self,
        x: Array,
        words: Words,
        scale: Array,
        zero: Array,
        bias: Array | None,
        module: Module,
    ) -> Array:
        """See `nibblespec.reference.dashq.dashq_linear`."""
        return dashq.dashq_linear(
            x, words, scale, zero, bias, module, self.dashq_rounding, self.linear_weight_rounding
        )

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
        """See `nested_linear` and `prefill_f16_linear` of `nibblespec.reference.nested`."""
        first = self.prefill_f16_from
        prefill = first is not None and len(xq) >= first
        linear = nested.prefill_f16_linear if prefill else nested.nested_linear
        return linear(xq, sx, hi, lo, scale, bias, plane, dtype)


backend = ReferenceBackend()
