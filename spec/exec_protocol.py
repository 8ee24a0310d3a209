"""What the exec protocol is made of: names, limits and the arguments of each call.

The text is in exec_protocol.md. `schemas/exec-protocol.schema.json` is generated from this module.
"""

from collections.abc import Mapping

PROTOCOL = 1
"""Version of the protocol."""

LINE_BYTES = 65_536
"""Bytes of the longest line, its line feed included, in either direction."""

AXES = 8
"""Most axes of an array."""

DTYPES: Mapping[str, int] = {
    "uint8": 1,
    "int8": 1,
    "int32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}
"""dtypes of arrays, with the bytes of one element."""

HELLO = "hello"
ECHO = "echo"

SCALARS = ("nbits", "count", "group", "plane", "position", "softmax_scale", "dtype", "module")
"""Arguments that stand in the line as JSON values, in the order in which a line has them.
All others are arrays."""

ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "pack_words": ("codes", "nbits"),
    "unpack_words": ("words", "nbits", "count"),
    "dashq_reconstruct": ("words", "scale", "zero", "module", "dtype"),
    "dashq_linear": ("x", "words", "scale", "zero", "bias", "module"),
    "pack_planes": ("q4", "qr"),
    "unpack_planes": ("hi", "lo"),
    "nested_reconstruct": ("hi", "lo", "scale", "plane", "dtype"),
    "quantize_activations": ("x", "group"),
    "nested_linear": ("xq", "sx", "hi", "lo", "scale", "bias", "plane", "dtype"),
    "hadamard": ("x", "had_k", "dtype"),
    "kv_quantize": ("x", "offset"),
    "kv_dequantize": ("hi", "lo", "scale", "plane"),
    "kv_attention": (
        *("q", "k_hi", "k_lo", "k_scale", "v_hi", "v_lo", "v_scale", "v_offset"),
        *("position", "plane", "softmax_scale", "dtype"),
    ),
}
"""Arguments of each operation under their names in `operations.py`, in its order."""

MODULE = (
    *("nbits", "group_size", "in_features", "out_features", "quant_in_features", "num_groups"),
    *("packing", "scale_zero_dtype", "linear_dtype"),
)
"""Keys of `module`: those of a module in the manifest, none of them left out."""
