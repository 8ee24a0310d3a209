"""A backend for the conformance suite in a few dozen lines: dashq weights of 4 bits.

It is partial: two operations, one bit width, groups of a multiple of eight. What it does not
claim is not tested. Run the suite on it from this folder:

    nibblespec conformance --backend int4_backend:backend

It shares no code with the reference; what it needs is in the specification (chapters 6 and 7 of
dashq-packed-linear, chapter 3 of the numerics) and in `nibblespec.spec.operations`.
"""

import ml_dtypes
import numpy as np
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module
from nibblespec.spec.operations import Array, Capabilities, Codes, FloatDtype, Words

DTYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}


class Int4Backend:
    """Any object will do: name, version, device, capabilities() and the claimed operations."""

    name = "int4-example"
    version = "1"
    device = "cpu"

    def capabilities(self) -> Capabilities:
        """Say what is claimed, and no more."""
        return Capabilities(
            operations=("unpack_words", "dashq_reconstruct"),
            bit_widths=(4,),
            group_sizes=(32, 64, 128),
            scale_zero_dtypes=("float16",),
            padded_inputs=False,
            dashq_rounding="fused",
        )

    def unpack_words(self, words: Words, nbits: int, count: int) -> Codes:
        """Take eight codes from each word, the lowest bits first."""
        assert nbits == 4  # the suite asks for nothing else
        # As bytes, each word is four pairs of codes: no shift can drag a sign bit along.
        pairs = words.astype("<i4").view(np.uint8)
        codes = np.empty(2 * pairs.size, np.uint8)
        codes[0::2] = pairs % 16
        codes[1::2] = pairs // 16
        return codes[:count].copy()

    def dashq_reconstruct(
        self, words: Words, scale: Array, zero: Array, module: Module, dtype: FloatDtype
    ) -> Array:
        """Return (q - zero) * scale: float32 throughout, one rounding at the end."""
        count = module.out_features * module.in_features
        q = self.unpack_words(words, 4, count).reshape(-1, module.group_size)
        with np.errstate(over="ignore"):
            w = (q - zero.astype(np.float32)) * scale.astype(np.float32)
            return w.astype(DTYPES[dtype]).reshape(module.out_features, module.in_features)


backend = Int4Backend()
