"""Rules on layers of `bitnest-package-v1` that belong together: shapes and biases."""

from collections.abc import Iterator

from nibblespec.conformance.artifacts.bitnest.decoder import (
    LAYERS,
    SEVEN,
    decoder,
    kinds,
    path,
    place,
)
from nibblespec.conformance.artifacts.findings import Problem
from nibblespec.conformance.artifacts.output.show import show
from nibblespec.conformance.artifacts.siblings import most_common
from nibblespec.spec.bitnest_package.v1.manifest import Layer, Manifest
from nibblespec.spec.json_strict import pointer

Q, K, V, OUT, GATE, UP, DOWN = SEVEN
_N, _K = 0, 1
"""Axes of a shape."""

_BIASED = (Q, K, V)
"""Layers of qwen2 that have a bias."""


def _pairs(manifest: Manifest, one: str, other: str) -> Iterator[tuple[str, Layer, Layer]]:
    """Yield two of SEVEN in every decoder layer that has both, with its number."""
    for number, layers in decoder(manifest.layers).items():
        if one in layers and other in layers:
            yield number, layers[one], layers[other]


def _problem(name: str, axis: int, message: str, expected: str, layer: Layer) -> Problem:
    return Problem(
        message=message,
        pointer=pointer(LAYERS, name, "shape", axis),
        expected=expected,
        found=show(layer.shape[axis]),
    )


def key_value(manifest: Manifest) -> Iterator[Problem]:
    """BN1-SHAPE-KV: as many value rows as key rows."""
    for number, key, value in _pairs(manifest, K, V):
        if key.shape[_N] != value.shape[_N]:
            expected = f"{show(key.shape[_N])}, as k_proj has"
            message = "`k_proj` and `v_proj` differ in N"
            yield _problem(path(number, V), _N, message, expected, value)


def query_output(manifest: Manifest) -> Iterator[Problem]:
    """BN1-SHAPE-QO: o_proj takes what the query heads give."""
    for number, query, output in _pairs(manifest, Q, OUT):
        if query.shape[_N] != output.shape[_K]:
            expected = f"{show(query.shape[_N])}, the N of q_proj"
            message = "`o_proj` does not take what `q_proj` gives"
            yield _problem(path(number, OUT), _K, message, expected, output)


def heads(manifest: Manifest) -> Iterator[Problem]:
    """BN1-SHAPE-HEADS: whole numbers of query heads for each key head."""
    for number, query, key in _pairs(manifest, Q, K):
        if query.shape[_N] % key.shape[_N]:
            expected = f"a multiple of {show(key.shape[_N])}"
            message = "N of `q_proj` is no multiple of N of `k_proj`"
            yield _problem(path(number, Q), _N, message, expected, query)


def gate_up(manifest: Manifest) -> Iterator[Problem]:
    """BN1-SHAPE-GATE-UP: the gate is multiplied with what it gates."""
    for number, gate, up in _pairs(manifest, GATE, UP):
        if gate.shape[_N] != up.shape[_N]:
            expected = f"{show(gate.shape[_N])}, as gate_proj has"
            message = "`gate_proj` and `up_proj` differ in N"
            yield _problem(path(number, UP), _N, message, expected, up)


def down(manifest: Manifest) -> Iterator[Problem]:
    """BN1-SHAPE-DOWN: down_proj takes what the layers before it give."""
    for number, layers in decoder(manifest.layers).items():
        before = [layers[last].shape[_N] for last in (GATE, UP) if last in layers]
        if DOWN in layers and before and layers[DOWN].shape[_K] not in before:
            expected = " or ".join(dict.fromkeys(map(show, before)))
            message = "`down_proj` does not take what the layers before it give"
            yield _problem(path(number, DOWN), _K, message, expected, layers[DOWN])


def _outer_axis(name: str) -> int | None:
    """Return the axis of a layer that is as wide as the model, None for unknown layers."""
    if name == "lm_head":
        return _K
    at = place(name)
    return None if at is None else _N if at[1] in (OUT, DOWN) else _K


def hidden(manifest: Manifest) -> Iterator[Problem]:
    """BN1-SHAPE-HIDDEN: all layers read from and write to one stream."""
    axes = {name: axis for name in manifest.layers if (axis := _outer_axis(name)) is not None}
    width = most_common(manifest.layers[name].shape[axis] for name, axis in axes.items())
    for name, axis in axes.items():
        if manifest.layers[name].shape[axis] != width:
            message = f"{'N' if axis == _N else 'K'} is not the width of the model"
            expected = f"{show(width)}, as most layers have"
            yield _problem(name, axis, message, expected, manifest.layers[name])


def bias_qwen2(manifest: Manifest) -> Iterator[Problem]:
    """BN1-BIAS-QWEN2: biases where the architecture has them."""
    if manifest.arch != "qwen2":
        return
    for name, layer in manifest.layers.items():
        at = place(name)
        expected = at is not None and at[1] in _BIASED
        if layer.has_bias != expected:
            yield Problem(
                message=f"qwen2 has {'a' if expected else 'no'} bias in this layer",
                pointer=pointer(LAYERS, name, "has_bias"),
                expected=show(expected),
                found=show(layer.has_bias),
            )


def bias_llama(manifest: Manifest) -> Iterator[Problem]:
    """BN1-BIAS-LLAMA: published llama packages have no biases."""
    if manifest.arch != "llama":
        return
    for name, layer in manifest.layers.items():
        if layer.has_bias:
            yield Problem(
                message="the layer has a bias, which is rare in llama",
                pointer=pointer(LAYERS, name, "has_bias"),
                expected="false, unless the model's configuration asks for it",
                found="true",
            )


def bias_uniform(manifest: Manifest) -> Iterator[Problem]:
    """BN1-BIAS-UNIFORM: all decoder layers are alike."""
    if manifest.arch != "llama":
        return
    for last, layers in kinds(manifest.layers).items():
        usual = most_common(layer.has_bias for layer in layers.values())
        for name, layer in layers.items():
            if layer.has_bias != usual:
                yield Problem(
                    message=f"`has_bias` of `{last}` differs between decoder layers",
                    pointer=pointer(LAYERS, name, "has_bias"),
                    expected=f"{show(usual)}, as in most",
                    found=show(layer.has_bias),
                )
