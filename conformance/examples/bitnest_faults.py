"""Faults of the bitnest example: tensors, files and config.json."""

from collections.abc import Callable, Mapping
from typing import Any

from nibblespec.conformance.examples.bitnest_content_faults import BITNEST_CONTENT_FAULTS
from nibblespec.conformance.examples.faults import Edit, Fault, change_document, named
from nibblespec.conformance.examples.file_faults import file_faults
from nibblespec.conformance.examples.files import Example, Files, Tensor, safetensors_bytes
from nibblespec.conformance.examples.models import nest, random_weight

_PLANES, _AUX = "planes.safetensors", "aux.safetensors"
_LAYER = "model.layers.1.self_attn.q_proj"


def _config(change: Callable[[dict[str, Any]], Any]) -> Edit:
    return change_document("config.json", change)


def _replace(file: str, name: str, dtype: str, shape: tuple[int, ...]) -> Edit:
    def edit(example: Example) -> None:
        tensors = example.tensors[file]
        tensors[name] = Tensor(dtype, shape, tensors[name].data)

    return edit


def _add(file: str, name: str, dtype: str, shape: tuple[int, ...], size: int) -> Edit:
    return lambda example: example.tensors[file].update({name: Tensor(dtype, shape, bytes(size))})


def _drop(file: str, name: str) -> Edit:
    def edit(example: Example) -> None:
        del example.tensors[file][name]

    return edit


def _move_plane(example: Example) -> None:
    name = f"{_LAYER}.lo"
    example.tensors[_AUX][name] = example.tensors[_PLANES].pop(name)


def _nest_head_too(example: Example) -> None:
    weight = random_weight(64, 256)
    head = nest(example.tensors[_PLANES], "lm_head", weight, bias=False)
    example.documents["meta.json"]["layers"]["lm_head"] = head


def _norms_not_identity(example: Example) -> None:
    example.documents["meta.json"]["norms"].update(fused=False, decoder_norms_identity=False)


def _halve_head_groups(meta: dict[str, Any]) -> None:
    groups = meta["activation"]["per_layer_group"]
    groups.update({name: 64 for name, group in groups.items() if group == 128})


def _add_file(name: str, data: bytes) -> Callable[[Files], None]:
    return lambda files: files.update({name: data})


TENSOR_FAULTS: Mapping[str, Fault] = {
    "no-plane": Fault(
        summary="a layer without its plane lo",
        requirements=("BN1-PLANES-PRESENT",),
        edit=_drop(_PLANES, f"{_LAYER}.lo"),
    ),
    "plane-in-aux": Fault(
        summary="a plane in the wrong file",
        requirements=("BN1-PLANES-PRESENT", "BN1-AUX-EXTRA"),
        edit=_move_plane,
    ),
    "no-bias": Fault(
        summary="a layer whose has_bias is true, without a bias",
        requirements=("BN1-PLANES-BIAS",),
        edit=_drop(_PLANES, f"{_LAYER}.bias"),
    ),
    "denied-bias": Fault(
        summary="a bias where has_bias is false",
        requirements=("BN1-PLANES-BIAS",),
        edit=_add(_PLANES, "model.layers.1.self_attn.o_proj.bias", "F16", (256,), 512),
    ),
    "scale-bfloat16": Fault(
        summary="scales in bfloat16",
        requirements=("BN1-PLANES-DTYPE",),
        edit=_replace(_PLANES, f"{_LAYER}.scale", "BF16", (256, 2)),
    ),
    "scale-transposed": Fault(
        summary="scales of shape [G, N]",
        requirements=("BN1-PLANES-SHAPE",),
        edit=_replace(_PLANES, f"{_LAYER}.scale", "F16", (2, 256)),
    ),
    "weight-too": Fault(
        summary="the unquantized weight beside the planes",
        requirements=("BN1-PLANES-EXTRA",),
        edit=_add(_PLANES, f"{_LAYER}.weight", "BF16", (256, 256), 2 * 256 * 256),
    ),
    "no-embedding": Fault(
        summary="no embed_tokens",
        requirements=("BN1-AUX-PRESENT",),
        edit=_drop(_AUX, "embed_tokens"),
    ),
    "no-head": Fault(
        summary="an output layer neither nested nor stored",
        requirements=("BN1-AUX-LM-HEAD",),
        edit=_drop(_AUX, "lm_head"),
    ),
    "two-heads": Fault(
        summary="an output layer both nested and stored",
        requirements=("BN1-AUX-LM-HEAD",),
        edit=_nest_head_too,
    ),
    "no-hadamard": Fault(
        summary="no matrix for a transform with K = 12",
        requirements=("BN1-AUX-HADAMARD",),
        edit=_drop(_AUX, "had_K.12"),
    ),
    "no-norms": Fault(
        summary="norms that are not the identity and not stored",
        requirements=("BN1-AUX-NORMS",),
        edit=_norms_not_identity,
    ),
    "half-of-norms": Fault(
        summary="one stored norm of four",
        requirements=("BN1-AUX-NORMS-PARTIAL",),
        edit=lambda example: example.tensors[_AUX].update(
            {"layers.0.input_layernorm": example.tensors[_AUX]["final_norm"]}
        ),
    ),
    "aux-float16": Fault(
        summary="a final norm in float16",
        requirements=("BN1-AUX-DTYPE",),
        edit=_replace(_AUX, "final_norm", "F16", (256,)),
    ),
    "aux-2d": Fault(
        summary="a final norm of shape [1, H]",
        requirements=("BN1-AUX-SHAPE",),
        edit=_replace(_AUX, "final_norm", "BF16", (1, 256)),
    ),
    "unused-hadamard": Fault(
        summary="a matrix that no layer uses",
        requirements=("BN1-AUX-EXTRA",),
        edit=_add(_AUX, "had_K.2", "F32", (2, 2), 16),
    ),
    "no-metadata": Fault(
        summary="planes without their metadata",
        requirements=("BN1-METADATA-FORMAT",),
        edit=lambda example: example.metadata.update({_PLANES: {}}),
    ),
}

