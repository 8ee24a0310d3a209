"""The decoder layers of a `bitnest-package-v1`: seven nested layers each, by name."""

import re
from collections import defaultdict
from collections.abc import Mapping

from nibblespec.spec.bitnest_package.v1.manifest import Layer

LAYERS = "layers"

SEVEN = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)
"""The layers of a decoder layer, after `model.layers.i.`."""

_NAME = re.compile(r"model\.layers\.(0|[1-9][0-9]{0,8})\.(" + "|".join(map(re.escape, SEVEN)) + ")")


def place(name: str) -> tuple[str, str] | None:
    """Split a name into the decoder layer's number and one of SEVEN, None for other names."""
    match = _NAME.fullmatch(name)
    return (match[1], match[2]) if match else None


def decoder(layers: Mapping[str, Layer]) -> Mapping[str, Mapping[str, Layer]]:
    """Group the layers of known names: the decoder layer's number to one of SEVEN to layer."""
    found: dict[str, dict[str, Layer]] = defaultdict(dict)
    for name, layer in layers.items():
        if at := place(name):
            found[at[0]][at[1]] = layer
    return found


def path(number: str, last: str) -> str:
    """Return the name of one of SEVEN in a decoder layer."""
    return f"model.layers.{number}.{last}"


def kinds(layers: Mapping[str, Layer]) -> Mapping[str, Mapping[str, Layer]]:
    """Group the layers of known names: one of SEVEN to name to layer."""
    found: dict[str, dict[str, Layer]] = defaultdict(dict)
    for name, layer in layers.items():
        if at := place(name):
            found[at[1]][name] = layer
    return found
