"""What cases are made for: dtypes, planes, and their names in ids."""

from nibblespec.spec.operations import FloatDtype, Plane

DTYPES: tuple[FloatDtype, ...] = ("float16", "bfloat16", "float32")
"""Of inputs and outputs."""

PLANES: tuple[Plane, ...] = ("draft", "target")

SHORT = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
}
"""dtypes in ids."""

LARGEST = {
    "float16": 65504.0,
    "bfloat16": (2 - 2.0**-7) * 2.0**127,
    "float32": (2 - 2.0**-23) * 2.0**127,
    "float8_e4m3fn": 448.0,
    "float8_e5m2": 57344.0,
}
"""The largest finite value of each dtype (Numerics, 1.1)."""

SMALLEST = {
    "float16": 2.0**-24,
    "bfloat16": 2.0**-133,
    "float32": 2.0**-149,
    "float8_e4m3fn": 2.0**-9,
    "float8_e5m2": 2.0**-16,
}
"""The smallest positive value of each dtype, a subnormal (Numerics, 1.1)."""