FILE_FAULTS: Mapping[str, Fault] = {
    "no-aux": Fault(
        summary="no aux.safetensors",
        requirements=("BN1-FILES-TENSORS",),
        damage=lambda files: files.__delitem__(_AUX),
    ),
    "extra-file": Fault(
        summary="a third tensor file",
        requirements=("BN1-FILES-EXTRA",),
        damage=_add_file(
            "model.safetensors", safetensors_bytes({"x": Tensor("F32", (), bytes(4))}, {})
        ),
    ),
    "rotation": Fault(
        summary="the rotation, a pickle",
        requirements=("BN1-FILES-ROTATION",),
        damage=_add_file("rotation/R.bin", b"\x80\x04N."),
    ),
    "leftover": Fault(
        summary="a leftover of nesting the output layer",
        requirements=("BN1-FILES-LEFTOVER",),
        damage=_add_file("meta.json.pre_lmhead", b"{}"),
    ),
    "twice": Fault(
        summary="a tensor in both files",
        requirements=("ST-TENSOR-UNIQUE", "BN1-PLANES-EXTRA"),
        edit=lambda example: example.tensors[_PLANES].update(
            {"final_norm": example.tensors[_AUX]["final_norm"]}
        ),
    ),
}

CONFIG_FAULTS: Mapping[str, Fault] = {
    "no-config": Fault(
        summary="no config.json",
        requirements=("BN1-CONFIG-PRESENT",),
        damage=lambda files: files.__delitem__("config.json"),
    ),
    "config-keys": Fault(
        summary="a config.json without the epsilon of the norms",
        requirements=("BN1-CONFIG-KEYS",),
        edit=_config(lambda config: config.pop("rms_norm_eps")),
    ),
    "config-arch": Fault(
        summary="a config.json of another architecture",
        requirements=("BN1-CONFIG-ARCH",),
        edit=_config(lambda config: config.update(model_type="llama")),
    ),
    "config-layers": Fault(
        summary="a config.json with one layer more",
        requirements=("BN1-CONFIG-LAYERS",),
        edit=_config(lambda config: config.update(num_hidden_layers=3)),
    ),
    "config-widths": Fault(
        summary="a config.json with another intermediate width",
        requirements=("BN1-CONFIG-WIDTHS",),
        edit=_config(lambda config: config.update(intermediate_size=512)),
    ),
    "config-vocabulary": Fault(
        summary="a config.json with a larger vocabulary",
        requirements=("BN1-AUX-SHAPE",),
        edit=_config(lambda config: config.update(vocab_size=80)),
    ),
    "head-group": Fault(
        summary="activation groups of o_proj that are half a head wide",
        requirements=("BN1-CONFIG-HEAD-GROUP",),
        edit=change_document("meta.json", _halve_head_groups),
    ),
    "config-tied": Fault(
        summary="a config.json that says tied embeddings",
        requirements=("BN1-CONFIG-UNTIED",),
        edit=_config(lambda config: config.update(tie_word_embeddings=True)),
    ),
    "config-rope": Fault(
        summary="a config.json with another RoPE base than the manifest",
        requirements=("BN1-CONFIG-ROPE",),
        edit=_config(lambda config: config.update(rope_theta=10000.0)),
    ),
}


BITNEST_FAULTS = named(
    {
        **TENSOR_FAULTS,
        **FILE_FAULTS,
        **CONFIG_FAULTS,
        **BITNEST_CONTENT_FAULTS,
        **file_faults(_AUX, "lm_head"),
    }
)
"""Every fault of the bitnest example, by name."""
