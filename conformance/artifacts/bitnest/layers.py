"""Rules on the layers of `bitnest-package-v1`: their sizes, and which there are."""

from collections.abc import Iterator
from math import gcd

from nibblespec.conformance.artifacts import siblings
from nibblespec.conformance.artifacts.bitnest.decoder import LAYERS, SEVEN, decoder
from nibblespec.conformance.artifacts.findings import Problem
from nibblespec.conformance.artifacts.output.show import show
from nibblespec.spec.bitnest_package.v1.manifest import Layer, Manifest
from nibblespec.spec.json_strict import pointer
from nibblespec.spec.tensors import TOO_LARGE


def even(manifest: Manifest) -> Iterator[Problem]:
    """BN1-LAYER-EVEN: two columns to a byte."""
    for name, layer in manifest.layers.items():
        if layer.shape[1] % 2:
            yield Problem(
                message="K is odd, but a byte of a plane holds two columns",
                pointer=pointer(LAYERS, name, "shape", 1),
                expected="an even number of columns",
                found=show(layer.shape[1]),
            )


def group_size(manifest: Manifest) -> Iterator[Problem]:
    """BN1-LAYER-GROUP-SIZE: whole groups in a row."""
    for name, layer in manifest.layers.items():
        if layer.shape[1] % manifest.group_size:
            fits = gcd(layer.shape[1], manifest.group_size)
            yield Problem(
                message="`group_size` does not divide K",
                pointer=pointer(LAYERS, name, "shape", 1),
                expected=f"a multiple of {show(manifest.group_size)}",
                found=show(layer.shape[1]),
                hint=f"groups of {show(fits)} fit" if fits > 1 else "",
            )


def groups(manifest: Manifest) -> Iterator[Problem]:
    """BN1-LAYER-GROUPS: the groups of one row."""
    for name, layer in manifest.layers.items():
        expected, rest = divmod(layer.shape[1], manifest.group_size)
        if not rest and layer.groups != expected:
            yield Problem(
                message="`groups` is not the number of groups of a row",
                pointer=pointer(LAYERS, name, "groups"),
                expected=f"{show(expected)} (K / group_size)",
                found=show(layer.groups),
                hint=_other_count(layer, expected, manifest.group_size),
            )


def _other_count(layer: Layer, expected: int, size: int) -> str:
    """Say what the number counts, if it is a count that is easily taken for the right one."""
    if layer.groups == layer.shape[0] * expected:
        return "this counts the groups of the whole matrix; groups is for one row"
    if layer.groups * size == layer.shape[0]:
        return "this counts groups along N; groups run along K"
    return ""


def size(manifest: Manifest) -> Iterator[Problem]:
    """BN1-LAYER-SIZE: no tensor has 2^63 bytes."""
    for name, layer in manifest.layers.items():
        rows, columns = layer.shape
        # A bias is no larger than the scales.
        largest = max(rows * columns // 2, 2 * rows * layer.groups)
        if largest >= TOO_LARGE:
            yield _too_large(pointer(LAYERS, name), largest)
    for name, transform in manifest.online_hadamard.layers.items():
        if 4 * transform.K**2 >= TOO_LARGE:
            place = pointer("online_hadamard", "layers", name, "K")
            yield _too_large(place, 4 * transform.K**2)


def _too_large(place: str, found: int) -> Problem:
    return Problem(
        message="the tensor would be larger than any can be",
        pointer=place,
        expected="less than 2^63 bytes",
        found=f"{show(found)} bytes",
    )


def kernels(manifest: Manifest) -> Iterator[Problem]:
    """BN1-GROUP-SIZE-KERNELS: what the published GPU kernels take."""
    if manifest.group_size != 128:
        yield Problem(
            message="published GPU kernels take groups of 128 only",
            pointer=pointer("group_size"),
            expected="128",
            found=show(manifest.group_size),
        )


def present(manifest: Manifest) -> Iterator[Problem]:
    """BN1-LAYERS-PRESENT: there is a decoder layer."""
    if not decoder(manifest.layers):
        yield Problem(
            message="`layers` lists no decoder layer",
            pointer=pointer(LAYERS),
            expected="the seven layers of each decoder layer",
            found=show(manifest.layers),
        )


def complete(manifest: Manifest) -> Iterator[Problem]:
    """BN1-LAYERS-COMPLETE: a layer that is not listed has no weights."""
    for number, layers in decoder(manifest.layers).items():
        for last in SEVEN:
            if last not in layers:
                yield Problem(
                    message=f"a decoder layer lacks its `{last}`",
                    pointer=pointer(LAYERS),
                    expected=f"a layer of that name in model.layers.{number}",
                    found=f"{len(layers)} of 7 layers",
                )


def contiguous(manifest: Manifest) -> Iterator[Problem]:
    """BN1-LAYERS-CONTIGUOUS: no decoder layer is left out."""
    numbers = {int(number) for number in decoder(manifest.layers)}
    absent = siblings.gap(numbers)
    if absent is not None:
        yield Problem(
            message="decoder layers are missing",
            pointer=pointer(LAYERS),
            expected=f"each of 0 to {max(numbers)}",
            found=f"{len(numbers)} of them, not {absent}",
        )
