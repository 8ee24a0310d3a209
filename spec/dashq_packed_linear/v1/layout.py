"""The tensors of `dashq-packed-linear` version 1, as its manifest implies them.

For a module with N rows, Kq stored columns and b bits, codes lie in words of P = floor(32 / b)
codes; every group has one scale and one zero point.
"""

from collections.abc import Iterator

from nibblespec.spec.dashq_packed_linear.v1.dtypes import SCALE_ZERO_DTYPES, canonical_dtype
from nibblespec.spec.dashq_packed_linear.v1.manifest import Manifest, Module
from nibblespec.spec.tensors import Dtype, TensorSpec


def codes_per_word(nbits: int) -> int:
    """Return P, the codes that one 32-bit word holds."""
    return 32 // nbits


def word_count(module: Module) -> int:
    """Return the 32-bit words that hold the codes of a module."""
    return -(-module.out_features * module.quant_in_features // codes_per_word(module.nbits))


def expected_tensors(manifest: Manifest) -> Iterator[TensorSpec]:
    """Yield the tensors of every module, in the order of the manifest; any shard may hold them.

    Raises ValueError where a module's dtype is none that the format knows.
    """
    for name, module in manifest.quantized_modules.items():
        yield from module_tensors(name, module)


def module_tensors(name: str, module: Module) -> Iterator[TensorSpec]:
    """Yield the tensors of one module: packed words, scale, zero and the optional bias."""
    groups = _dtype(name, "scale_zero_dtype", module.scale_zero_dtype)
    yield TensorSpec(
        name=f"{name}.W_q_packed",
        dtype="I32",
        shape=(word_count(module),),
        role="words",
        module=name,
    )
    yield TensorSpec(
        name=f"{name}.scale",
        dtype=groups,
        shape=(module.num_groups, 1),
        role="scale",
        module=name,
    )
    yield TensorSpec(
        name=f"{name}.zero",
        dtype=groups,
        shape=(module.num_groups, 1),
        role="zero",
        module=name,
    )
    yield TensorSpec(
        name=f"{name}.bias",
        dtype=_dtype(name, "linear_dtype", module.linear_dtype),
        shape=(module.out_features,),
        role="bias",
        module=name,
        required=False,
    )


def _dtype(name: str, key: str, value: str) -> Dtype:
    canonical = canonical_dtype(value)
    if canonical is None:
        known = ", ".join(SCALE_ZERO_DTYPES)
        raise ValueError(f"{name}: {key}: expected one of {known}, found {value!r}")
    return SCALE_ZERO_DTYPES[canonical]
