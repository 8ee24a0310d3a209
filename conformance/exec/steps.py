"""The order in which to implement the operations: that of the guide, docs/other_languages.md."""

STEPS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("pack_words", "unpack_words"), "packing"),
    (("dashq_reconstruct",), "dashq_reconstruction"),
    (("pack_planes", "unpack_planes"), "planes"),
    (("nested_reconstruct",), "nested_reconstruction"),
    (("quantize_activations",), "activations"),
    (("kv_dequantize", "kv_quantize"), "kv_cache"),
    (("nested_linear",), "nested_linear"),
    (("hadamard",), "hadamard"),
    (("dashq_linear",), "dashq_linear"),
    (("kv_attention",), "attention"),
)
"""Operations to claim, and the `-k` that selects their tests."""

ORDER = tuple(operation for operations, _ in STEPS for operation in operations)
"""Every operation."""
SELECT = {operation: select for operations, select in STEPS for operation in operations}
"""The `-k` of each operation."""
