"""Loading a checkpoint of either format as a model of transformers."""

from pathlib import Path
from typing import Any

import torch
from nibblespec.optimized.checks import FLOATS, PLANES
from nibblespec.optimized.models.backends import operations_of
from nibblespec.optimized.models.bitnest import load_bitnest
from nibblespec.optimized.models.dashq import load_dashq
from nibblespec.optimized.models.files import LoadError
from nibblespec.optimized.modules import select_plane
from nibblespec.spec.bitnest_package.v1.manifest import Manifest as BitnestManifest
from nibblespec.spec.formats import ManifestError, read_manifest


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
    "optimized", an `Operations` set or a NumPy backend of `nibblespec.spec.operations`. dtype: of
    activations and of what is not packed; None: the linear_dtype of dashq's modules, which take no
    other, or else that of config.json, or bfloat16.

    Every tensor of the files is read once, and no weight is ever unpacked. Raises LoadError for a
    checkpoint that cannot be loaded, naming file and tensor; ValueError and TypeError for other
    arguments.
    """
    if plane not in PLANES:
        raise ValueError(f"plane: expected {' or '.join(PLANES)}, found {plane!r}")
    if dtype is not None and dtype not in FLOATS:
        raise ValueError(f"dtype: expected float16, bfloat16, float32 or None, found {dtype}")
    operations, place, folder = operations_of(backend), torch.device(device), Path(directory)
    if not folder.is_dir():
        raise LoadError(f"{folder}: is no folder; expected that of a checkpoint")
    try:
        manifest = read_manifest(folder)
    except ManifestError as error:
        raise LoadError(str(error)) from error
    try:
        with torch.device("cpu"):  # where files are read, whatever the user's default device
            if isinstance(manifest, BitnestManifest):
                model = load_bitnest(folder, manifest, operations, place, dtype)
                select_plane(model, plane)
            else:
                model = load_dashq(folder, manifest, operations, place, dtype)
    except LoadError as error:
        message = str(error)
        if not message.startswith(str(folder)):
            message = f"{folder}: {message}"
        raise LoadError(message) from error.__cause__
    return model
