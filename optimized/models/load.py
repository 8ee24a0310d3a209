"""Loading a checkpoint of either format as a model of transformers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from nibblespec.optimized.checks import FLOATS, PLANES
from nibblespec.optimized.models.backends import operations_of
from nibblespec.optimized.models.bitnest import load_bitnest
from nibblespec.optimized.models.dashq import load_dashq
from nibblespec.optimized.models.files import (
    LoadError,
    Stored,
    check_index,
    checkpoint_files,
    stored_tensors,
)
from nibblespec.optimized.modules import select_plane
from nibblespec.optimized.operations import Operations
from nibblespec.spec.bitnest_package.v1.layout import AUX
from nibblespec.spec.bitnest_package.v1.layout import PLANES as PLANE_FILE
from nibblespec.spec.bitnest_package.v1.manifest import Manifest as BitnestManifest
from nibblespec.spec.formats import AnyManifest, ManifestError, read_manifest


def load_model(
    directory: str | Path,
    *,
    plane: str = "target",
    backend: object = "torch",
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
) -> Any:  # noqa: ANN401  # a model of any architecture
    """Return the transformers model of a checkpoint's folder, with packed modules, for inference.

    plane: what nested layers read at first; `select_plane` changes it. backend: "torch",
    "optimized", an `Operations` set or a NumPy backend of `nibblespec.spec.operations`. device: on
    "meta", no tensor is read. dtype: of activations and of what is not packed; None: the
    linear_dtype of dashq's modules, which take no other, or else that of config.json, or bfloat16.

    Every tensor of the files is read once, and no weight is ever unpacked. Raises LoadError for a
    checkpoint that cannot be loaded, naming file and tensor; ValueError and TypeError for other
    arguments.
    """
    if plane not in PLANES:
        raise ValueError(f"plane: expected {' or '.join(PLANES)}, found {plane!r}")
    if dtype is not None and dtype not in FLOATS:
        raise ValueError(f"dtype: expected float16, bfloat16, float32 or None, found {dtype}")
    operations, place, folder = operations_of(backend), _place(device), Path(directory)
    try:
        if not folder.is_dir():
            raise LoadError(f"{folder}: is no folder; expected that of a checkpoint")
        manifest = read_manifest(folder)
    except OSError as error:
        raise LoadError(f"{folder}: {error.strerror}") from error
    except ManifestError as error:
        raise LoadError(str(error)) from error
    model = assemble(folder, manifest, None, operations, place, dtype)
    select_plane(model, plane)
    return model


def assemble(
    folder: Path,
    manifest: AnyManifest,
    stored: Mapping[str, Stored] | None,
    operations: Operations,
    device: torch.device,
    dtype: torch.dtype | None,
) -> Any:  # noqa: ANN401  # a model of any architecture
    """Return the model of a manifest, of the config.json in a folder, and of tensors.

    stored: where the tensors are; None: in that folder. Raises LoadError, as `load_model` does.
    """
    nested = isinstance(manifest, BitnestManifest)
    try:
        with torch.device("cpu"):  # where files are read, whatever the user's default device
            if stored is None and nested:
                stored = stored_tensors([folder / PLANE_FILE, folder / AUX])
            elif stored is None:
                stored = stored_tensors(checkpoint_files(folder))
                check_index(folder, stored)
            if isinstance(manifest, BitnestManifest):
                model = load_bitnest(folder, manifest, stored, operations, device, dtype)
            else:
                model = load_dashq(folder, manifest, stored, operations, device, dtype)
    except LoadError as error:
        message = str(error)
        if not message.startswith(str(folder)):
            message = f"{folder}: {message}"
        raise LoadError(message) from error.__cause__
    model.save_pretrained = _refuse_saving
    return model


def _refuse_saving(*_: object, **__: object) -> None:
    """Keep transformers from writing a folder that it would fill up with random weights."""
    raise TypeError(
        "save_pretrained: expected nothing to save, since packed weights do not change; copy the "
        "checkpoint's folder, or pickle the model"
    )


def _place(device: object) -> torch.device:
    """Return a device on which tensors can be made; raise ValueError or TypeError for another."""
    if not isinstance(device, str | torch.device):
        raise TypeError(f"device: expected a torch.device or its name, found {device!r}")
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device: expected one that is there, found {device}: {reason}") from error
