"""Faults of the dashq example: tensors, config.json and index."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from nibblespec.conformance.examples.dashq_content_faults import DASHQ_CONTENT_FAULTS
from nibblespec.conformance.examples.faults import (
    Edit,
    Fault,
    change_bytes,
    change_document,
    change_json,
    named,
)
from nibblespec.conformance.examples.file_faults import file_faults
from nibblespec.conformance.examples.files import INDEX, Example, Files, Tensor, safetensors_bytes
from nibblespec.conformance.examples.models import LAYERS, SHARDS, pack_dashq, random_weight

_MODULE = "model.layers.1.self_attn.q_proj"
_FIRST, _SECOND = SHARDS
_NORM = "model.norm.weight"
_STRAY = {"model.stray": Tensor("F32", (2,), bytes(8))}


def _config(change: Callable[[dict[str, Any]], Any]) -> Edit:
    return change_document("config.json", change)


def _replace(name: str, dtype: str, shape: tuple[int, ...], repeat: int = 1) -> Edit:
    """Give a tensor of the second shard another dtype and shape, and its bytes repeated."""

    def edit(example: Example) -> None:
        shard = example.tensors[_SECOND]
        shard[name] = Tensor(dtype, shape, shard[name].data * repeat)

    return edit


def _add(name: str, dtype: str, shape: tuple[int, ...], size: int) -> Edit:
    return lambda example: example.tensors[_SECOND].update(
        {name: Tensor(dtype, shape, bytes(size))}
    )


def _drop(name: str) -> Edit:
    def edit(example: Example) -> None:
        del example.tensors[_SECOND][name]

    return edit


def _rename_shards(example: Example) -> None:
    example.tensors = {
        file.replace("00002", "00003"): tensors for file, tensors in example.tensors.items()
    }


def _duplicate(example: Example) -> None:
    example.tensors[_FIRST][_NORM] = example.tensors[_SECOND][_NORM]


def _nest_text_config(config: dict[str, Any]) -> None:
    config["text_config"] = {**config, "tie_word_embeddings": True}


def _two_experts(example: Example) -> None:
    """Give every layer a mixture of two experts, where config.json says four."""
    manifest, config = example.documents["dashq_config.json"], example.documents["config.json"]
    modules = manifest["quantized_modules"]
    shapes = {
        "gate_up_proj_list": (2 * config["intermediate_size"], config["hidden_size"]),
        "down_proj_list": (config["hidden_size"], config["intermediate_size"]),
    }
    for layer in range(LAYERS):
        for part, shape in shapes.items():
            for expert in range(2):
                name = f"model.layers.{layer}.mlp.experts.{part}.{expert}"
                modules[name] = pack_dashq(example.tensors[_FIRST], name, random_weight(*shape))
    config["num_experts"] = 4
    config["dashq"]["n_quantized_modules"] = len(modules)


TENSOR_FAULTS: Mapping[str, Fault] = {
    "no-zero": Fault(
        summary="a module without its zero points",
        requirements=("DQ1-TENSOR-PRESENT",),
        edit=_drop(f"{_MODULE}.zero"),
    ),
    "words-uint32": Fault(
        summary="packed words of dtype U32",
        requirements=("DQ1-TENSOR-WORDS-DTYPE",),
        edit=_replace(f"{_MODULE}.W_q_packed", "U32", (512,)),
    ),
    "words-2d": Fault(
        summary="packed words as a matrix",
        requirements=("DQ1-TENSOR-WORDS-SHAPE",),
        edit=_replace(f"{_MODULE}.W_q_packed", "I32", (64, 8)),
    ),
    "scale-bfloat16": Fault(
        summary="scales in bfloat16, where the manifest says float16",
        requirements=("DQ1-TENSOR-SCALE-DTYPE",),
        edit=_replace(f"{_MODULE}.scale", "BF16", (128, 1)),
    ),
    "scale-1d": Fault(
        summary="scales of shape [n] in place of [n, 1]",
        requirements=("DQ1-TENSOR-SCALE-SHAPE",),
        edit=_replace(f"{_MODULE}.scale", "F16", (128,)),
    ),
    "bias-float16": Fault(
        summary="a bias in float16, where linear_dtype is bfloat16",
        requirements=("DQ1-TENSOR-BIAS-DTYPE",),
        edit=_replace(f"{_MODULE}.bias", "F16", (64,)),
    ),
    "bias-2d": Fault(
        summary="a bias of shape [1, N]",
        requirements=("DQ1-TENSOR-BIAS-SHAPE",),
        edit=_replace(f"{_MODULE}.bias", "BF16", (1, 64)),
    ),
    "weight-too": Fault(
        summary="the unquantized weight beside the packed one",
        requirements=("DQ1-TENSOR-NO-WEIGHT",),
        edit=_add(f"{_MODULE}.weight", "BF16", (64, 64), 8192),
    ),
    "unlisted-words": Fault(
        summary="packed words of a module that the manifest does not list",
        requirements=("DQ1-TENSOR-UNLISTED",),
        edit=_add("model.layers.1.mlp.extra_proj.W_q_packed", "I32", (8,), 32),
    ),
    "extra-tensor": Fault(
        summary="a g_idx tensor among those of a module",
        requirements=("DQ1-TENSOR-EXTRA",),
        edit=_add(f"{_MODULE}.g_idx", "I32", (64,), 256),
    ),
    "foreign-tensor": Fault(
        summary="a scale that the fp8 base model left behind",
        requirements=("DQ1-TENSOR-FOREIGN",),
        edit=_add("lm_head.weight_scale_inv", "F32", (1,), 4),
    ),
}

CONFIG_FAULTS: Mapping[str, Fault] = {
    "no-config": Fault(
        summary="no config.json",
        requirements=("DQ1-CONFIG-PRESENT",),
        damage=lambda files: files.__delitem__("config.json"),
    ),
    "config-infinity": Fault(
        summary="a config.json with Infinity in it",
        requirements=("DQ1-CONFIG-FINITE",),
        edit=_config(lambda config: config.update(time_step_limit=[0.0, float("inf")])),
    ),
    "no-model-type": Fault(
        summary="a config.json that does not name its model",
        requirements=("DQ1-CONFIG-MODEL-TYPE",),
        edit=_config(lambda config: config.pop("model_type")),
    ),
    "no-vision": Fault(
        summary="a model class that sees images, without vision_config",
        requirements=("DQ1-CONFIG-CLASS",),
        edit=change_document(
            "dashq_config.json",
            lambda manifest: manifest.update(model_class="image_text_to_text"),
        ),
    ),
    "config-identity": Fault(
        summary="an identity in config.json with another number of modules",
        requirements=("DQ1-CONFIG-IDENTITY",),
        edit=_config(lambda config: config["dashq"].update(n_quantized_modules=7)),
    ),
    "config-quantization": Fault(
        summary="a quantization_config that the fp8 base model left behind",
        requirements=("DQ1-CONFIG-QUANTIZATION",),
        edit=_config(lambda config: config.update(quantization_config={"quant_method": "fp8"})),
    ),
    "config-types": Fault(
        summary="a config.json with the number of layers as a string",
        requirements=("DQ1-CONFIG-TYPES",),
        edit=_config(lambda config: config.update(num_hidden_layers="2")),
    ),
    "config-layers": Fault(
        summary="a config.json with one layer more",
        requirements=("DQ1-CONFIG-LAYERS",),
        edit=_config(lambda config: config.update(num_hidden_layers=3)),
    ),
    "config-vocabulary": Fault(
        summary="a config.json with a larger vocabulary",
        requirements=("DQ1-CONFIG-VOCABULARY",),
        edit=_config(lambda config: config.update(vocab_size=160)),
    ),
    "config-hidden": Fault(
        summary="a config.json of a wider model",
        requirements=("DQ1-CONFIG-HIDDEN", "DQ1-CONFIG-VOCABULARY"),
        edit=_config(lambda config: config.update(hidden_size=128)),
    ),
    "config-intermediate": Fault(
        summary="a config.json with another intermediate width",
        requirements=("DQ1-CONFIG-INTERMEDIATE",),
        edit=_config(lambda config: config.update(intermediate_size=128)),
    ),
    "config-heads": Fault(
        summary="a config.json with more heads",
        requirements=("DQ1-CONFIG-HEADS",),
        edit=_config(lambda config: config.update(num_key_value_heads=4)),
    ),
    "config-experts": Fault(
        summary="half of the experts that config.json says",
        requirements=("DQ1-CONFIG-EXPERTS",),
        edit=_two_experts,
    ),
    "tie-contradiction": Fault(
        summary="a config.json that says tied and untied",
        requirements=("DQ1-CONFIG-TIE-LEVELS",),
        edit=_config(_nest_text_config),
    ),
    "no-head": Fault(
        summary="untied embeddings without an output layer",
        requirements=("DQ1-CONFIG-UNTIED",),
        edit=_drop("lm_head.weight"),
    ),
    "tied-head": Fault(
        summary="tied embeddings with an output layer",
        requirements=("DQ1-CONFIG-TIED",),
        edit=_config(lambda config: config.update(tie_word_embeddings=True)),
    ),
}

_index = partial(change_json, INDEX)


def _map_to(tensor: str, file: str) -> Callable[[Files], None]:
    return _index(lambda index: index["weight_map"].update({tensor: file}))


INDEX_FAULTS: Mapping[str, Fault] = {
    "no-index": Fault(
        summary="two shards without an index",
        requirements=("ST-INDEX-REQUIRED",),
        damage=lambda files: files.__delitem__(INDEX),
    ),
    "index-and-single": Fault(
        summary="a model.safetensors beside shards and index",
        requirements=("ST-SHARD-SINGLE",),
        damage=lambda files: files.update(
            {"model.safetensors": safetensors_bytes(_STRAY, {"format": "pt"})}
        ),
    ),
    "shard-numbers": Fault(
        summary="shards 1 and 3 of 3, of which the index names no second",
        requirements=("ST-SHARD-NUMBERS",),
        edit=_rename_shards,
    ),
    "index-syntax": Fault(
        summary="an index that was cut off",
        requirements=("JSON-SYNTAX",),
        damage=change_bytes(INDEX, lambda data: data[:200]),
    ),
    "index-structure": Fault(
        summary="an index without weight_map",
        requirements=("ST-INDEX-STRUCTURE",),
        damage=_index(lambda index: index.pop("weight_map")),
    ),
    "index-metadata": Fault(
        summary="an index whose metadata is no object",
        requirements=("ST-INDEX-STRUCTURE",),
        damage=_index(lambda index: index.update(metadata=None)),
    ),
    "index-escape": Fault(
        summary="an index that leads out of the folder",
        requirements=("ST-INDEX-NAMES",),
        damage=_map_to(_NORM, f"../{_SECOND}"),
    ),
    "no-shard": Fault(
        summary="a shard that was not copied",
        requirements=("ST-INDEX-FILES",),
        damage=lambda files: files.__delitem__(_SECOND),
    ),
    "phantom": Fault(
        summary="a tensor in the index that is in no file",
        requirements=("ST-INDEX-TENSORS",),
        damage=_map_to("model.rotary.inv_freq", _FIRST),
    ),
    "wrong-shard": Fault(
        summary="a tensor that is in another shard than the index says",
        requirements=("ST-INDEX-TENSORS",),
        damage=_map_to(_NORM, _FIRST),
    ),
    "total-size": Fault(
        summary="an index with a wrong total_size",
        requirements=("ST-INDEX-TOTAL",),
        damage=_index(lambda index: index["metadata"].update(total_size=1)),
    ),
    "stale-shard": Fault(
        summary="a safetensors file that the index does not name",
        requirements=("ST-SHARD-LISTED",),
        damage=lambda files: files.update(
            {"model-old.safetensors": safetensors_bytes(_STRAY, {"format": "pt"})}
        ),
    ),
    "unindexed": Fault(
        summary="a tensor of a shard that the index lacks",
        requirements=("ST-SHARD-TENSORS",),
        damage=_index(lambda index: index["weight_map"].pop(_NORM)),
    ),
    "twice": Fault(
        summary="a tensor in both shards",
        requirements=("ST-TENSOR-UNIQUE",),
        edit=_duplicate,
    ),
}

DASHQ_FAULTS = named(
    {
        **TENSOR_FAULTS,
        **CONFIG_FAULTS,
        **INDEX_FAULTS,
        **DASHQ_CONTENT_FAULTS,
        **file_faults(_SECOND, _NORM),
    }
)
"""Every fault of the dashq example, by name."""
