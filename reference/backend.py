"""The reference as a backend: the operations under the names that the suite looks up."""

from dataclasses import dataclass
from importlib.metadata import version

from nibblespec.reference import dashq, words
from nibblespec.reference.rounding import Array
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module
from nibblespec.spec.operations import (
    Capabilities,
    DashqRounding,
    FloatDtype,
    LinearWeightRounding,
    Words,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceBackend:
    """The reference in one of its named evaluations; `backend` is the canonical one."""

    dashq_rounding: DashqRounding = "fused"
    linear_weight_rounding: LinearWeightRounding = "rounded"
    name: str = "reference"
    version: str = version("nibblespec")
    device: str = "cpu"

    def capabilities(self) -> Capabilities:
        """Claim everything that the formats allow."""
        return Capabilities(
            operations=(
                "pack_words",
                "unpack_words",
                "dashq_reconstruct",
                "dashq_linear",
            ),
            dashq_rounding=self.dashq_rounding,
            linear_weight_rounding=self.linear_weight_rounding,
            row_invariant_dashq_linear=True,
        )

    pack_words = staticmethod(words.pack_words)
    unpack_words = staticmethod(words.unpack_words)

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


backend = ReferenceBackend()
