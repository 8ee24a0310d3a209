"""Whether what a conversion will write can be loaded: the loader says so, before it is written."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from nibblespec.optimized.convert.errors import ConversionError
from nibblespec.optimized.convert.files import Planned
from nibblespec.optimized.convert.source import Source
from nibblespec.spec.formats import detect
from pydantic import ValidationError


def check_loadable(
    source: Source, manifest: Mapping[str, Any], files: Mapping[str, Sequence[Planned]]
) -> None:
    """Assemble the model of a manifest and of planned files as `load_model` does, without data.

    Raises ConversionError for what that refuses. Where transformers is not installed, or does not
    know the architecture, there is no loader to ask, and the plan passes.
    """
    known = detect(manifest)
    assert known is not None
    try:
        parsed = known.model.model_validate(manifest)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConversionError(
            f"{source.folder}: config.json makes a manifest that is none: {place}: {first['msg']}"
        ) from None
    try:
        from nibblespec.optimized.models.backends import operations_of  # noqa: PLC0415
        from nibblespec.optimized.models.files import LoadError, stored_tensor  # noqa: PLC0415
        from nibblespec.optimized.models.load import assemble  # noqa: PLC0415
        from transformers import CONFIG_MAPPING  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "transformers":
            raise
        return
    name = source.config.get("model_type")
    if isinstance(name, str) and name not in CONFIG_MAPPING:
        return
    try:
        tensors = {
            one.name: stored_tensor(Path(file), one.name, one.dtype, one.shape, 0)
            for file, planned in files.items()
            for one in planned
        }
        operations, nowhere = operations_of("torch"), torch.device("meta")
        assemble(source.folder, parsed, tensors, operations, nowhere, None)
    except LoadError as error:
        raise ConversionError(f"{error}; load_model would refuse what is written") from None
