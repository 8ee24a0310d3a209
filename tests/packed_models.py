"""Models of any architecture as checkpoints of dashq-packed-linear, and with their dense weights.

Packed by the reference; names are those of the model, so that no converter takes part.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nibblespec.optimized.arrays import to_array, to_tensor
from nibblespec.reference.dashq import dashq_reconstruct
from nibblespec.reference.dashq_encoder import encode_dashq
from safetensors.torch import save_file
from torch import Tensor, nn

KEPT = ("lm_head",)
"""Linear layers that are stored as they are."""


def same(name: str) -> str:
    return name


def pack_model(
    model: Any,  # noqa: ANN401  # of any architecture
    folder: Path,
    *,
    nbits: int = 4,
    group_size: int = 16,
    model_class: str = "causal_lm",
    shards: int = 1,
    rename: Callable[[str], str] = same,
) -> Path:
    """Write a model as a checkpoint, and give its own layers the weights that these stand for.

    Fused experts, parameters [E, N, K], are packed one by one. `rename` makes names of the files
    from names of the model.
    """
    tensors = {rename(name): tensor for name, tensor in model.state_dict().items()}
    modules: dict[str, Any] = {}
    for name, weight in list(packable(model)):
        linear = str(weight.dtype).removeprefix("torch.")
        packed = encode_dashq(to_array(weight), nbits, group_size, linear_dtype=linear)
        stored = rename(name)
        modules[stored] = packed.module.model_dump(exclude_none=True)
        for key, array in (
            ("W_q_packed", packed.words),
            ("scale", packed.scale),
            ("zero", packed.zero),
        ):
            tensors[f"{stored}.{key}"] = to_tensor(array)
        tensors.pop(f"{stored}.weight", None)
        tensors.pop(rename(name.rpartition("_list.")[0]), None)
        wide = dashq_reconstruct(
            packed.words, packed.scale, packed.zero, packed.module, "float32", "fused"
        )
        weight.copy_(to_tensor(wide))
    folder.mkdir(parents=True)
    write_shards(folder, tensors, shards)
    model.config.to_json_file(folder / "config.json")
    manifest = {
        "format": "dashq-packed-linear",
        "format_version": 1,
        "model_class": model_class,
        "quantized_modules": modules,
    }
    (folder / "dashq_config.json").write_text(json.dumps(manifest))
    return folder


def packable(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Return names and weights [N, K] of linear layers and of experts, as manifests list them."""
    found = []
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and name not in KEPT:
            found.append((name, module.weight.data))
        for key in ("gate_up_proj", "up_proj", "down_proj"):
            fused = getattr(module, key, None)
            if isinstance(fused, nn.Parameter):
                found += [(f"{name}.{key}_list.{i}", fused.data[i]) for i in range(len(fused))]
    return found


def write_shards(folder: Path, tensors: dict[str, Tensor], shards: int) -> None:
    """Write one file, or several with an index."""
    whole = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    if shards == 1:
        save_file(whole, folder / "model.safetensors")
        return
    weight_map = {}
    for number in range(shards):
        file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        part = dict(list(whole.items())[number::shards])
        weight_map.update(dict.fromkeys(part, file))
        save_file(part, folder / file)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
