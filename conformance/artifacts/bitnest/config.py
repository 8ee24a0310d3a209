"""`config.json` of a bitnest package against its manifest."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nibblespec.conformance.artifacts.bitnest.inventory import MANIFEST
from nibblespec.conformance.artifacts.findings import Problem, Rule
from nibblespec.conformance.artifacts.output.show import show
from nibblespec.conformance.artifacts.reading.model_config import (
    Config,
    head_dim,
    integer,
    key_value_heads,
)
from nibblespec.conformance.artifacts.reading.tensor_entries import shape_fits, shape_text
from nibblespec.spec.bitnest_package.v1.manifest import Manifest
from nibblespec.spec.json_strict import pointer

_SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "vocab_size",
)
_SIZES_BY_DEFAULT = ("num_key_value_heads", "head_dim")
"""Sizes that follow from others where they are not given."""
_LAYER = re.compile(r"model\.layers\.(?P<layer>[0-9]+)\.(?:self_attn|mlp)\.(?P<kind>[a-z]+_proj)")


@dataclass(frozen=True, slots=True, kw_only=True)
class BitnestConfig:
    """The configuration beside the manifest that it has to agree with."""

    config: Config
    manifest: Manifest


def _keys(subject: BitnestConfig) -> Iterator[Problem]:
    epsilon = subject.config.get("rms_norm_eps")
    sound = {key: integer(subject.config, key) is not None for key in _SIZES}
    sound["rms_norm_eps"] = (
        isinstance(epsilon, int | float) and not isinstance(epsilon, bool) and epsilon > 0
    )
    given = (key for key in _SIZES_BY_DEFAULT if subject.config.get(key) is not None)
    sound |= {key: integer(subject.config, key) is not None for key in given}
    number, size = "a number above 0", "an integer of at least 1"
    for key in sorted(key for key, fine in sound.items() if not fine):
        yield Problem(
            message="config.json lacks what readers need",
            pointer=pointer(key) if key in subject.config else "",
            expected=f"{key}, {number if key == 'rms_norm_eps' else size}",
            found=show(subject.config[key]) if key in subject.config else "no such key",
        )


def _arch(subject: BitnestConfig) -> Iterator[Problem]:
    given = subject.config.get("model_type")
    if given != subject.manifest.arch:
        yield Problem(
            message="config.json is that of another architecture",
            pointer=pointer("model_type") if "model_type" in subject.config else "",
            expected=f"{show(subject.manifest.arch)}, the manifest's arch",
            found=show(given) if "model_type" in subject.config else "no such key",
        )


def _layers(subject: BitnestConfig) -> Iterator[Problem]:
    expected = integer(subject.config, "num_hidden_layers")
    matches = (_LAYER.fullmatch(name) for name in subject.manifest.layers)
    found = len({match["layer"] for match in matches if match})
    if expected is not None and expected != found:
        yield Problem(
            message="config.json has another number of layers than the manifest",
            pointer=pointer("num_hidden_layers"),
            expected=f"{found}, the decoder layers of the manifest",
            found=str(expected),
        )


def _widths(subject: BitnestConfig) -> Iterator[Problem]:
    shapes = _shapes(subject.config)
    for name, layer in subject.manifest.layers.items():
        match = _LAYER.fullmatch(name)
        kind = match["kind"] if match else name
        if kind in shapes and not shape_fits((layer.shape[0], layer.shape[1]), shapes[kind]):
            yield Problem(
                message="the shape of a layer is not what config.json gives",
                file=MANIFEST,
                pointer=pointer("layers", name, "shape"),
                expected=f"{shape_text(shapes[kind])} (by config.json)",
                found=shape_text((layer.shape[0], layer.shape[1])),
            )


def _shapes(config: Config) -> dict[str, tuple[int | None, int | None]]:
    """Return the shape of each kind of layer, None where config.json does not give a size."""
    hidden, inner = integer(config, "hidden_size"), integer(config, "intermediate_size")
    width, heads = head_dim(config), integer(config, "num_attention_heads")
    groups = key_value_heads(config)
    queries = heads * width if heads and width else None
    keys = groups * width if groups and width else None
    return {
        "q_proj": (queries, hidden),
        "k_proj": (keys, hidden),
        "v_proj": (keys, hidden),
        "o_proj": (hidden, queries),
        "gate_proj": (inner, hidden),
        "up_proj": (inner, hidden),
        "down_proj": (hidden, inner),
        "lm_head": (integer(config, "vocab_size"), hidden),
    }


def _head_group(subject: BitnestConfig) -> Iterator[Problem]:
    width = head_dim(subject.config)
    for name, group in subject.manifest.activation.per_layer_group.items():
        if name.endswith(".o_proj") and width is not None and group not in (-1, width):
            yield Problem(
                message="the activation groups of o_proj are not the heads",
                file=MANIFEST,
                pointer=pointer("activation", "per_layer_group", name),
                expected=f"{width} (head_dim of config.json) or -1",
                found=str(group),
            )


def _untied(subject: BitnestConfig) -> Iterator[Problem]:
    tied = subject.config.get("tie_word_embeddings")
    if tied is not None and tied is not False:
        yield Problem(
            message="config.json does not say that embeddings are not tied; here they never are",
            pointer=pointer("tie_word_embeddings"),
            expected="false",
            found=show(tied),
        )


def _rope(subject: BitnestConfig) -> Iterator[Problem]:
    nested, base = subject.config.get("rope_parameters"), subject.config.get("rope_theta")
    if base is None and isinstance(nested, dict):
        base = nested.get("rope_theta")
    copy = subject.manifest.rope.theta if subject.manifest.rope else None
    number = isinstance(base, int | float) and not isinstance(base, bool)
    if number and copy is not None and base != copy:
        yield Problem(
            message="the manifest's copy of the RoPE base is not that of config.json",
            file=MANIFEST,
            pointer=pointer("rope", "theta"),
            expected=f"{show(base)} (rope_theta of config.json)",
            found=show(copy),
        )


BITNEST_CONFIG_RULES: Mapping[str, Rule[BitnestConfig]] = {
    "BN1-CONFIG-KEYS": _keys,
    "BN1-CONFIG-ARCH": _arch,
    "BN1-CONFIG-LAYERS": _layers,
    "BN1-CONFIG-WIDTHS": _widths,
    "BN1-CONFIG-HEAD-GROUP": _head_group,
    "BN1-CONFIG-UNTIED": _untied,
    "BN1-CONFIG-ROPE": _rope,
}
"""What config.json of a package has to agree with."""
