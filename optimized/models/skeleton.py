"""A model of transformers without its weights, and how they come in."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from nibblespec.optimized.checks import FLOATS
from nibblespec.optimized.models.files import LoadError, Stored, read_tensor
from torch import Tensor, nn
from transformers import AutoConfig, GenerationConfig, PretrainedConfig, PreTrainedModel
from transformers.initialization import no_init_weights

MOST_NAMES = 10
"""Names that an error lists."""


def read_config(folder: Path) -> Any:  # noqa: ANN401  # a configuration of any architecture
    """Read config.json. Raises LoadError for one that transformers does not know."""
    file = folder / "config.json"
    if not file.is_file():
        raise LoadError(f"{file}: is missing; expected the base model's configuration")
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # whatever its checks of a configuration raise
        raise LoadError(f"{file}: transformers cannot read it: {_line(error)}") from error
    text = config.get_text_config()
    if not isinstance(text, PretrainedConfig):
        kind = type(text).__name__
        raise LoadError(f"{file}: text_config: expected none for this model_type, found {kind}")
    return config


def build(auto: Any, config: PretrainedConfig, dtype: torch.dtype, **options: Any) -> Any:  # noqa: ANN401
    """Return a model of an Auto class on the meta device: no weight has memory.

    Raises LoadError where that class has no model for the configuration.
    """
    try:
        with torch.device("meta"), no_init_weights():
            model = auto.from_config(config, dtype=dtype, **options)
    except Exception as error:  # whatever the class makes of sizes that do not fit
        kind = getattr(config, "model_type", "?")
        raise LoadError(
            f"model_type {kind}: {auto.__name__} cannot build it: {_line(error)}"
        ) from error
    return model.eval()


def check_layer_count(folder: Path, config: Any, tensors: int) -> None:  # noqa: ANN401
    """Require no more decoder layers than there are tensors, before anybody makes them."""
    count = getattr(config.get_text_config(), "num_hidden_layers", None)
    if isinstance(count, int) and count > tensors:
        raise LoadError(
            f"{folder / 'config.json'}: num_hidden_layers: expected at most {tensors}, as many as "
            f"there are tensors, found {count}"
        )


def _line(error: Exception) -> str:
    """Return what an error says in one line, or its kind where it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__


def model_dtype(config: PretrainedConfig, dtype: torch.dtype | None) -> torch.dtype:
    """Return the dtype to compute in: that asked for, that of the configuration, or bfloat16.

    Raises LoadError for a configuration's that no operation takes.
    """
    known = (dtype, config.get_text_config().dtype, config.dtype, torch.bfloat16)
    found = next(one for one in known if isinstance(one, torch.dtype))
    if found not in FLOATS:
        raise LoadError(
            f"config.json: dtype: expected float16, bfloat16 or float32, found {found}; "
            f"load_model takes another one as dtype"
        )
    return found


def replace(model: nn.Module, name: str, module: nn.Module) -> None:
    """Put a module in the place of the one at a dotted path."""
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, module)


