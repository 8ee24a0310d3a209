"""Rules on the description of one module of `dashq-packed-linear`."""

from collections.abc import Collection, Iterator
from math import gcd

from nibblespec.conformance.artifacts.findings import Problem
from nibblespec.conformance.artifacts.output.show import show
from nibblespec.spec.dashq_packed_linear.v1.dtypes import (
    LINEAR_DTYPES,
    SCALE_ZERO_DTYPES,
    canonical_dtype,
)
from nibblespec.spec.dashq_packed_linear.v1.manifest import Manifest, Module
from nibblespec.spec.json_strict import pointer
from nibblespec.spec.tensors import TOO_LARGE

MODULES = "quantized_modules"

_SCALE_BYTES = {"float32": 4, "float8_e4m3fn": 1, "float8_e5m2": 1}
"""Sizes of scales that do not take two bytes."""


def packing(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-MODULE-PACKING: the packing is the one of the width."""
    for name, module in manifest.quantized_modules.items():
        expected = f"int{module.nbits}_packed_u32"
        if module.packing != expected:
            yield Problem(
                message="`packing` is not that of `nbits`",
                pointer=pointer(MODULES, name, "packing"),
                expected=f"{show(expected)} for {module.nbits} bits",
                found=show(module.packing),
            )


def quant_in(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-MODULE-QUANT-IN: no column of the logical weight is left out."""
    for name, module in manifest.quantized_modules.items():
        if module.quant_in_features < module.in_features:
            yield Problem(
                message="`quant_in_features` is less than `in_features`",
                pointer=pointer(MODULES, name, "quant_in_features"),
                expected=f"at least {show(module.in_features)}",
                found=show(module.quant_in_features),
            )


def padded(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-MODULE-PADDED: published readers do not take padded inputs."""
    for name, module in manifest.quantized_modules.items():
        if module.quant_in_features > module.in_features:
            yield Problem(
                message="the input is padded, which published readers do not take",
                pointer=pointer(MODULES, name, "quant_in_features"),
                expected=f"`in_features`, {show(module.in_features)}",
                found=show(module.quant_in_features),
                hint="choose a group size that divides in_features",
            )


def group_size(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-MODULE-GROUP-SIZE: no group holds codes of two rows."""
    for name, module in manifest.quantized_modules.items():
        if module.quant_in_features % module.group_size:
            fits = gcd(module.quant_in_features, module.group_size)
            yield Problem(
                message="`group_size` does not divide the width of a row",
                pointer=pointer(MODULES, name, "group_size"),
                expected=f"a divisor of {show(module.quant_in_features)}",
                found=show(module.group_size),
                hint=f"groups of {show(fits)} fit" if fits > 1 else "",
            )


def groups(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-MODULE-GROUPS: the groups of the whole matrix."""
    for name, module in manifest.quantized_modules.items():
        expected, rest = divmod(module.out_features * module.quant_in_features, module.group_size)
        if not rest and module.num_groups != expected:
            yield Problem(
                message="`num_groups` is not the number of groups of the matrix",
                pointer=pointer(MODULES, name, "num_groups"),
                expected=f"{show(expected)} (out_features · quant_in_features / group_size)",
                found=show(module.num_groups),
                hint=_other_count(module),
            )


def _other_count(module: Module) -> str:
    """Say what the number counts, if it is a count that is easily taken for the right one."""
    count, size = module.num_groups, module.group_size
    if count * size == module.quant_in_features:
        return "this counts the groups of one row; num_groups is for the whole matrix"
    if count * size == module.out_features * module.in_features:
        return "this leaves out the padding; its groups count too"
    return ""


def size(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-MODULE-SIZE: no tensor has 2^63 bytes."""
    for name, module in manifest.quantized_modules.items():
        per_word = 32 // module.nbits
        words = -(-module.out_features * module.quant_in_features // per_word)
        dtype = canonical_dtype(module.scale_zero_dtype) or ""
        scales = module.num_groups * _SCALE_BYTES.get(dtype, 2)
        if max(4 * words, scales) >= TOO_LARGE:
            yield Problem(
                message="the module is larger than any tensor can be",
                pointer=pointer(MODULES, name),
                expected="less than 2^63 bytes in each tensor",
                found=f"{show(4 * words)} bytes of codes, {show(scales)} of scales",
            )


def scale_dtype(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-MODULE-SCALE-DTYPE: a known dtype."""
    return _unknown_dtypes(manifest, "scale_zero_dtype", SCALE_ZERO_DTYPES)


def linear_dtype(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-MODULE-LINEAR-DTYPE: a known dtype that layers can be computed in."""
    return _unknown_dtypes(manifest, "linear_dtype", LINEAR_DTYPES)


def _unknown_dtypes(manifest: Manifest, key: str, known: Collection[str]) -> Iterator[Problem]:
    for name, module in manifest.quantized_modules.items():
        dtype: str = getattr(module, key)
        if dtype not in known and canonical_dtype(dtype) not in known:
            yield Problem(
                message=f"`{key}` is no dtype that may stand there",
                pointer=pointer(MODULES, name, key),
                expected=", ".join(known),
                found=show(dtype),
                hint="readers take a default for names that they do not know",
            )


def dtype_name(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-MODULE-DTYPE-NAME: canonical names."""
    for name, module in manifest.quantized_modules.items():
        for key, known in (
            ("scale_zero_dtype", SCALE_ZERO_DTYPES),
            ("linear_dtype", LINEAR_DTYPES),
        ):
            dtype: str = getattr(module, key)
            canonical = dtype if dtype in known else canonical_dtype(dtype)
            if dtype not in known and canonical in known:
                yield Problem(
                    message=f"`{key}` has an alias in place of the canonical name {canonical}",
                    pointer=pointer(MODULES, name, key),
                    expected=show(canonical),
                    found=show(dtype),
                    hint=_bare_fp8(dtype),
                )


def _bare_fp8(dtype: str) -> str:
    if dtype.lower().removeprefix("torch.") != "fp8":
        return ""
    return "fp8 alone means e5m2 to the reader that takes it, not the more usual e4m3"
