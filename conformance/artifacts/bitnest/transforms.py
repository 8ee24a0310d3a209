"""Rules on what happens to the inputs of layers of `bitnest-package-v1`."""

from collections.abc import Iterator

from nibblespec.conformance.artifacts.bitnest.decoder import LAYERS, decoder, kinds, path
from nibblespec.conformance.artifacts.findings import Problem
from nibblespec.conformance.artifacts.output.show import show
from nibblespec.conformance.artifacts.siblings import most_common
from nibblespec.spec.bitnest_package.v1.manifest import Manifest
from nibblespec.spec.json_strict import pointer

_GROUPS = ("activation", "per_layer_group")
_TRANSFORMS = ("online_hadamard", "layers")
_VALUE, _OUTPUT = "self_attn.v_proj", "self_attn.o_proj"
TOKEN = -1
"""The width that stands for one scale per token."""


def _unknown(manifest: Manifest, names: Iterator[str], where: tuple[str, str]) -> Iterator[Problem]:
    for name in names:
        if name not in manifest.layers:
            yield Problem(
                message="there is no such layer in `layers`",
                pointer=pointer(*where, name),
                expected="a name in `layers`",
                found=show(name),
            )


def activation_layers(manifest: Manifest) -> Iterator[Problem]:
    """BN1-ACTIVATION-LAYERS: only layers that are there."""
    return _unknown(manifest, iter(manifest.activation.per_layer_group), _GROUPS)


def activation_group(manifest: Manifest) -> Iterator[Problem]:
    """BN1-ACTIVATION-GROUP: whole groups in a row."""
    for name, width in manifest.activation.per_layer_group.items():
        layer = manifest.layers.get(name)
        divides = layer is None or width < 1 or layer.shape[1] % width == 0
        if width != TOKEN and (width < 1 or not divides):
            columns = f", {show(layer.shape[1])}" if layer else ""
            yield Problem(
                message="the width is neither -1 nor a divisor of K",
                pointer=pointer(*_GROUPS, name),
                expected=f"-1 or a divisor of K{columns}",
                found=show(width),
            )


def activation_head(manifest: Manifest) -> Iterator[Problem]:
    """BN1-ACTIVATION-HEAD: the groups of o_proj are heads."""
    groups = manifest.activation.per_layer_group
    for number, layers in decoder(manifest.layers).items():
        name = path(number, _OUTPUT)
        width = groups.get(name, TOKEN)
        if width > 0 and _VALUE in layers and layers[_VALUE].shape[0] % width:
            yield Problem(
                message="the width of `o_proj` cannot be that of a head",
                pointer=pointer(*_GROUPS, name),
                expected=f"a divisor of {show(layers[_VALUE].shape[0])}, the N of v_proj",
                found=show(width),
            )


def activation_uniform(manifest: Manifest) -> Iterator[Problem]:
    """BN1-ACTIVATION-UNIFORM: all decoder layers are alike."""
    groups = manifest.activation.per_layer_group
    for last, layers in kinds(manifest.layers).items():
        widths = {name: groups.get(name, TOKEN) for name in layers}
        usual = most_common(widths.values())
        for name, width in widths.items():
            if width != usual:
                yield Problem(
                    message=f"the width of `{last}` differs between decoder layers",
                    pointer=pointer(*_GROUPS, name) if name in groups else pointer(LAYERS, name),
                    expected=f"{show(usual)}, as in most",
                    found=show(width) if name in groups else "none, which means -1",
                )


def hadamard_layers(manifest: Manifest) -> Iterator[Problem]:
    """BN1-HADAMARD-LAYERS: only layers that are there."""
    return _unknown(manifest, iter(manifest.online_hadamard.layers), _TRANSFORMS)


def hadamard_width(manifest: Manifest) -> Iterator[Problem]:
    """BN1-HADAMARD-WIDTH: the transform is as wide as the input."""
    for name, transform in manifest.online_hadamard.layers.items():
        if name not in manifest.layers:
            continue
        columns = manifest.layers[name].shape[1]
        power, rest = divmod(columns, transform.K)
        if rest or power & (power - 1) or not power:
            odd = columns // (columns & -columns)
            times = f"{show(odd)} times " if odd > 1 else ""
            yield Problem(
                message="no transform of this order is as wide as the layer's input",
                pointer=pointer(*_TRANSFORMS, name, "K"),
                expected=f"K · 2^k = {show(columns)}",
                found=f"K = {show(transform.K)}",
                hint=f"{show(columns)} is {times}a power of two",
            )


def hadamard_siblings(manifest: Manifest) -> Iterator[Problem]:
    """BN1-HADAMARD-SIBLINGS: all decoder layers are alike."""
    transforms = manifest.online_hadamard.layers
    for last, layers in kinds(manifest.layers).items():
        without = [name for name in layers if name not in transforms]
        if len(without) == len(layers):
            continue
        for name in without:
            yield Problem(
                message=f"`{last}` has no online Hadamard transform here, but in other layers",
                pointer=pointer(LAYERS, name),
                expected="an entry in online_hadamard.layers",
                found="none",
            )
