"""`config.json` of a dashq checkpoint against its manifest and its tensors."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from nibblespec.conformance.artifacts.dashq.inventory import MANIFEST, DashqInventory
from nibblespec.conformance.artifacts.findings import Problem, Rule
from nibblespec.conformance.artifacts.output.show import show
from nibblespec.conformance.artifacts.reading.model_config import (
    Config,
    integer,
    text_config,
)
from nibblespec.conformance.artifacts.reading.tensor_entries import shape_fits, shape_text
from nibblespec.spec.json_strict import pointer

_SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
)
_LAYER = re.compile(
    r"(?P<stack>model\.language_model|language_model\.model|language_model|model|backbone)"
    r"\.layers\.(?P<layer>[0-9]{1,9})\.(?P<rest>.+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DashqConfig:
    """The configuration beside what it has to agree with."""

    config: Config
    inventory: DashqInventory
    stack: str
    """P of the text: where the decoder layers are; empty where that is not known."""
    modules: tuple[tuple[str, int, str], ...]
    """Modules of decoder layers: full name, layer and the name inside the layer."""


def join(config: Config, inventory: DashqInventory) -> DashqConfig:
    """Find the decoder layers among the modules, or among the tensors if they have none."""
    names = inventory.manifest.quantized_modules
    matches = [match for name in names if (match := _LAYER.fullmatch(name))]
    stacks = Counter(match["stack"] for match in matches) or Counter(
        match["stack"] for name in inventory.tensors if (match := _LAYER.fullmatch(name))
    )
    stack = stacks.most_common(1)[0][0] if stacks else ""
    return DashqConfig(
        config=config,
        inventory=inventory,
        stack=stack,
        modules=tuple(
            (match[0], int(match["layer"]), match["rest"])
            for match in matches
            if match["stack"] == stack
        ),
    )


def _model_type(subject: DashqConfig) -> Iterator[Problem]:
    given = subject.config.get("model_type")
    if not isinstance(given, str):
        yield Problem(
            message="config.json does not say which model it is",
            pointer=pointer("model_type") if "model_type" in subject.config else "",
            expected="a string under the key model_type",
            found=show(given) if "model_type" in subject.config else "no such key",
        )


def _class(subject: DashqConfig) -> Iterator[Problem]:
    multimodal = subject.inventory.manifest.model_class == "image_text_to_text"
    if multimodal and not isinstance(subject.config.get("vision_config"), dict):
        yield Problem(
            message="the manifest says that the model sees images, config.json does not",
            expected="an object vision_config, as model_class is image_text_to_text",
            found="none",
        )


def _identity(subject: DashqConfig) -> Iterator[Problem]:
    if "dashq" not in subject.config:
        return
    given, manifest = subject.config["dashq"], subject.inventory.manifest
    if not isinstance(given, dict):
        yield Problem(
            message="the identity in config.json is no object",
            pointer=pointer("dashq"),
            expected="an object",
            found=show(given),
        )
        return
    expected = {
        "format": manifest.format,
        "format_version": manifest.format_version,
        "method": manifest.method,
        "n_quantized_modules": len(manifest.quantized_modules),
    }
    for key, value in expected.items():
        stated = given.get(key)
        if key in given and value is not None and (isinstance(stated, bool) or stated != value):
            yield Problem(
                message="the identity in config.json is not that of the manifest",
                pointer=pointer("dashq", key),
                expected=show(value),
                found=show(stated),
            )


def _quantization(subject: DashqConfig) -> Iterator[Problem]:
    given = subject.config.get("quantization_config")
    method = given.get("quant_method") if isinstance(given, dict) else None
    if given is not None and method != "dashq":
        yield Problem(
            message="config.json announces another quantization format",
            pointer=pointer("quantization_config"),
            expected="no quantization_config",
            found=f"quant_method {show(method)}" if method is not None else show(given),
            hint="remove it: loaders would look for that format's tensors",
        )


def _types(subject: DashqConfig) -> Iterator[Problem]:
    text, path = text_config(subject.config)
    for key in _SIZES:
        value = text.get(key)
        if not (value is None or isinstance(value, list) or integer(text, key)):
            yield Problem(
                message="a size in config.json is none",
                pointer=pointer(*path, key),
                expected="an integer of at least 1",
                found=show(value),
                hint="nothing was compared with it",
            )
    for place in sorted({(), path}):
        value = (text if place else subject.config).get("tie_word_embeddings")
        if not (value is None or isinstance(value, bool)):
            yield Problem(
                message="config.json does not say whether embeddings are tied",
                pointer=pointer(*place, "tie_word_embeddings"),
                expected="true or false",
                found=show(value),
                hint="the value was left aside",
            )


def _layers(subject: DashqConfig) -> Iterator[Problem]:
    text, path = text_config(subject.config)
    expected, more = integer(text, "num_hidden_layers"), integer(text, "num_nextn_predict_layers")
    if expected is None or not subject.stack:
        return
    inventory = subject.inventory
    names = (*inventory.tensors, *inventory.lost, *inventory.manifest.quantized_modules)
    matches = (_LAYER.fullmatch(name) for name in names)
    present = {
        int(match["layer"]) for match in matches if match and match["stack"] == subject.stack
    }
    beyond = sorted(layer for layer in present if layer >= expected + (more or 0))
    absent = (
        []
        if inventory.blind
        else list(islice((layer for layer in range(expected) if layer not in present), 4))
    )
    for layers, what in ((beyond, "beyond them"), (absent, "without tensors")):
        if layers:
            listed = ", ".join(map(str, layers[:3])) + (", …" if len(layers) > 3 else "")
            yield Problem(
                message="the decoder layers are not those of config.json",
                pointer=pointer(*path, "num_hidden_layers"),
                expected=f"{expected} layers, {subject.stack}.layers.0 to {expected - 1}",
                found=f"layers {what}: {listed}",
            )


def _vocabulary(subject: DashqConfig) -> Iterator[Problem]:
    text = text_config(subject.config)[0]
    expected = (integer(text, "vocab_size"), integer(text, "hidden_size"))
    embedding = f"{subject.stack}.embed_tokens.weight"
    for name, entry in subject.inventory.tensors.items():
        if (name == embedding or _is_head(name)) and not shape_fits(entry.shape, expected):
            yield Problem(
                message="embedding or output layer do not have the shape that config.json gives",
                file=subject.inventory.files[name],
                pointer=pointer(name, "shape"),
                tensor=name,
                expected=f"{shape_text(expected)} (vocab_size, hidden_size)",
                found=shape_text(entry.shape),
            )
    for name, module in subject.inventory.manifest.quantized_modules.items():
        shape = (module.out_features, module.in_features)
        if _is_head(f"{name}.weight") and not shape_fits(shape, expected):
            yield Problem(
                message="the packed output layer does not have the shape that config.json gives",
                file=MANIFEST,
                pointer=pointer("quantized_modules", name),
                expected=f"{shape_text(expected)} (vocab_size, hidden_size)",
                found=shape_text(shape),
            )


def _tie(config: Config) -> set[bool]:
    """Return what config.json and its text configuration say about tied embeddings."""
    values = (level.get("tie_word_embeddings") for level in (config, text_config(config)[0]))
    return {value for value in values if isinstance(value, bool)}


def _is_head(name: str) -> bool:
    return name == "lm_head.weight" or name.endswith(".lm_head.weight")


def _head(inventory: DashqInventory) -> str | None:
    """Return the name of the output layer, None where there is none."""
    modules = (f"{name}.weight" for name in inventory.manifest.quantized_modules)
    names = (*inventory.tensors, *inventory.lost, *modules)
    return next((name for name in names if _is_head(name)), None)


def _tie_levels(subject: DashqConfig) -> Iterator[Problem]:
    if len(_tie(subject.config)) > 1:
        _, path = text_config(subject.config)
        yield Problem(
            message="config.json says twice whether embeddings are tied, and contradicts itself",
            pointer=pointer("tie_word_embeddings"),
            expected="one value",
            found=f"another value in {pointer(*path, 'tie_word_embeddings')}",
        )


def _untied(subject: DashqConfig) -> Iterator[Problem]:
    inventory = subject.inventory
    embedded = f"{subject.stack}.embed_tokens.weight" in inventory.tensors
    headless = _head(inventory) is None and not inventory.blind
    if _tie(subject.config) == {False} and embedded and headless:
        yield Problem(
            message="embeddings are not tied, and there is no output layer",
            pointer=pointer("tie_word_embeddings"),
            expected="a tensor lm_head.weight",
            found="none",
            hint="store the output layer, or set tie_word_embeddings to true",
        )


def _tied(subject: DashqConfig) -> Iterator[Problem]:
    head = _head(subject.inventory)
    if _tie(subject.config) == {True} and head is not None:
        yield Problem(
            message="embeddings are tied, and there is an output layer all the same",
            pointer=pointer("tie_word_embeddings"),
            tensor=head,
            expected="no output layer",
            found=head,
            hint="remove the output layer, or set tie_word_embeddings to false",
        )


DASHQ_CONFIG_RULES: Mapping[str, Rule[DashqConfig]] = {
    "DQ1-CONFIG-MODEL-TYPE": _model_type,
    "DQ1-CONFIG-CLASS": _class,
    "DQ1-CONFIG-IDENTITY": _identity,
    "DQ1-CONFIG-QUANTIZATION": _quantization,
    "DQ1-CONFIG-TYPES": _types,
    "DQ1-CONFIG-LAYERS": _layers,
    "DQ1-CONFIG-VOCABULARY": _vocabulary,
    "DQ1-CONFIG-TIE-LEVELS": _tie_levels,
    "DQ1-CONFIG-UNTIED": _untied,
    "DQ1-CONFIG-TIED": _tied,
}
"""What config.json of a checkpoint has to agree with."""
