"""The dtype of activations is the one that packed modules take, unless another is asked for."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from nibblespec.optimized import load_model
from nibblespec.optimized.convert import convert
from nibblespec.optimized.models import LoadError

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


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_dtype_that_packed_modules_do_not_take_is_refused(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    folder = package(tmp_path)
    with pytest.raises(
        LoadError, match=r"dtype: expected bfloat16 or None, .*found float"
    ) as caught:
        load_model(folder, dtype=dtype)
    assert str(caught.value).startswith(str(folder))
    assert load_model(folder, dtype=torch.bfloat16).dtype == torch.bfloat16


def test_modules_that_take_different_dtypes_are_refused(tmp_path: Path) -> None:
    folder = package(tmp_path)
    manifest = json.loads((folder / "dashq_config.json").read_text())
    modules = manifest["quantized_modules"]
    modules["model.layers.1.mlp.up_proj"]["linear_dtype"] = "float16"
    (folder / "dashq_config.json").write_text(json.dumps(manifest))
    with pytest.raises(LoadError, match=r"linear_dtype: expected one .*float16 \(.*up_proj\)"):
        load_model(folder)
