"""The rules on manifests of `bitnest-package-v1`, by requirement id."""

import re
from collections.abc import Iterator, Mapping

from nibblespec.conformance.artifacts import names
from nibblespec.conformance.artifacts.bitnest import layers as bitnest_layers
from nibblespec.conformance.artifacts.bitnest import rope as bitnest_rope
from nibblespec.conformance.artifacts.bitnest import shapes as bitnest_shapes
from nibblespec.conformance.artifacts.bitnest import transforms as bitnest_transforms
from nibblespec.conformance.artifacts.bitnest.decoder import LAYERS, place
from nibblespec.conformance.artifacts.findings import Problem, Rule
from nibblespec.conformance.artifacts.output.show import show
from nibblespec.spec.bitnest_package.v1.manifest import Manifest
from nibblespec.spec.json_strict import pointer

_OUTSIDE = re.compile(r"[\\:\x00-\x1f\x7f-\x9f]")


def source_model(manifest: Manifest) -> Iterator[Problem]:
    """BN1-SOURCE-MODEL: a Hub id."""
    return names.hub_id(manifest.source_model, "source_model")


def rotation_path(manifest: Manifest) -> Iterator[Problem]:
    """BN1-ROTATION-PATH: a file inside the package."""
    name = manifest.rotation
    if name is None:
        return
    if _OUTSIDE.search(name) or any(part in ("", ".", "..") for part in name.split("/")):
        yield Problem(
            message="`rotation` does not stay inside the package",
            pointer=pointer("rotation"),
            expected="a relative path of plain segments, such as R.bin or rotation/R.bin",
            found=show(name),
        )


def norms_fused(manifest: Manifest) -> Iterator[Problem]:
    """BN1-NORMS-FUSED: norm weights are somewhere."""
    norms = manifest.norms
    if norms is not None and norms.fused is False and norms.decoder_norms_identity is True:
        yield Problem(
            message="norms that are not fused cannot be left out as ones",
            pointer=pointer("norms", "decoder_norms_identity"),
            expected="false, since `fused` is false",
            found="true",
        )


def name_segments(manifest: Manifest) -> Iterator[Problem]:
    """BN1-NAME-SEGMENTS: no empty segment."""
    return names.segments(manifest.layers, LAYERS)


def name_characters(manifest: Manifest) -> Iterator[Problem]:
    """BN1-NAME-CHARACTERS: no separators, control characters or stray white space."""
    return names.characters(manifest.layers, LAYERS)


def name_nested(manifest: Manifest) -> Iterator[Problem]:
    """BN1-NAME-NESTED: no layer inside another."""
    return names.nested(manifest.layers, LAYERS)


def name_known(manifest: Manifest) -> Iterator[Problem]:
    """BN1-NAME-KNOWN: layers that the architectures have."""
    for name in manifest.layers:
        if place(name) is None and name != "lm_head":
            yield Problem(
                message="readers of this architecture know no such layer",
                pointer=pointer(LAYERS, name),
                expected="lm_head, or model.layers.i. and one of the seven layers",
                found=show(name),
            )


RULES: Mapping[str, Rule[Manifest]] = {
    "BN1-SOURCE-MODEL": source_model,
    "BN1-ROTATION-PATH": rotation_path,
    "BN1-GROUP-SIZE-KERNELS": bitnest_layers.kernels,
    "BN1-LAYER-EVEN": bitnest_layers.even,
    "BN1-LAYER-GROUP-SIZE": bitnest_layers.group_size,
    "BN1-LAYER-GROUPS": bitnest_layers.groups,
    "BN1-LAYER-SIZE": bitnest_layers.size,
    "BN1-LAYERS-PRESENT": bitnest_layers.present,
    "BN1-LAYERS-COMPLETE": bitnest_layers.complete,
    "BN1-LAYERS-CONTIGUOUS": bitnest_layers.contiguous,
    "BN1-SHAPE-KV": bitnest_shapes.key_value,
    "BN1-SHAPE-QO": bitnest_shapes.query_output,
    "BN1-SHAPE-HEADS": bitnest_shapes.heads,
    "BN1-SHAPE-GATE-UP": bitnest_shapes.gate_up,
    "BN1-SHAPE-DOWN": bitnest_shapes.down,
    "BN1-SHAPE-HIDDEN": bitnest_shapes.hidden,
    "BN1-BIAS-QWEN2": bitnest_shapes.bias_qwen2,
    "BN1-BIAS-LLAMA": bitnest_shapes.bias_llama,
    "BN1-BIAS-UNIFORM": bitnest_shapes.bias_uniform,
    "BN1-NORMS-FUSED": norms_fused,
    "BN1-ROPE-THETA": bitnest_rope.theta,
    "BN1-ROPE-FACTOR": bitnest_rope.factor,
    "BN1-ROPE-BANDS": bitnest_rope.bands,
    "BN1-ROPE-POSITIONS": bitnest_rope.positions,
    "BN1-ROPE-TYPE": bitnest_rope.kind,
    "BN1-ACTIVATION-LAYERS": bitnest_transforms.activation_layers,
    "BN1-ACTIVATION-GROUP": bitnest_transforms.activation_group,
    "BN1-ACTIVATION-HEAD": bitnest_transforms.activation_head,
    "BN1-ACTIVATION-UNIFORM": bitnest_transforms.activation_uniform,
    "BN1-HADAMARD-LAYERS": bitnest_transforms.hadamard_layers,
    "BN1-HADAMARD-WIDTH": bitnest_transforms.hadamard_width,
    "BN1-HADAMARD-SIBLINGS": bitnest_transforms.hadamard_siblings,
    "BN1-NAME-SEGMENTS": name_segments,
    "BN1-NAME-CHARACTERS": name_characters,
    "BN1-NAME-NESTED": name_nested,
    "BN1-NAME-KNOWN": name_known,
}
"""Rules yield what breaks their requirement; the structure checks the rest of the level."""
