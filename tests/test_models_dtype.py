"""The dtype of activations is the one that packed modules take, unless another is asked for."""

import json
from pathlib import Path
from typing import Any

import torch
from nibblespec.optimized import load_model
from nibblespec.optimized.convert import convert

from tests.convert_models import save_model

IDS = torch.arange(6)[None]


def package(folder: Path, **changes: Any) -> Path:  # noqa: ANN401
    """Convert a model in bfloat16, and change its config.json."""
    convert(save_model(folder / "model", "llama"), folder / "out", to="dashq", group_size=16)
    path = folder / "out" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder / "out"


def test_a_configuration_in_another_dtype_than_the_modules_gives_way(tmp_path: Path) -> None:
    model = load_model(package(tmp_path, dtype="float32"))
    with torch.no_grad():
        assert model(IDS).logits.dtype == torch.bfloat16
