"""The layers of the two example checkpoints, each shape once, and others: [N, K]."""

ROWS = (1, 5, 16, 64, 512)
"""Rows M of the input: a token, a verification of four drafts, batches, prefill."""

DASHQ_SHAPES = (
    (12288, 4096),
    (4096, 12288),
    (8192, 4096),
    (4096, 4096),
    (1024, 4096),
    (32, 4096),
)
"""INT4 in groups of 32: examples/dashq_config.json."""

DASHQ_BITS = 4
DASHQ_GROUP = 32

NESTED_SHAPES = (
    (128256, 3072),
    (8192, 3072),
    (3072, 8192),
    (3072, 3072),
    (1024, 3072),
)
"""Groups of 128: examples/meta.json."""

NESTED_GROUP = 128

COMMON_SHAPE = (4096, 12288)
"""One shape in both formats, to compare them on."""

HADAMARD_WIDTHS = ((1, 8192), (28, 14336), (148, 18944), (172, 11008))
"""Orders K and widths n of published packages."""

HEADS = (24, 8, 128)
"""Query heads, heads of the cache, head_dim: those of examples/meta.json's model."""

LARGE_SHAPES = ((8192, 8192), (16384, 8192))
"""Layers of large models: 42 and 84 MB in INT4/g32."""

STEP = {(3072, 3072): 56, (1024, 3072): 56, (8192, 3072): 56, (3072, 8192): 28, (128256, 3072): 1}
"""How many layers of each shape a token passes in examples/meta.json's model."""