def state_names(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and persistent buffers of a model by name, tied ones once each."""
    return dict(model.state_dict(keep_vars=True))


def fill(
    model: PreTrainedModel, sources: Mapping[str, Stored], device: torch.device, folder: Path
) -> None:
    """Read every tensor of a model, each from its source, and move it to the device.

    Floating-point tensors are converted to the dtype that they have in the model. Raises LoadError
    for a tensor without a source, with one of another shape, and for one that is tied to another
    and has a source that differs.
    """
    state = state_names(model)
    tied = {one: of for one, of in model.all_tied_weights_keys.items() if one in state}
    missing = sorted(state.keys() - sources.keys() - tied.keys())
    if missing:
        raise LoadError(
            f"{folder}: no tensor of the files is for {listed(missing)} of {type(model).__name__}"
        )
    for name in sorted(sources, key=lambda one: one in tied):
        source, here = sources[name], state[name]
        if tuple(here.shape) != source.shape:
            raise LoadError(
                f"{source}: expected shape {list(here.shape)}, as config.json has it for {name}, "
                f"found {list(source.shape)}"
            )
        tensor = read_tensor(source, device).to(here.dtype)
        if name not in tied:
            put(model, name, tensor)
        elif not tensor.is_meta and not torch.equal(tensor, state_names(model)[tied[name]]):
            raise LoadError(
                f"{source}: config.json ties it to {tied[name]}, and it differs; set "
                f"tie_word_embeddings to false, or remove the tensor"
            )
    for name, of in tied.items():
        put(model, name, state_names(model)[of])


def put(model: nn.Module, name: str, tensor: Tensor) -> None:
    """Put a parameter or buffer in the place of the one at a dotted path."""
    parent, _, last = name.rpartition(".")
    module = model.get_submodule(parent)
    if last in module._parameters:
        parameter = tensor if isinstance(tensor, nn.Parameter) else nn.Parameter(tensor, False)
        module.register_parameter(last, parameter)
    else:
        persistent = last not in module._non_persistent_buffers_set
        module.register_buffer(last, tensor, persistent=persistent)


def listed(names: list[str]) -> str:
    """Join the first names, and say how many more there are."""
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def keep_in_float32(model: PreTrainedModel, dtype: torch.dtype) -> None:
    """Widen the tensors that transformers keeps in float32, on the meta device."""
    patterns = [one.replace("*", ".*") for one in model._get_dtype_plan(dtype)]
    for name, tensor in state_names(model).items():
        if any(re.search(pattern, name) for pattern in patterns):
            put(model, name, tensor.detach().to(torch.float32))


def initialize_buffers(model: PreTrainedModel, device: torch.device) -> None:
    """Compute the buffers that no file holds, such as the frequencies of a rotary embedding.

    transformers computes them module by module; on the meta device there is nothing to compute.
    Raises LoadError for one that it leaves as it is.
    """
    if device.type == "meta":
        return
    for tensor in state_names(model).values():
        tensor._is_hf_initialized = True  # type: ignore[attr-defined]  # transformers looks for it
    owners = {name: one for name, one in model.named_modules() if isinstance(one, PreTrainedModel)}
    for name, module in model.named_modules():
        empty = dict(_missing_buffers(module))
        if not empty:
            continue
        for key, buffer in empty.items():
            value = torch.full_like(buffer, _unset(buffer.dtype), device=device)
            module.register_buffer(key, value, persistent=False)
        owner = max(
            (one for one in owners if f"{name}.".startswith(f"{one}." if one else "")), key=len
        )
        with torch.no_grad():
            owners[owner]._init_weights(module)  # type: ignore[no-untyped-call]
        for key, buffer in empty.items():
            if _is_unset(getattr(module, key), _unset(buffer.dtype)):
                raise LoadError(
                    f"{type(model).__name__}: transformers does not initialize the buffer "
                    f"{name}.{key}: this architecture cannot be loaded"
                )


def _missing_buffers(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for key, buffer in module.named_buffers(recurse=False):
        if buffer.is_meta and key in module._non_persistent_buffers_set:
            yield key, buffer


def _unset(dtype: torch.dtype) -> float:
    """Return a value that no computed buffer consists of; of bool there is none."""
    if dtype.is_floating_point:
        return float("nan")
    return 0 if dtype == torch.bool else torch.iinfo(dtype).max


def _is_unset(tensor: Tensor, value: float) -> bool:
    if tensor.numel() == 0 or tensor.dtype == torch.bool:
        return False
    same = tensor.isnan() if tensor.is_floating_point() else tensor == value
    return bool(same.any())


def read_generation_config(model: Any, folder: Path) -> None:  # noqa: ANN401
    """Take generation_config.json, where there is one."""
    file = folder / "generation_config.json"
    if file.is_file():
        try:
            model.generation_config = GenerationConfig.from_pretrained(folder)
        except Exception as error:  # whatever its checks raise
            raise LoadError(f"{file}: transformers cannot read it: {_line(error)}") from error
