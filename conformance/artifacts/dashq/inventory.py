"""Tensors of a dashq checkpoint: those that the manifest implies against those in the headers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from nibblespec.conformance.artifacts.findings import Problem, Rule
from nibblespec.conformance.artifacts.reading.shards import Shards
from nibblespec.conformance.artifacts.reading.tensor_entries import (
    TensorEntry,
    entry_text,
    shape_text,
)
from nibblespec.spec.dashq_packed_linear.v1.layout import module_tensors
from nibblespec.spec.dashq_packed_linear.v1.manifest import Manifest
from nibblespec.spec.json_strict import pointer
from nibblespec.spec.tensors import Role, TensorSpec

MANIFEST = "dashq_config.json"

_LONGEST_MODULE = 1024
"""Longer names are errors (DQ1-NAME-LENGTH); their beginnings are too many to look for."""

_PACKED = ".W_q_packed"
_OWN = frozenset(("W_q_packed", "scale", "zero", "bias"))
_FOREIGN = frozenset(
    (
        "qweight",
        "qzeros",
        "g_idx",
        "weight_packed",
        "weight_shape",
        "weight_scale",
        "weight_scale_inv",
        "weight_zero_point",
        "absmax",
        "quant_map",
        "SCB",
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DashqInventory:
    """What the manifest implies, and what was found."""

    manifest: Manifest
    specs: tuple[TensorSpec, ...]
    """Tensors of all modules whose dtypes are known."""
    tensors: Mapping[str, TensorEntry]
    """Every tensor whose entry could be read, by name."""
    files: Mapping[str, str]
    """The file of each of them."""
    lost: frozenset[str]
    """Tensors that are said to be in a file that is missing or could not be read."""
    blind: bool
    """Whether any tensor may be in a file that could not be read."""


def take_inventory(manifest: Manifest, shards: Shards) -> DashqInventory:
    """Compare a manifest with the headers; the index decides which of two equal tensors counts."""
    tensors: dict[str, TensorEntry] = {}
    files: dict[str, str] = {}
    for name, places in shards.places.items():
        mapped = shards.weight_map.get(name)
        file = mapped if mapped is not None and mapped in places else places[0]
        entry = shards.headers[file].tensors.get(name)
        if entry is not None:
            tensors[name], files[name] = entry, file
    broken = {name for header in shards.headers.values() for name in header.broken}
    unread = {name for name, file in shards.weight_map.items() if file not in shards.headers}
    return DashqInventory(
        manifest=manifest,
        specs=tuple(_specs(manifest)),
        tensors=tensors,
        files=files,
        lost=frozenset(broken | unread),
        blind=(not shards.weight_map and set(shards.files) != set(shards.headers))
        or not shards.files,
    )


def _specs(manifest: Manifest) -> Iterator[TensorSpec]:
    for name, module in manifest.quantized_modules.items():
        try:
            yield from module_tensors(name, module)
        except ValueError:
            continue  # a dtype that no reader knows: the manifest's own rules report it


def _hidden(inventory: DashqInventory, name: str) -> bool:
    """Say whether a tensor that was not found may be there all the same."""
    return inventory.blind or name in inventory.lost


def _present(inventory: DashqInventory) -> Iterator[Problem]:
    astray: dict[str, str] | None = None
    for spec in inventory.specs:
        if not spec.required or spec.name in inventory.tensors or _hidden(inventory, spec.name):
            continue
        astray = _astray(inventory) if astray is None else astray
        other = astray.get(_inside_layers(spec.name))
        yield Problem(
            message="a tensor of a quantized module is missing",
            file=MANIFEST,
            pointer=pointer("quantized_modules", spec.module),
            tensor=spec.name,
            expected=f"{spec.dtype} {shape_text(spec.shape)}",
            found="nothing",
            hint=f"the files have {other}: is the module's path right?" if other else "",
        )


def _astray(inventory: DashqInventory) -> dict[str, str]:
    """Return tensors that no module claims, by their name from `layers` on."""
    return {
        _inside_layers(name): name
        for name in inventory.tensors
        if name.rpartition(".")[2] in _OWN
        and name.rpartition(".")[0] not in inventory.manifest.quantized_modules
    }


def _inside_layers(name: str) -> str:
    """Return a name from its segment `layers` on, without what stands before it."""
    before, layers, rest = name.partition("layers.")
    return layers + rest if layers and (not before or before.endswith(".")) else name


def _dtype(inventory: DashqInventory, roles: frozenset[Role]) -> Iterator[Problem]:
    for spec, entry in _both(inventory, roles):
        if entry.dtype != spec.dtype:
            yield Problem(
                message=f"the dtype of {spec.role} is not what the manifest says",
                file=inventory.files[spec.name],
                pointer=pointer(spec.name, "dtype"),
                tensor=spec.name,
                expected=spec.dtype,
                found=entry.dtype[:40],
            )


def _shape(inventory: DashqInventory, roles: frozenset[Role]) -> Iterator[Problem]:
    for spec, entry in _both(inventory, roles):
        if entry.shape != spec.shape:
            yield Problem(
                message=f"the shape of {spec.role} is not what the manifest says",
                file=inventory.files[spec.name],
                pointer=pointer(spec.name, "shape"),
                tensor=spec.name,
                expected=shape_text(spec.shape),
                found=shape_text(entry.shape),
            )


def _both(
    inventory: DashqInventory, roles: frozenset[Role]
) -> Iterator[tuple[TensorSpec, TensorEntry]]:
    """Yield what is expected and found, where both are there."""
    for spec in inventory.specs:
        entry = inventory.tensors.get(spec.name) if spec.role in roles else None
        if entry is not None:
            yield spec, entry


def _no_weight(inventory: DashqInventory) -> Iterator[Problem]:
    for module in inventory.manifest.quantized_modules:
        name = f"{module}.weight"
        if name in inventory.tensors:
            yield Problem(
                message="a quantized module has an unquantized weight too",
                file=inventory.files[name],
                pointer=pointer(name),
                tensor=name,
                expected="the packed tensors alone",
                found=entry_text(inventory.tensors[name]),
            )


def _unlisted(inventory: DashqInventory) -> Iterator[Problem]:
    for name, entry in inventory.tensors.items():
        if name.endswith(_PACKED) and (
            name.removesuffix(_PACKED) not in inventory.manifest.quantized_modules
        ):
            yield Problem(
                message="packed words belong to no module of the manifest",
                file=inventory.files[name],
                pointer=pointer(name),
                tensor=name,
                expected="a module of this name in quantized_modules",
                found=entry_text(entry),
                hint="nothing says how many bits a code has: list the module, or remove the tensor",
            )


def _extra(inventory: DashqInventory) -> Iterator[Problem]:
    for name, entry in inventory.tensors.items():
        module = _owner(name, inventory.manifest)
        rest = name[len(module) + 1 :] if module is not None else "bias"
        if rest not in _OWN and rest != "weight":
            yield Problem(
                message="a quantized module has a tensor that its format does not know",
                file=inventory.files[name],
                pointer=pointer(name),
                tensor=name,
                expected="W_q_packed, scale, zero and perhaps bias",
                found=entry_text(entry),
            )


def _foreign(inventory: DashqInventory) -> Iterator[Problem]:
    for name, entry in inventory.tensors.items():
        if name.rpartition(".")[2] in _FOREIGN and _owner(name, inventory.manifest) is None:
            yield Problem(
                message="a tensor has the name of another quantization format",
                file=inventory.files[name],
                pointer=pointer(name),
                tensor=name,
                expected="packed modules of this format, and unquantized tensors",
                found=entry_text(entry),
                hint="no reader of this format applies it: store the layer unquantized",
            )


def _owner(name: str, manifest: Manifest) -> str | None:
    """Return the module that a tensor's name lies in."""
    module = name[: _LONGEST_MODULE + 1].rpartition(".")[0]
    while module and module not in manifest.quantized_modules:
        module = module.rpartition(".")[0]
    return module or None


