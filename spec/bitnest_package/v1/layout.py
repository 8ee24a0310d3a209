"""The tensors of `bitnest-package-v1`, as its manifest implies them.

For each entry of `layers` with shape [N, K] and G groups a row, planes.safetensors holds two
nibble planes and one scale per group. aux.safetensors holds what is not nested.
"""

import re
from collections.abc import Iterator

from nibblespec.spec.bitnest_package.v1.manifest import Layer, Manifest
from nibblespec.spec.tensors import TensorSpec

PLANES = "planes.safetensors"
AUX = "aux.safetensors"

_DECODER_LAYER = re.compile(r"model\.layers\.([0-9]+)\.")


def expected_tensors(manifest: Manifest, vocab_size: int | None = None) -> Iterator[TensorSpec]:
    """Yield every tensor of the package, in the order of the manifest, planes first.

    The manifest does not hold the vocabulary size V: without it, the first dimension of
    `embed_tokens` and `lm_head` is None. The model's width H is the input width of q_proj.
    """
    for module, layer in manifest.layers.items():
        yield from layer_tensors(module, layer)
    yield from _aux_tensors(manifest, vocab_size)


def layer_tensors(module: str, layer: Layer) -> Iterator[TensorSpec]:
    """Yield the tensors of one nested layer: hi, lo, scale and, if it has one, its bias."""
    rows, columns = layer.shape
    plane = (rows, columns // 2)
    yield TensorSpec(
        name=f"{module}.hi", dtype="U8", shape=plane, role="hi", module=module, file=PLANES
    )
    yield TensorSpec(
        name=f"{module}.lo", dtype="U8", shape=plane, role="lo", module=module, file=PLANES
    )
    yield TensorSpec(
        name=f"{module}.scale",
        dtype="F16",
        shape=(rows, layer.groups),
        role="scale",
        module=module,
        file=PLANES,
    )
    if layer.has_bias:
        yield TensorSpec(
            name=f"{module}.bias",
            dtype="F16",
            shape=(rows,),
            role="bias",
            module=module,
            file=PLANES,
        )


def _aux_tensors(manifest: Manifest, vocab_size: int | None) -> Iterator[TensorSpec]:
    width = _model_width(manifest)
    table = (vocab_size, width)
    yield TensorSpec(name="embed_tokens", dtype="BF16", shape=table, role="embedding", file=AUX)
    yield TensorSpec(name="final_norm", dtype="BF16", shape=(width,), role="norm", file=AUX)
    if "lm_head" not in manifest.layers:
        yield TensorSpec(name="lm_head", dtype="BF16", shape=table, role="lm_head", file=AUX)
    for order in sorted({layer.K for layer in manifest.online_hadamard.layers.values()} - {1}):
        yield TensorSpec(
            name=f"had_K.{order}", dtype="F32", shape=(order, order), role="hadamard", file=AUX
        )
    stored = manifest.norms is not None and manifest.norms.decoder_norms_identity is False
    for index in _decoder_layers(manifest):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield TensorSpec(
                name=f"layers.{index}.{norm}",
                dtype="BF16",
                shape=(width,),
                role="norm",
                file=AUX,
                required=stored,
            )


def _model_width(manifest: Manifest) -> int | None:
    inputs = (
        layer.shape[1]
        for module, layer in manifest.layers.items()
        if module.endswith(".self_attn.q_proj")
    )
    return next(inputs, None)


def _decoder_layers(manifest: Manifest) -> Iterator[str]:
    matches = (_DECODER_LAYER.match(module) for module in manifest.layers)
    yield from dict.fromkeys(match[1] for match in matches if match)