_WORDS = frozenset[Role](("words",))
_GROUPS = frozenset[Role](("scale", "zero"))
_BIAS = frozenset[Role](("bias",))

DASHQ_INVENTORY_RULES: Mapping[str, Rule[DashqInventory]] = {
    "DQ1-TENSOR-PRESENT": _present,
    "DQ1-TENSOR-WORDS-DTYPE": partial(_dtype, roles=_WORDS),
    "DQ1-TENSOR-WORDS-SHAPE": partial(_shape, roles=_WORDS),
    "DQ1-TENSOR-SCALE-DTYPE": partial(_dtype, roles=_GROUPS),
    "DQ1-TENSOR-SCALE-SHAPE": partial(_shape, roles=_GROUPS),
    "DQ1-TENSOR-BIAS-DTYPE": partial(_dtype, roles=_BIAS),
    "DQ1-TENSOR-BIAS-SHAPE": partial(_shape, roles=_BIAS),
    "DQ1-TENSOR-NO-WEIGHT": _no_weight,
    "DQ1-TENSOR-UNLISTED": _unlisted,
    "DQ1-TENSOR-EXTRA": _extra,
    "DQ1-TENSOR-FOREIGN": _foreign,
}
"""What the tensors of a checkpoint have to satisfy, given its manifest."""
